//! Compresses values on their way into trees, and counts them.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use qpair_format::Result;
use qpair_format::values::Compression;

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
    /// As [`Compression::encode`].
    #[inline]
    pub(crate) fn stored<'v>(&self, tree: Tree, value: &'v [u8]) -> Result<Cow<'v, [u8]>> {
        let stored = tree.compression.encode(value)?;
        if tree.compression != Compression::None {
            self.compressed.value_bytes.fetch_add(value.len() as u64, Relaxed);
            self.compressed.stored_bytes.fetch_add(stored.len() as u64, Relaxed);
        }
        Ok(stored)
    }
}
