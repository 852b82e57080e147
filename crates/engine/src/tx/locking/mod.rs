//! Waiting for the locks of rows: the open transactions, and the waits between them.

mod enclosing;
mod locks;
mod names;
mod registry;

pub(crate) use enclosing::{Awaited, Inside};
pub(super) use locks::lock;
pub(super) use names::Names;
pub(super) use registry::{Info, Registry, describe, slot_of};
pub use registry::{TransactionInfo, TransactionState};
