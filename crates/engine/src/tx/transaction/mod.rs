//! A transaction until its commit: snapshots and reads, and the writes that it keeps to itself.

mod buffers;
mod key_bounds;
mod key_list;
mod large;
mod long_keys;
mod options;
mod own_writes;
mod prefetch_set;
mod range;
mod reading;
mod recent_commits;
mod serializable;
mod snapshot;
mod spilled;
mod state;
mod view;
mod write_set;
mod writing;

pub(super) use buffers::Spare;
pub(crate) use key_bounds::bounds;
pub use key_bounds::{KeyBounds, Prefix};
pub(super) use large::{LargeValue, UncommittedLarge};
pub use options::{Isolation, TransactionOptions};
pub(crate) use prefetch_set::PrefetchSet;
pub(crate) use range::{RangeCursor, next_inline, next_into};
pub(super) use recent_commits::RecentCommits;
pub(crate) use snapshot::SnapshotCore;
pub(super) use spilled::Spilled;
pub use state::Savepoint;
pub(super) use state::written;
pub(crate) use state::{Contended, TxState};
pub(crate) use view::View;
pub(super) use write_set::{Item, RECORD_HEAD_BYTES, Write, WriteSet};
