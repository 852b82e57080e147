//! The records of the catalog, tree 0: the names of tables, and the ids of their trees.

use crate::error::{Error, ErrorKind, Result};

/// Decodes the tree id in a record of the catalog.
///
/// # Errors
/// `Corrupt` if the record has no valid tree id.
pub fn decode(record: &[u8]) -> Result<u32> {
    record
        .try_into()
        .map(u32::from_le_bytes)
        .map_err(|_| Error::new(ErrorKind::Corrupt, "a record of the catalog cannot be decoded"))
}
