//! YCSB's core workloads A to F over any transactional key-value store.
//!
//! Invariants:
//! - The key of a record is "user" and 20 digits, which are a mix of the record's number. Records
//!   with close numbers are therefore far apart in the table. The value of a record is the
//!   concatenation of its fields.
//! - Each operation is a transaction of its own. Reads and scans are snapshots.
//! - The choice of hot records follows the standard's scrambled zipfian distribution, or prefers
//!   the newest records.

mod client;
mod keys;
mod loading;
mod mix;
mod report;
mod run;
mod zipfian;

#[cfg(test)]
mod tests;

pub use client::YcsbOptions;
pub use keys::YCSB_TABLES;
pub use mix::YcsbWorkload;
pub use report::{YcsbKind, YcsbReport};
pub use run::run_ycsb;
