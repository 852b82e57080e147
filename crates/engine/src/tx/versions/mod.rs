//! The row table: the locks of rows and the undo versions of recent commits; and the snapshots in
//! use, which need these versions.

mod bounds;
mod deleted_keys;
mod old_bytes;
mod overflow_table;
mod row;
mod rows;
mod shard;
mod snapshots;

pub(super) use bounds::{Bounds, is_within, slices_of};
pub(super) use deleted_keys::Wanted;
pub(super) use row::{BeforeImage, FREE, INLINE_KEY_BYTES, Place, Row, Version};
pub(super) use rows::{Locking, RowRef, Rows, hash_of};
pub(super) use snapshots::Snapshots;
