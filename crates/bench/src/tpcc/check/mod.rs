//! The twelve consistency conditions (TPC-C 3.3.2), checked in one snapshot and within bounded
//! memory.
//!
//! Invariants:
//! - Everything is read in one read-only transaction, by scans that keep only sums.
//! - Sums of customers are kept for `WAREHOUSES_AT_ONCE` warehouses at a time. History is not
//!   ordered by warehouse, so it is scanned several times for a larger database.
//! - Orders of a district are checked `ORDERS_AT_ONCE` at a time, together with their lines and new
//!   orders.

mod checker;
mod conditions;
mod district;
mod run;

pub use conditions::{CheckReport, Condition};
pub use run::check;
