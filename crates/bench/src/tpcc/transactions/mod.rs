//! The five transactions, as one terminal runs them.
//!
//! Invariants:
//! - Inputs are drawn once. An attempt that ends with a conflict is rolled back and tried again
//!   with the same inputs.
//! - Rows are read into buffers of the terminal and changed there; keys are made on the stack.
//! - A transaction locks hot rows before its first read. Its snapshot is then as new as the locks,
//!   and only rarely shared rows can conflict.
//! - If the store can fetch, rows that may have to be read from the device are fetched together,
//!   before a hot row is locked. So no transaction waits for a lock whose holder waits for the
//!   device.

mod client;
mod delivery;
mod new_order;
mod order_status;
mod payment;
mod stock_level;
mod terminal;

pub(crate) use terminal::{Common, Terminal};
