//! The horizon of a store, and its tables with a time to live: see docs/design/ttl.md.
//!
//! Invariants: the horizon never goes backwards. It is durable before it is here, so that a record
//! that a reader has seen as expired is expired after a crash too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{SystemTime, UNIX_EPOCH};

use qpair_memory::locks::Mutex;

use crate::pool::Tree;
use crate::sync::AsyncMutex;

/// The clock by which records expire.
#[derive(Clone, Debug, Default)]
pub enum WallClock {
    /// The clock of the system.
    #[default]
    System,
    /// Milliseconds since 1970, which a simulation sets.
    Simulated(Arc<AtomicU64>),
}

impl WallClock {
    fn now_ms(&self) -> u64 {
        match self {
            Self::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as u64),
            Self::Simulated(now_ms) => now_ms.load(Ordering::Relaxed),
        }
    }
}

/// A table with a time to live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition {
    pub(crate) ttl_ms: u64,
    /// Whether the table is being made, so that a missing tree does not mean that it was dropped.
    pub(crate) making: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Expiry {
    pub(crate) clock: WallClock,
    horizon_ms: AtomicU64,
    /// The tree with the horizon, the definitions and the entries.
    index: OnceLock<Tree>,
    /// The definitions, by tree id.
    tables: Mutex<BTreeMap<u32, Definition>>,
    /// The trees of tables that are being loaded sorted. Their entries are there before their
    /// records, and stay.
    loading: Mutex<Vec<u32>>,
    /// Held by a task that advances the horizon and removes expired records.
    pub(crate) alone: Arc<AsyncMutex>,
    /// Whether a task removes expired records from time to time. In a simulation only explicit
    /// calls do.
    pub(crate) removes: bool,
    /// Whether that task was started.
    pub(crate) has_begun: AtomicBool,
    ended: AtomicBool,
    /// Wakes the task at a close.
    waker: Mutex<Option<Waker>>,
    /// The number of records removed since the store was opened.
    pub(crate) removed: AtomicU64,
    /// Due entries that the last removal left, since transactions had the rows locked.
    pub(crate) left: AtomicU64,
    /// The time of the oldest due entry when it was last looked for; 0 if there was none.
    pub(crate) oldest_due_ms: AtomicU64,
}

impl Expiry {
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Returns the time up to which records have expired.
    #[inline]
    pub(crate) fn horizon_ms(&self) -> u64 {
        // Acquire: pairs with `raise`, after which the horizon is durable.
        self.horizon_ms.load(Ordering::Acquire)
    }

    /// Raises the horizon, which is durable, or cannot be in a store that is only read.
    pub(crate) fn raise(&self, to_ms: u64) {
        self.horizon_ms.fetch_max(to_ms, Ordering::AcqRel);
    }

    pub(crate) fn index(&self) -> Option<Tree> {
        self.index.get().copied()
    }

    pub(crate) fn set_index(&self, index: Tree) {
        // A second caller has the same tree.
        let _ = self.index.set(index);
    }

    pub(crate) fn ttl_ms(&self, tree: u32) -> Option<u64> {
        self.tables.lock().get(&tree).map(|definition| definition.ttl_ms)
    }

    pub(crate) fn define(&self, tree: u32, definition: Definition) {
        self.tables.lock().insert(tree, definition);
    }

    pub(crate) fn forget(&self, tree: u32) {
        self.tables.lock().remove(&tree);
    }

    pub(crate) fn tables(&self) -> Vec<(u32, Definition)> {
        self.tables.lock().iter().map(|(tree, definition)| (*tree, *definition)).collect()
    }

    pub(crate) fn is_loading(&self, tree: u32) -> bool {
        self.loading.lock().contains(&tree)
    }

    /// Notes that a table is being loaded sorted, or that a load has ended.
    pub(crate) fn note_loading(&self, tree: u32, begun: bool) {
        let mut loading = self.loading.lock();
        match (begun, loading.iter().position(|other| *other == tree)) {
            (true, _) => loading.push(tree),
            (false, Some(at)) => drop(loading.swap_remove(at)),
            (false, None) => {}
        }
    }

    /// Wakes the task that removes expired records, to end.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }

    /// Whether the store is being closed. If not, the waker is woken then.
    pub(crate) fn has_ended(&self, waker: &Waker) -> bool {
        *self.waker.lock() = Some(waker.clone());
        self.ended.load(Ordering::Acquire)
    }

    /// Returns how long ago the oldest due entry was due, in milliseconds; 0 if there was none.
    pub(crate) fn oldest_due_age_ms(&self) -> u64 {
        match self.oldest_due_ms.load(Ordering::Relaxed) {
            0 => 0,
            due_ms => self.now_ms().saturating_sub(due_ms),
        }
    }
}
