//! Keys on the command line.

use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use qpair::{KeyBounds, Prefix};

use crate::failure::{Failure, Result};
use crate::show::text::decode_hex;

/// The error of an empty key, which is usually a mistake.
pub(crate) const EMPTY_KEY: &str = "the key is empty (--empty-key takes it)";

pub(crate) type KeyBound = Bound<Vec<u8>>;

#[derive(Args, Debug)]
pub(crate) struct KeyArgs {
    /// Keys on the command line are hexadecimal digits
    #[arg(long)]
    pub(crate) key_hex: bool,
}

impl KeyArgs {
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

    /// Returns the bounds of a range: the keys with a prefix, or the keys from one key and before
    /// another.
    pub(crate) fn bounds(
        &self,
        prefix: Option<&OsString>,
        from: Option<&OsString>,
        to: Option<&OsString>,
    ) -> Result<(KeyBound, KeyBound)> {
        if let Some(prefix) = self.decode_option(prefix)? {
            let prefix = Prefix(prefix);
            let (from, to) = prefix.key_bounds();
            return Ok((from.map(<[u8]>::to_vec), to));
        }
        let (from, to) = (self.decode_option(from)?, self.decode_option(to)?);
        Ok((
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }
}
