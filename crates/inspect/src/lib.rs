//! Looks at stores that are not open: dumps of their logs, and the repair of damaged ones. See docs/design/backup-and-repair.md.
//!
//! What always holds: the store that is looked at is only read. What is written is a new store, by the engine's own calls.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod dump;
mod offline;
mod repair;

pub use dump::{LogDump, LogEntry, LogFileEnd, LogOperation, dump_log};
pub use repair::{
    KeyRange, RepairReport, RepairStep, RepairedLog, RepairedTable, examine_log, repair,
};
