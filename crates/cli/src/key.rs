//! Keys as people give them on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;

use crate::failure::{Failure, Result};

/// How keys are written.
#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// Keys on the command line are hexadecimal digits
    #[arg(long)]
    pub(crate) key_hex: bool,
}

impl KeyArgs {
    /// The bytes of a key.
    pub(crate) fn decode(&self, key: &OsStr) -> Result<Vec<u8>> {
        let bytes = key.as_bytes();
        if !self.key_hex {
            return Ok(bytes.to_vec());
        }
        decode_hex(bytes).ok_or_else(|| {
            Failure::usage(format!("key \"{}\" is not hexadecimal", bytes.escape_ascii()))
                .hint("with --key-hex, a key is an even number of digits 0-9, a-f")
        })
    }

    pub(crate) fn decode_option(&self, key: Option<&OsString>) -> Result<Option<Vec<u8>>> {
        key.map(|key| self.decode(key)).transpose()
    }
}

fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
    digits.chunks(2).map(pair).collect()
}

/// The smallest key above all that begin with `prefix`; none if there is no such.
pub(crate) fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal() {
        assert_eq!(decode_hex(b"00fFa0"), Some(vec![0, 255, 160]));
        assert_eq!(decode_hex(b""), Some(vec![]));
        assert_eq!(decode_hex(b"0"), None);
        assert_eq!(decode_hex(b"0g"), None);
    }

    #[test]
    fn prefixes_end() {
        assert_eq!(end_of_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(end_of_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(end_of_prefix(b"\xff"), None);
        assert_eq!(end_of_prefix(b""), None);
    }
}
