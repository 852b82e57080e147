//! An ordered transactional key-value store, as the workloads see it, and other systems under
//! clients.
//!
//! Invariants:
//! - A workload names tables by their position in a list of names ([`TableId`]). The store was
//!   opened with that list.
//! - Each client has its own [`KvSession`], which stays on one thread. A session has at most one
//!   transaction at a time.
//! - Methods are async so that a store with tasks can wait in them. A store that blocks returns
//!   futures that are ready at once; [`start_threads`] gives each of its clients a thread, and
//!   [`block_on`] runs the future there.
//! - An operation neither boxes a future nor calls through `dyn`.

mod clients;

mod session;
mod system;
mod transaction;

pub use clients::{Clients, block_on, start_threads};
pub use session::{Kv, KvLoader, KvSession};
pub use system::{KvStatistics, System};
pub(crate) use transaction::durability_name;
pub use transaction::{Begin, Direction, Durability, KeyRange, TableId};
