//! Values on their way into trees and out of them: compressed, and with an expiry time.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use qpair_format::codec::Codec;
use qpair_format::expiry::{
    ENTRY_HEAD_BYTES, EXPIRY_BYTES, append_expiry, entry_key, entry_time_ms, expiry_of,
};
use qpair_format::values::Compression;
use qpair_format::{Error, ErrorKind, Result};

use super::Shared;
use crate::pool::Tree;

/// The values of compressed tables that were put since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Compressed {
    /// The bytes of the values.
    pub(crate) value_bytes: AtomicU64,
    /// The bytes that the tables keep in their place.
    pub(crate) stored_bytes: AtomicU64,
}

impl Shared {
    /// Returns what a tree keeps in the place of a value.
    ///
    /// # Errors
    /// As [`Compression::encode`]; `ValueTooLong`.
    #[inline]
    pub(crate) fn stored<'v>(&self, tree: Tree, value: &'v [u8]) -> Result<Cow<'v, [u8]>> {
        if tree.codec.is_plain() {
            return Ok(Cow::Borrowed(value));
        }
        self.encode(tree, value)
    }

    fn encode<'v>(&self, tree: Tree, value: &'v [u8]) -> Result<Cow<'v, [u8]>> {
        let compression = tree.codec.compression();
        let mut stored = compression.encode(value)?;
        if compression != Compression::None {
            self.compressed.value_bytes.fetch_add(value.len() as u64, Relaxed);
            self.compressed.stored_bytes.fetch_add(stored.len() as u64, Relaxed);
        }
        if tree.codec.expires() {
            let ttl_ms = self.expiry.ttl_ms(tree.id).ok_or_else(|| undefined(tree.id))?;
            let expiry_ms = self.expiry.now_ms().max(self.expiry.horizon_ms()) + ttl_ms;
            append_expiry(stored.to_mut(), expiry_ms)?;
        }
        Ok(stored)
    }

    /// Replaces what a tree keeps, in `value` from `start` on, by the value, if `found`. Returns
    /// whether the key has a value: an expired one is removed from `value`, which then ends at
    /// `start`. The same holds after an error.
    ///
    /// # Errors
    /// As [`Compression::decode`].
    #[inline(always)]
    pub(crate) fn value(
        &self,
        tree: Tree,
        found: bool,
        value: &mut Vec<u8>,
        start: usize,
    ) -> Result<bool> {
        if !found || tree.codec.is_plain() {
            return Ok(found);
        }
        self.decode(tree.codec, value, start)
    }

    #[inline(never)]
    fn decode(&self, codec: Codec, value: &mut Vec<u8>, start: usize) -> Result<bool> {
        if codec.expires() {
            let expiry = expiry_of(value.get(start..).unwrap_or_default());
            if *expiry.as_ref().unwrap_or(&0) <= self.expiry.horizon_ms() {
                value.truncate(start);
                return expiry.map(|_| false);
            }
            value.truncate(value.len() - EXPIRY_BYTES);
        }
        codec.compression().decode(true, value, start)
    }

    /// Returns the index, and the key of the entry that it must have before a tree has this record;
    /// `None` if the tree's records do not expire.
    ///
    /// # Errors
    /// `KeyTooLong` if the index does not take such a long key; `Corrupt`.
    #[inline]
    pub(crate) fn expiry_entry(
        &self,
        tree: Tree,
        key: &[u8],
        stored: &[u8],
    ) -> Result<Option<(Tree, Vec<u8>)>> {
        match Codec::of_tree(tree.id).expires() {
            false => Ok(None),
            true => self.entry_of(tree, key, stored).map(Some),
        }
    }

    fn entry_of(&self, tree: Tree, key: &[u8], stored: &[u8]) -> Result<(Tree, Vec<u8>)> {
        let index = self.expiry.index().ok_or_else(|| undefined(tree.id))?;
        let ttl_ms = self.expiry.ttl_ms(tree.id).ok_or_else(|| undefined(tree.id))?;
        self.check_expiring_key(key)?;
        let time_ms = entry_time_ms(expiry_of(stored)?, ttl_ms);
        Ok((index, entry_key(tree.id, time_ms, key)))
    }
}

impl Shared {
    /// Refuses a key that has no entry in the index of expiry times.
    pub(crate) fn check_expiring_key(&self, key: &[u8]) -> Result<()> {
        let limit = self.whole_key_len_max - ENTRY_HEAD_BYTES;
        if key.len() <= limit {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::KeyTooLong,
            format!(
                "a key has {} bytes; with pages of {} bytes, the limit in a table with a time to live is {limit}",
                key.len(),
                self.page_bytes
            ),
        ))
    }
}

fn undefined(tree: u32) -> Error {
    let what = format!("the index of expiry times has no time to live for tree {tree}");
    Error::damaged(what)
}
