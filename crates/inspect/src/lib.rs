//! Inspects stores that are not open: dumps their logs, and repairs damaged ones. See
//! docs/design/backup-and-repair.md.
//!
//! Invariant: the inspected store is only read. Repairs write a new store, through the engine's own
//! calls.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod dump;
mod offline;
mod repair;

pub use dump::{LogDump, LogEntry, LogFileEnd, LogOperation, dump_log};
pub use repair::{
    KeyRange, RepairReport, RepairStep, RepairedLog, RepairedTable, examine_log, repair,
};
