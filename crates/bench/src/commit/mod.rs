//! Small transactions over any transactional key-value store: updates of single rows that wait
//! until they are durable, and inserts in random order that do not wait.
//!
//! Always holds: each client is a closed loop; it begins its next transaction when the last one is
//! committed. Rows are those of the lookup benchmark: keys of 8 bytes, values of 120.

mod client;
mod report;
mod run;

#[cfg(test)]
mod tests;

pub use crate::device::baseline::{Baseline, BaselineOptions, baseline};
pub use report::CommitReport;
pub use run::{CommitOptions, CommitWork, run_commit};

use crate::kv::TableId;

/// Names of the tables, in the order of their [`TableId`]s. The store must be opened with them.
pub const COMMIT_TABLES: [&str; 1] = ["bench"];

pub(crate) const ROWS: TableId = TableId(0);
