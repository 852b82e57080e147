//! A qpair store behind the trait of the workloads.
//!
//! Invariants: clients are tasks that are assigned to the store's workers in turn. A session's
//! transaction belongs to such a task, and its waits yield the worker to other tasks. Nothing is
//! allocated for a row if the buffers are large enough.

mod loader;
mod options;
mod session;
mod store;
mod warm;

pub use options::{StoreKvOptions, StoreKvReport};
pub use session::StoreSession;
pub use store::StoreKv;
pub use warm::{Warmed, warm};
