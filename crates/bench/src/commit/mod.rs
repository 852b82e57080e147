//! Small transactions over any transactional key-value store: updates of single rows that wait
//! until they are durable, and inserts in random order that do not wait.
//!
//! Invariants: each client is a closed loop; it begins its next transaction when the last one is
//! committed. Rows are those of the lookup benchmark: keys of 8 bytes, values of 120.

mod client;
mod report;
mod run;

#[cfg(test)]
mod tests;

pub use crate::device::{Baseline, BaselineOptions, baseline};
/// Names of the tables, in the order of their [`TableId`](crate::kv::TableId)s. The store must be
/// opened with them.
pub use crate::records::TABLES as COMMIT_TABLES;
pub use client::{CommitOptions, CommitWork};
pub use report::CommitReport;
pub use run::run_commit;
