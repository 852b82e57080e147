//! Options of a store for a benchmark, and a report of those in effect.

use std::path::PathBuf;

use qpair::{EncryptionKey, Isolation, Mode, Options};
use qpair_drivers::Drivers;
use serde::Serialize;

use super::warm::Warmed;

#[derive(Clone, Debug)]
pub struct StoreKvOptions {
    /// The path of the store; a store that does not exist is created.
    pub store: PathBuf,
    /// The drivers of a store on devices that bypass the kernel.
    pub drivers: Drivers,
    /// Memory for pages in bytes.
    pub memory_bytes: u64,
    /// Whether opening the store allocates all of this memory.
    pub prefault: bool,
    /// The interface and its mode.
    pub io: Mode,
    /// The number of workers; 0: one for each core.
    pub workers: usize,
    /// The page size of a new store in bytes.
    pub page_size: usize,
    /// Whether I/O goes through the page cache.
    pub buffered: bool,
    /// Whether the store writes a log. Without a log, a crash returns the store to its last
    /// checkpoint.
    pub log: bool,
    /// Whether the workers' time is broken down.
    pub cycles: bool,
    /// Whether eviction finds the parent of a page by a hint in its frame, and not by a search from
    /// the root.
    pub parent_hints: bool,
    /// A separate device for the log.
    pub log_device: Option<PathBuf>,
    /// The key of an encrypted store.
    pub encryption_key: Option<EncryptionKey>,
    /// The isolation of transactions that write.
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
            encryption_key: None,
            isolation: Isolation::default(),
        }
    }
}

impl StoreKvOptions {
    pub(crate) fn to_options(&self) -> Options {
        let options = Options::new(&self.store)
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
        let options = match &self.encryption_key {
            Some(key) => options.encryption_key(key),
            None => options,
        };
        match &self.log_device {
            Some(log_device) => options.log_device(log_device),
            None => options,
        }
    }
}

/// The interface, workers and memory that a store uses.
#[derive(Clone, Debug, Serialize)]
pub struct StoreKvReport {
    /// The interface that is used.
    pub io: String,
    /// The mode of the interface.
    pub io_mode: String,
    pub workers: usize,
    /// The number of tasks of each worker.
    pub tasks: usize,
    /// The maximum number of tasks of each worker, if the warm-up chose how many run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_chosen_of: Option<usize>,
    /// Memory for pages in bytes.
    pub memory_bytes: u64,
    /// Whether the store writes a log.
    pub log: bool,
    /// The separate device of the log, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_device: Option<String>,
    /// Whether transactions that write are serializable; otherwise they have snapshot isolation.
    pub serializable: bool,
    /// The pages that were read into memory before the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warmed: Option<Warmed>,
}
