//! The plan of a run, determined by its seed alone.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use qpair_block::{BlockDevice, DelayDevice, DelayOptions, RamDevice, RamOptions};
use qpair_engine::{Canary, Durability, StoreOptions};
use qpair_kernel::{FileOptions, Interface};

use super::Options;
use crate::lists::{Habits, Layout, Level};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Ram,
    /// Memory whose requests are delayed.
    Delay,
    File,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) habits: Habits,
    /// Whether the processes are tasks on the workers. Otherwise they are threads.
    pub(super) tasks: bool,
    pub(super) processes: u32,
    pub(super) transactions: usize,
    pub(super) page_size: usize,
    pub(super) frames: u64,
    pub(super) workers: usize,
    pub(super) checkpoint_bytes: u64,
    pub(super) versions_bytes_max: Option<u64>,
    pub(super) history_bytes_max: u64,
    pub(super) on: On,
    /// Whether checkpoints, compactions, tables and backups run beside the transactions.
    pub(super) has_chores: bool,
    /// Whether the store is reopened at the end, and everything is read once more.
    pub(super) reopens: bool,
    pub(super) canary: Option<Canary>,
}

fn one_of<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(0..of.len())]
}

impl Plan {
    pub(super) fn new(seed: u64, options: &Options) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let level = one_of(rng, &[Level::Snapshot, Level::Serializable, Level::Mixed]);
        let layout = one_of(rng, &[Layout::Row, Layout::Rows, Layout::Rows, Layout::TwoTables]);
        let (tasks, workers) = (rng.bool(), rng.usize(1..=3));
        let small = rng.bool();
        let least = (32 * workers as u64).max(64);
        Self {
            seed,
            habits: Habits {
                layout,
                level,
                durability: one_of(rng, &[None, Some(Durability::Async), Some(Durability::Sync)]),
                has_heads: level != Level::Serializable || rng.bool(),
                is_durable: true,
                padding_max: one_of(rng, &[0, 40, 100]),
            },
            tasks,
            processes: if tasks { rng.u32(4..32) } else { rng.u32(2..8) },
            transactions: options.transactions,
            page_size: one_of(rng, &[512, 1024, 4096, 8192]),
            frames: if small { least + rng.u64(0..64) } else { 4096 },
            workers,
            checkpoint_bytes: one_of(rng, &[64 << 10, 1 << 20, 256 << 20]),
            versions_bytes_max: (rng.u8(0..4) == 0).then(|| rng.u64(20_000..200_000)),
            history_bytes_max: one_of(rng, &[0, 1 << 20, 1 << 30]),
            on: one_of(rng, &[On::Ram, On::Ram, On::Delay, On::File]),
            has_chores: rng.bool(),
            reopens: rng.u8(0..4) == 0,
            canary: options.canary,
        }
    }

    pub(super) fn store_options(&self) -> StoreOptions {
        let defaults = StoreOptions::default();
        StoreOptions {
            memory_bytes: self.frames * self.page_size as u64,
            workers: self.workers,
            page_size: self.page_size,
            stripe_unit_bytes: defaults.stripe_unit_bytes.max(self.page_size as u64),
            checkpoint_bytes: self.checkpoint_bytes,
            versions_bytes_max: self.versions_bytes_max.unwrap_or(defaults.versions_bytes_max),
            history_bytes_max: self.history_bytes_max,
            durability: self.habits.durability.unwrap_or(Durability::Sync),
            canary: self.canary,
            ..defaults
        }
    }

    pub(super) fn device(&self, folder: &Path) -> Result<Arc<dyn BlockDevice>, String> {
        let said = |error: qpair_block::Error| format!("making a device: {error}");
        let ram = || RamDevice::new(RamOptions { size_bytes: 8 << 20, ..RamOptions::default() });
        Ok(match self.on {
            On::Ram => Arc::new(ram().map_err(said)?),
            On::Delay => {
                let delay = DelayOptions { read_us: 20, write_us: 20, flush_us: 50 };
                Arc::new(DelayDevice::new(Arc::new(ram().map_err(said)?), delay).map_err(said)?)
            }
            On::File => file(&folder.join(format!("store-{}", self.seed)), true)?,
        })
    }
}

/// Opens a file as a device through the page cache, so that it works on every file system.
pub(super) fn file(path: &Path, create: bool) -> Result<Arc<dyn BlockDevice>, String> {
    let options =
        FileOptions { create: create.then_some(8 << 20), direct: false, ..FileOptions::new(path) };
    let device = qpair_kernel::open(&options, Interface::Auto)
        .map_err(|error| format!("opening {}: {error}", path.display()))?;
    Ok(Arc::new(device))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { habits, on, page_size, frames, workers, .. } = self;
        let who = if self.tasks { "tasks" } else { "threads" };
        write!(
            f,
            "{:?}, {:?}, {} {who}, {workers} workers, {frames} pages of {page_size} bytes on {on:?}, durability {:?}",
            habits.layout, habits.level, self.processes, habits.durability
        )?;
        f.write_str(if habits.has_heads { "" } else { ", without heads" })?;
        f.write_str(if self.has_chores { ", with chores" } else { "" })
    }
}
