//! The first message: the protocol version, and the capabilities of each side.

use serde::Deserialize;

use qpair_socket::{Fields, Writer};

pub const MAJOR: u16 = 0;
pub const MINOR: u16 = 1;

/// The capabilities of one side. A missing key has the protocol's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// The maximum number of descriptors with a message.
    pub max_msg_fds: u32,
    /// The maximum number of bytes of a transfer in a message.
    pub max_data_xfer_size: u64,
    /// The maximum number of ranges of memory open at a time.
    pub max_dma_maps: u64,
    /// The page sizes of such ranges, one bit each.
    pub pgsizes: u64,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self { max_msg_fds: 1, max_data_xfer_size: 1 << 20, max_dma_maps: 65535, pgsizes: 4096 }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Words {
    capabilities: Capabilities,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The major version. Peers with different ones do not understand each other.
    pub major: u16,
    /// The minor version. The lower one of both sides is used.
    pub minor: u16,
    pub capabilities: Capabilities,
}

impl Version {
    /// Decodes a message. The capabilities may be missing; otherwise they are JSON that ends in a 0
    /// byte.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        let (major, minor) = (fields.u16()?, fields.u16()?);
        let words = fields.rest();
        let words = match words.iter().position(|byte| *byte == 0) {
            Some(end) => &words[..end],
            None if words.is_empty() => words,
            None => return None,
        };
        let capabilities = match words.trim_ascii() {
            [] => Capabilities::default(),
            // Capabilities that are not known here, such as those for migration, are ignored.
            words => serde_json::from_slice::<Words>(words).ok()?.capabilities,
        };
        Some(Self { major, minor, capabilities })
    }

    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let Capabilities { max_msg_fds, max_data_xfer_size, max_dma_maps, pgsizes } =
            self.capabilities;
        let words = format!(
            r#"{{"capabilities":{{"max_msg_fds":{max_msg_fds},"max_data_xfer_size":{max_data_xfer_size},"max_dma_maps":{max_dma_maps},"pgsizes":{pgsizes}}}}}"#
        );
        Writer::default().u16(self.major).u16(self.minor).bytes(words.as_bytes()).bytes(&[0]).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(minor: u8, words: &[u8]) -> Option<Version> {
        Version::parse(&[&[0, 0, minor, 0], words].concat())
    }

    #[test]
    fn there_and_back() {
        let capabilities = Capabilities { max_msg_fds: 16, ..Capabilities::default() };
        let version = Version { major: 0, minor: 1, capabilities };
        assert_eq!(Version::parse(&version.payload()), Some(version));
    }

    #[test]
    fn words_may_be_missing() {
        let defaults = Some(Capabilities::default());
        for words in [&b""[..], b"\0", b"{}\0", b"{\"capabilities\":{}}\0", b"{\"other\":[1]}\0 "] {
            assert_eq!(parse(0, words).map(|version| version.capabilities), defaults, "{words:?}");
        }
        let qemu = br#"{"capabilities": {"max_msg_fds": 8, "migration": {"pgsize": 4096}, "write_multiple": true}}"#;
        let version = parse(1, &[&qemu[..], b"\0"].concat()).unwrap();
        assert_eq!(version.capabilities.max_msg_fds, 8);
    }

    #[test]
    fn wrong_words() {
        for words in [&b"{}"[..], b"{\0", b"[]]\0", b"{\"capabilities\":{\"max_msg_fds\":-1}}\0"] {
            assert_eq!(parse(0, words), None, "{words:?}");
        }
        assert_eq!(Version::parse(&[0; 3]), None);
    }
}
