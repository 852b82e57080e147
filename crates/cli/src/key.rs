//! Keys as people give them on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;

use crate::failure::{Failure, Result};
use crate::text::decode_hex;

/// What is wrong with a key of no bytes, which is a mistake more often than a key.
pub(crate) const EMPTY_KEY: &str = "the key is empty (--empty-key takes it)";

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
    fn prefixes_end() {
        assert_eq!(end_of_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(end_of_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(end_of_prefix(b"\xff"), None);
        assert_eq!(end_of_prefix(b""), None);
    }
}
