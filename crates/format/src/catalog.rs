//! Records of the catalog, the tree 0: names of tables, and the ids of their trees.

use crate::error::{Error, ErrorKind, Result};

/// Id of the tree that a record of the catalog names.
///
/// # Errors
/// `Corrupt` if it names none.
pub fn decode(record: &[u8]) -> Result<u32> {
    record
        .try_into()
        .map(u32::from_le_bytes)
        .map_err(|_| Error::new(ErrorKind::Corrupt, "a record of the catalog cannot be decoded"))
}
