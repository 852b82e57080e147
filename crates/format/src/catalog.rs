//! The records of the catalog, tree 0: the names of tables, and the ids of their trees.

use crate::error::{Error, ErrorKind, Result};
use crate::values::TREE_BITS;

/// Decodes the tree id in a record of the catalog.
///
/// # Errors
/// `Corrupt` if the record has no valid tree id; `Version` if the table has an unknown compression.
pub fn decode(record: &[u8]) -> Result<u32> {
    let id = record
        .try_into()
        .map(u32::from_le_bytes)
        .map_err(|_| Error::new(ErrorKind::Corrupt, "a record of the catalog cannot be decoded"))?;
    match id >> TREE_BITS {
        0..=2 => Ok(id),
        _ => Err(Error::with_hint(
            ErrorKind::Version,
            "a table is compressed in a way that this version of qpair does not know",
            "use a newer version of qpair",
        )),
    }
}
