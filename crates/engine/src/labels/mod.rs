//! Labels: what the devices of a store say of it, and of themselves. See docs/design/page-format.md.

mod log;
mod members;
mod superblock;

pub(crate) use log::{Found, LogLabel, MAGIC as LOG_LABEL_MAGIC, is_log_of};
pub(crate) use members::{Generations, erase, join, read, read_all, read_slots, write_all};
pub(crate) use superblock::{
    FORMAT_VERSION, LABEL_BYTES, LogReference, SLOT_OFFSETS, StoreState, Superblock,
};
