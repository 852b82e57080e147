//! A logical unit as its initiators see it, for code that serves disks by SCSI: inquiry and vital
//! product data, capacity, mode pages, the supported commands, unit attentions, and the states
//! "started" and "caches writes".
//!
//! The unit has no medium and knows no transport: commands that read and write blocks are returned
//! to the caller.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod clock;
mod facts;
mod operations;
mod parameters;
mod unit;

pub use facts::{Facts, Limits};
pub use unit::{LogicalUnit, ModeSelect, Reply, Step};
