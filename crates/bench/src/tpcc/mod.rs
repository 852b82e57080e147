//! TPC-C over any transactional key-value store: all nine tables, all five transactions in the
//! standard's mix, and the twelve consistency conditions. There is no think time and there are no
//! terminals; results are not audited. docs/design/benchmarks.md lists what follows the standard
//! and what does not.
//!
//! Always holds:
//! - Keys are their columns big-endian, in the order of the primary key (`keys.rs`). Rows are fixed
//!   columns at fixed offsets (`rows.rs`); they are changed in place, in the bytes that were read.
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
mod transactions;

#[cfg(test)]
mod tests;

pub use check::{CheckReport, Condition, check};
pub use report::{TpccLatency, TpccReport, TpccType};
pub use run::{TpccOptions, loaded_scale, run_tpcc};
pub use scale::Scale;

use crate::kv::TableId;

/// Names of the tables, in the order of their [`TableId`]s. The store must be opened with them.
pub const TPCC_TABLES: [&str; 12] = [
    "warehouse",
    "district",
    "customer",
    "history",
    "new_order",
    "orders",
    "order_line",
    "item",
    "stock",
    "customer_by_name",
    "orders_by_customer",
    "tpcc",
];

pub(crate) const WAREHOUSE: TableId = TableId(0);
pub(crate) const DISTRICT: TableId = TableId(1);
pub(crate) const CUSTOMER: TableId = TableId(2);
pub(crate) const HISTORY: TableId = TableId(3);
pub(crate) const NEW_ORDER: TableId = TableId(4);
pub(crate) const ORDERS: TableId = TableId(5);
pub(crate) const ORDER_LINE: TableId = TableId(6);
pub(crate) const ITEM: TableId = TableId(7);
pub(crate) const STOCK: TableId = TableId(8);
pub(crate) const CUSTOMER_BY_NAME: TableId = TableId(9);
pub(crate) const ORDERS_BY_CUSTOMER: TableId = TableId(10);
/// The table of the one record that describes the load.
pub(crate) const META: TableId = TableId(11);
