//! A logical unit as its initiators see it, for code that serves disks by SCSI: inquiry and vital product data, capacity, mode pages, the
//! commands that it knows, unit attentions, whether it is started and caches writes. It has no medium and knows no transport: commands that
//! read and write blocks are handed back to the caller.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod clock;
mod facts;
mod operations;
mod parameters;
mod unit;

pub use facts::{Facts, Limits};
pub use unit::{LogicalUnit, ModeSelect, Reply, Step};
