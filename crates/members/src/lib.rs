//! The devices of a store, before it is opened and afterwards: their superblocks, the log device,
//! and the search for other content on them. See docs/design/page-format.md.
//!
//! The calls block and must not be made on workers. Their transfers are rare, small, and one at a
//! time.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod address;
mod blank;
mod encryption;
mod log_device;
mod log_place;
mod log_superblock;
mod refusal;
mod superblocks;
mod transfer;

pub use address::{any_on_log_device, is_on_log_device};
pub use blank::{SUPERBLOCK_OFFSETS, find_content, find_foreign, is_being_made, is_superblock};
pub use encryption::{Encryption, LOG_DEVICE, unlock, unlock_log};
pub use log_device::{Attached, SEGMENTS_PER_WORKER, make_room};
pub use log_place::LogPlace;
pub use log_superblock::LogSuperblock;
pub use refusal::other_moment;
pub use superblocks::{
    Generations, erase, join, read, read_all, read_slots, write_all, write_key_slots,
};
pub use transfer::{open_channel, transfer_arena, wait};
