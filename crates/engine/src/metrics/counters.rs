//! The memory in which workers count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Metrics;
use super::cycles::{PARTS, Part, WorkerCycles};
use super::histogram::Recording;

/// A worker's own counters, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Cell {
    commits: AtomicU64,
    conflicts: AtomicU64,
    rollbacks: AtomicU64,
    commit_latency: Recording,
    turns: Recording,
    operations: AtomicU64,
    lookups: AtomicU64,
    reads: Recording,
    reads_max: AtomicU64,
    log_writes: Recording,
    ticks: [AtomicU64; PARTS],
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

    pub(crate) fn count_read(&self, latency: Duration) {
        self.reads.record(latency);
    }

    pub(crate) fn set_reads_max(&self, reads: u32) {
        self.reads_max.store(u64::from(reads), Ordering::Relaxed);
    }

    pub(crate) fn count_log_write(&self, latency: Duration) {
        self.log_writes.record(latency);
    }

    /// Counts operations on trees, and the lookups among them. Only the worker that owns the cell
    /// may call it.
    pub(crate) fn count_operations(&self, begun: u32, lookups: u32) {
        for (counter, more) in [(&self.operations, begun), (&self.lookups, lookups)] {
            let before = counter.load(Ordering::Relaxed);
            counter.store(before + u64::from(more), Ordering::Relaxed);
        }
    }

    /// Counts time. Only the worker that owns the cell may call it.
    #[inline(always)]
    pub(crate) fn count_ticks(&self, part: Part, ticks: u64) {
        let counter = &self.ticks[part as usize];
        counter.store(counter.load(Ordering::Relaxed) + ticks, Ordering::Relaxed);
    }

    pub(crate) fn count_rollback(&self) {
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Counters {
    cells: Box<[Cell]>,
    /// The durations of checkpoints, and the time for which they kept commits waiting.
    pub(crate) checkpoints: Recording,
    pub(crate) stalls: Recording,
}

impl Counters {
    /// Creates counters for `workers` workers, and for all other threads.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            cells: (0..=workers).map(|_| Cell::default()).collect(),
            checkpoints: Recording::default(),
            stalls: Recording::default(),
        }
    }

    /// Returns the counters of a worker. The last slot belongs to all other threads.
    pub(crate) fn of(&self, slot: usize) -> &Cell {
        &self.cells[slot.min(self.cells.len() - 1)]
    }

    pub(crate) fn cycles(&self) -> WorkerCycles {
        let mut all = WorkerCycles { workers: self.cells.len() - 1, ..WorkerCycles::default() };
        for cell in &self.cells {
            for (sum, ticks) in all.ticks.iter_mut().zip(&cell.ticks) {
                *sum += ticks.load(Ordering::Relaxed);
            }
        }
        all
    }

    pub(crate) fn add_to(&self, metrics: &mut Metrics) {
        for cell in &self.cells {
            metrics.commits += cell.commits.load(Ordering::Relaxed);
            metrics.conflicts += cell.conflicts.load(Ordering::Relaxed);
            metrics.rollbacks += cell.rollbacks.load(Ordering::Relaxed);
            cell.commit_latency.add_to(&mut metrics.commit_latency_us);
            metrics.operations += cell.operations.load(Ordering::Relaxed);
            metrics.lookups += cell.lookups.load(Ordering::Relaxed);
            cell.turns.add_to(&mut metrics.worker_turn_us);
            cell.reads.add_to(&mut metrics.device_read_us);
            metrics.reads_in_flight_max += cell.reads_max.load(Ordering::Relaxed);
            cell.log_writes.add_to(&mut metrics.log_write_us);
        }
        self.checkpoints.add_to(&mut metrics.checkpoint_us);
        self.stalls.add_to(&mut metrics.checkpoint_stall_us);
    }
}
