//! How a store is opened for a benchmark, and what it then runs on.

use std::path::PathBuf;

use qpair::{Isolation, Mode, Options, Result, Store};
use qpair_drivers::Drivers;
use serde::Serialize;

use crate::warm::Warmed;

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreKvOptions {
    /// Where it is; it is made if it is not there.
    pub store: PathBuf,
    /// Drivers of a store on devices that bypass the kernel.
    pub drivers: Drivers,
    /// Memory for pages, bytes.
    pub memory_bytes: u64,
    /// Take all of it when opening.
    pub prefault: bool,
    /// Interface, and its mode.
    pub io: Mode,
    /// Workers; 0: as many as there are cores.
    pub workers: usize,
    /// Page size of a new store, bytes.
    pub page_size: usize,
    /// Go through the page cache.
    pub buffered: bool,
    /// Write a log. Without one a crash leaves the store as it was at its last checkpoint.
    pub log: bool,
    /// Count where the workers' time goes.
    pub cycles: bool,
    /// Find the parents of pages that leave by what their frames say, and not from the root.
    pub parent_hints: bool,
    /// The device of its own that the log is on, if it is to be.
    pub log_device: Option<PathBuf>,
    /// What transactions that write see of each other.
    pub isolation: Isolation,
}

impl Default for StoreKvOptions {
    fn default() -> Self {
        Self {
            store: "bench.qpair".into(),
            drivers: Drivers::new(),
            memory_bytes: 256 << 20,
            prefault: false,
            io: Mode::default(),
            workers: 0,
            page_size: 4096,
            buffered: false,
            log: true,
            cycles: false,
            parent_hints: true,
            log_device: None,
            isolation: Isolation::default(),
        }
    }
}

impl StoreKvOptions {
    pub(super) fn open(&self) -> Result<Store> {
        let mut options = Options::new(&self.store)
            .memory_bytes(self.memory_bytes)
            .prefault(self.prefault)
            .workers(self.workers)
            .io(self.io)
            .drivers(&self.drivers)
            .page_size(self.page_size)
            .buffered(self.buffered)
            .log(self.log)
            .cycles(self.cycles)
            .parent_hints(self.parent_hints)
            .publish_beside(true);
        if let Some(log_device) = &self.log_device {
            options = options.log_device(log_device);
        }
        options.open()
    }
}

/// What a store runs on.
#[derive(Clone, Debug, Serialize)]
pub struct StoreKvReport {
    /// Interface really in use.
    pub io: String,
    /// Its details.
    pub io_mode: String,
    /// Workers.
    pub workers: usize,
    /// Tasks of each worker.
    pub tasks: usize,
    /// Memory for pages, bytes.
    pub memory_bytes: u64,
    /// Whether it writes a log.
    pub log: bool,
    /// The device of its own that the log is on, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_device: Option<String>,
    /// Whether transactions that write are serializable; a snapshot each otherwise.
    pub serializable: bool,
    /// What was read into memory before the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmed: Option<Warmed>,
}
