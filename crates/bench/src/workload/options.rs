//! Options of a run.

use std::path::PathBuf;

use qpair::{EncryptionKey, Mode, Result};
use qpair_drivers::Drivers;
use serde::Serialize;

use super::kind::Workload;
use crate::kv::{Durability, durability_name};
use crate::records::TABLES;
use crate::store_kv::{StoreKv, StoreKvOptions};

#[derive(Clone, Debug, Serialize)]
pub struct RunOptions {
    /// The path of the store; a store that does not exist is created and filled.
    pub store: PathBuf,
    /// The drivers of a store on devices that bypass the kernel.
    #[serde(skip)]
    pub drivers: Drivers,
    pub records: u64,
    /// Memory for pages in bytes.
    pub memory_bytes: u64,
    /// Whether opening the store allocates all of this memory.
    pub prefault: bool,
    /// The interface and its mode.
    #[serde(serialize_with = "as_text")]
    pub io: Mode,
    /// The number of workers; 0: one for each core.
    pub workers: usize,
    /// The number of tasks of each worker.
    pub tasks: usize,
    /// Whether the warm-up chooses how many of these tasks run.
    pub choose_tasks: bool,
    /// Seconds to measure.
    pub seconds: f64,
    /// Whether as much of the store as fits is read into memory before the run, even if not all of
    /// it fits.
    pub warm: bool,
    /// Seconds to run before the measurement, so that memory is as full as it will get.
    pub warm_up_seconds: f64,
    /// The page size of a new store in bytes.
    pub page_size: usize,
    /// Whether I/O goes through the page cache.
    pub buffered: bool,
    /// The mean number of lookups or updates that arrive a second, at random times; `None`: each
    /// task runs one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Seconds for each of 8 combinations to measure the device alone afterwards; 0: it is not
    /// measured.
    pub ceiling_seconds: f64,
    /// The maximum number of requests that a worker has in flight.
    pub depth: u32,
    /// The maximum number of page reads among these requests; 0: the number is adapted to the
    /// throughput.
    pub reads: u32,
    /// The number of completions that a busy worker tries to take at once.
    pub batch: u32,
    /// The longest wait for this batch in microseconds.
    pub linger_us: u32,
    /// Whether the workers' time is broken down.
    pub cycles: bool,
    /// Whether eviction finds the parent of a page by a hint in its frame, and not by a search from
    /// the root.
    pub parent_hints: bool,
    /// A separate device for the store's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_device: Option<PathBuf>,
    /// The key of an encrypted store; a new store is encrypted with it.
    #[serde(
        rename = "encrypted",
        serialize_with = "as_true",
        skip_serializing_if = "Option::is_none"
    )]
    pub encryption_key: Option<EncryptionKey>,
    /// The durability that the commit of an update or insert waits for. Each is a transaction of
    /// its own.
    #[serde(serialize_with = "as_name")]
    pub durability: Durability,
}

fn as_text<S: serde::Serializer>(
    value: &impl std::fmt::Display,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Keys are not shown: a report says only that there was one.
fn as_true<S: serde::Serializer>(
    _: &Option<EncryptionKey>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_bool(true)
}

fn as_name<S: serde::Serializer>(
    value: &Durability,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(durability_name(*value))
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            store: "bench.qpair".into(),
            drivers: Drivers::new(),
            records: 1_000_000,
            memory_bytes: 256 << 20,
            prefault: false,
            io: Mode::default(),
            workers: 0,
            tasks: 128,
            choose_tasks: false,
            seconds: 10.0,
            warm: false,
            warm_up_seconds: 2.0,
            page_size: 4096,
            buffered: false,
            rate_per_s: None,
            ceiling_seconds: 0.0,
            depth: 512,
            reads: 0,
            batch: 32,
            linger_us: 1000,
            cycles: false,
            parent_hints: true,
            log_device: None,
            encryption_key: None,
            durability: Durability::default(),
        }
    }
}

impl RunOptions {
    /// Opens the store, or creates it.
    pub(super) fn open(&self) -> Result<StoreKv> {
        let options = StoreKvOptions {
            store: self.store.clone(),
            drivers: self.drivers.clone(),
            memory_bytes: self.memory_bytes,
            prefault: self.prefault,
            io: self.io,
            workers: self.workers,
            page_size: self.page_size,
            buffered: self.buffered,
            cycles: self.cycles,
            parent_hints: self.parent_hints,
            log_device: self.log_device.clone(),
            encryption_key: self.encryption_key.clone(),
            ..StoreKvOptions::default()
        };
        let options = options
            .to_options()
            .depth(self.depth)
            .reads(self.reads)
            .batch(self.batch, self.linger_us)
            .durability(self.durability);
        StoreKv::open_as(options, &self.store, &TABLES, true)
    }

    pub(super) fn hash(&self, workload: Workload) -> String {
        let text = format!("{workload} {}", serde_json::to_string(self).unwrap_or_default());
        format!("{:08x}", crc_fast::crc32_iscsi(text.as_bytes()))
    }
}
