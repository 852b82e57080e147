//! TPC-C over any transactional key-value store: all nine tables, all five transactions in the
//! standard's mix, and the twelve consistency conditions. There is no think time and there are no
//! terminals; results are not audited. docs/design/benchmarks.md lists what follows the standard
//! and what does not.
//!
//! Invariants:
//! - Keys are their columns in big-endian order, in the order of the primary key (`keys.rs`). Rows
//!   are columns of fixed width at fixed offsets (`rows.rs`); they are changed in place, in the
//!   bytes that were read.
//! - The loaded data depends only on the seed and the scale (`load/`).
//! - A transaction locks the rows that many transactions want before its first read, and always in
//!   the same order.

mod check;
mod inputs;
mod keys;
mod load;
mod random;
mod report;
mod rows;
mod run;
mod scale;
mod scan;
mod schema;
mod transactions;

#[cfg(test)]
mod tests;

pub use check::{CheckReport, Condition, check};
pub use report::{TpccLatency, TpccReport, TpccType};
pub use run::{TpccOptions, loaded_scale, run_tpcc};
pub use scale::Scale;
pub use schema::TPCC_TABLES;
