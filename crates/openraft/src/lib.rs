//! The log and the state machine of [openraft](https://docs.rs/openraft)'s groups in a qpair
//! store.
//!
//! A [`Group`] is what one member of one Raft group keeps: its log, its vote, its state and its
//! last snapshot, as tables of a store. A store holds any number of groups, and one flush of its
//! log serves all of them. `v0_9` and `v0_10` implement the storage traits of the two versions of
//! openraft for it.
//!
//! ```
//! use qpair_openraft::{Application, Group, State};
//!
//! /// Counts the entries that it was given.
//! struct Counter;
//!
//! impl<E: Sync> Application<E, u64> for Counter {
//!     fn apply(&self, state: &mut State<'_>, _entry: &E) -> qpair::Result<u64> {
//!         let count = state.get(b"count")?.map_or(0, |value| value[0]) + 1;
//!         state.put(b"count", &[count])?;
//!         Ok(count.into())
//!     }
//! }
//!
//! # fn main() -> qpair::Result<()> {
//! # let name = format!("qpair-openraft-doc-{}.qpair", std::process::id());
//! # let path = std::env::temp_dir().join(name);
//! # std::fs::remove_file(&path).ok();
//! let store = qpair::Options::new(&path).memory_bytes(64 << 20).buffered(true).open()?;
//! let group = Group::open(&store, "counters")?;
//! # drop(group);
//! # store.close()?;
//! # std::fs::remove_file(&path).ok();
//! # Ok(())
//! # }
//! ```
//!
//! docs/design/openraft.md says what is durable when.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![cfg_attr(
    not(any(feature = "v0_9", feature = "v0_10")),
    allow(dead_code, reason = "only the formats are of use without a version of openraft")
)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod chunks;
mod codec;
mod fault;
mod group;
mod install;
mod log;
mod snapshot;
mod state;
#[cfg(any(feature = "v0_9", feature = "v0_10"))]
mod storage;
mod stored;
#[cfg(feature = "v0_10")]
pub mod v0_10;
#[cfg(feature = "v0_9")]
pub mod v0_9;

#[doc(hidden)]
pub use codec::{try_positions, write_position};
#[doc(hidden)]
pub use fault::Fault;
pub use group::Group;
pub use snapshot::{Records, check as check_snapshot};
pub use state::{Application, Reader, State};
pub use stored::StoredSnapshot;
