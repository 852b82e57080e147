//! A logical unit as its initiators see it, for code that serves disks by SCSI: inquiry and vital
//! product data, capacity, mode pages, the supported commands, unit attentions, and the states
//! "started" and "caches writes".
//!
//! The unit has no medium and knows no transport. A command that reads or writes blocks is checked
//! here and becomes [`Work`], accesses that the caller carries out in its own way: at once, or with
//! queues to a device.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod blocks;
mod clock;
mod facts;
mod operations;
mod parameters;
mod unit;
pub mod virtio;

pub use blocks::{Access, Work};
pub use facts::{Facts, Limits};
pub use unit::{LogicalUnit, Reply, Step};
