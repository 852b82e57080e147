//! The places where workers count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Metrics;
use super::histogram::Recording;

/// A worker's own counters; on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Cell {
    commits: AtomicU64,
    conflicts: AtomicU64,
    rollbacks: AtomicU64,
    commit_latency: Recording,
    turns: Recording,
    operations: AtomicU64,
}

impl Cell {
    pub(crate) fn count_commit(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_durable(&self, latency: Duration) {
        self.commit_latency.record(latency);
    }

    pub(crate) fn count_turn(&self, length: Duration) {
        self.turns.record(length);
    }

    /// Counts operations on trees; only the worker whose cell this is does.
    pub(crate) fn count_operations(&self, begun: u32) {
        let before = self.operations.load(Ordering::Relaxed);
        self.operations.store(before + u64::from(begun), Ordering::Relaxed);
    }

    pub(crate) fn count_rollback(&self) {
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a store counts that nobody else does.
#[derive(Debug)]
pub(crate) struct Counters {
    cells: Box<[Cell]>,
    /// How long checkpoints took, and how long they kept commits waiting.
    pub(crate) checkpoints: Recording,
    pub(crate) stalls: Recording,
}

impl Counters {
    /// For so many workers, and the threads that are none.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            cells: (0..=workers).map(|_| Cell::default()).collect(),
            checkpoints: Recording::default(),
            stalls: Recording::default(),
        }
    }

    /// A worker's counters; the last ones are everybody else's.
    pub(crate) fn of(&self, slot: usize) -> &Cell {
        &self.cells[slot.min(self.cells.len() - 1)]
    }

    pub(super) fn add_to(&self, metrics: &mut Metrics) {
        for cell in &self.cells {
            metrics.commits += cell.commits.load(Ordering::Relaxed);
            metrics.conflicts += cell.conflicts.load(Ordering::Relaxed);
            metrics.rollbacks += cell.rollbacks.load(Ordering::Relaxed);
            cell.commit_latency.add_to(&mut metrics.commit_latency_us);
            metrics.operations += cell.operations.load(Ordering::Relaxed);
            cell.turns.add_to(&mut metrics.worker_turn_us);
        }
        self.checkpoints.add_to(&mut metrics.checkpoint_us);
        self.stalls.add_to(&mut metrics.checkpoint_stall_us);
    }
}
