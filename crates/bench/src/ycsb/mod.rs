//! YCSB's core workloads A to F over any transactional key-value store.
//!
//! What always holds:
//! - A record's key is "user" and 20 digits, which mix the record's number; so records that are near in number are far
//!   apart in the table. Its value is all fields one behind the other.
//! - Each operation is a transaction of its own. Reads and scans are snapshots.
//! - Which records are hot follows from the standard's scrambled zipfian distribution, or from what was inserted last.

mod client;
mod keys;
mod mix;
mod report;
mod run;
mod zipfian;

#[cfg(test)]
mod tests;

pub use mix::YcsbWorkload;
pub use report::{YcsbKind, YcsbReport};
pub use run::{YcsbOptions, run_ycsb};

use crate::kv::TableId;

/// Names of the tables, in the order of their [`TableId`]s: open the store with them.
pub const YCSB_TABLES: [&str; 2] = ["usertable", "ycsb"];

pub(crate) const USERS: TableId = TableId(0);
/// One record: what was loaded.
pub(crate) const META: TableId = TableId(1);
