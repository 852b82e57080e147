//! The tables.

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
