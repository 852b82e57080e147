//! The payload with a part of the device's configuration.

use qpair_socket::{Fields, Writer};

/// A part of the configuration: GET_CONFIG and SET_CONFIG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config<'a> {
    pub offset: u32,
    /// The source of a write: 0 the guest, 1 a migration.
    pub flags: u32,
    /// The bytes. In a request, their number says how many are requested.
    pub bytes: &'a [u8],
}

impl<'a> Config<'a> {
    pub const BYTES_MAX: usize = 256;

    #[must_use]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut fields = Fields::of(payload);
        let (offset, len, flags) = (fields.u32()?, fields.u32()? as usize, fields.u32()?);
        let bytes = fields.rest();
        (len == bytes.len() && len <= Self::BYTES_MAX).then_some(Self { offset, flags, bytes })
    }

    #[must_use]
    pub fn payload(self) -> Vec<u8> {
        let Self { offset, flags, bytes } = self;
        Writer::default().u32(offset).u32(bytes.len() as u32).u32(flags).bytes(bytes).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back() {
        let config = Config { offset: 8, flags: 1, bytes: &[1, 2, 3] };
        let payload = config.payload();
        assert_eq!(Config::parse(&payload), Some(config));
        assert_eq!(Config::parse(&payload[..14]), None, "less than it says");
        assert_eq!(Config::parse(&Config { bytes: &[0; 257], ..config }.payload()), None);
    }
}
