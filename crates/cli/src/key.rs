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
