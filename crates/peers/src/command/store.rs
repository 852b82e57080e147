//! The peer, the path of its store and how it is opened: arguments of every workload.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use qpair::unstable::block::parse_bytes;
use qpair::{Error, ErrorKind, Result};
use qpair_bench::kv::{Durability, Kv};
use qpair_peers::Peer;
use qpair_peers::engine::{Engine, Settings};
use qpair_peers::lmdb::Lmdb;
use qpair_peers::memory_limit::MemoryLimit;
use qpair_peers::rocksdb::Rocks;
use qpair_peers::wiredtiger::WiredTiger;
use serde::Serialize;

/// The memory in bytes that a process needs in addition to its store.
const PROCESS_BYTES: u64 = 32 << 20;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Choice {
    Rocksdb,
    Wiredtiger,
    Lmdb,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Promise {
    /// Commits survive power loss when they return
    Sync,
    /// Commits are in the log when they return; no commit waits for a flush
    Async,
    /// There is no log
    None,
}

/// The store and how to open it.
#[derive(Args, Debug)]
pub(crate) struct StoreArgs {
    /// The peer
    #[arg(long)]
    engine: Choice,

    /// The store's folder; made and filled if it is not there
    #[arg(long, value_name = "PATH")]
    store: PathBuf,

    /// Memory for all that is kept of the store
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    memory: u64,

    /// Durability of commits
    #[arg(long, default_value = "sync")]
    durability: Promise,

    /// Clients, each a thread
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) threads: usize,

    /// Threads of the peer itself that compact and evict [default: as many as cores]
    #[arg(long, value_name = "N")]
    background: Option<u32>,

    /// Blocks of RocksDB, leaves of WiredTiger; the pages of LMDB are the kernel's
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_size)]
    page_size: u64,

    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub(crate) seconds: f64,

    /// Seconds to run before that
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    pub(crate) warm_up: f64,

    /// Print one JSON object; there is no other form, and it is here so that the words are those of
    /// qpair bench
    #[arg(long)]
    json: bool,
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

/// A workload that runs over any store.
pub(crate) trait Job {
    type Report: Serialize;

    fn run<K: Kv>(&self, kv: &K) -> Result<Self::Report>;
}

impl StoreArgs {
    /// Returns the durability that the workload's commits wait for.
    pub(crate) fn durability(&self) -> Durability {
        match self.durability {
            Promise::Sync => Durability::Sync,
            Promise::Async | Promise::None => Durability::Async,
        }
    }

    /// Opens the store, runs the job on it and closes it. Returns the report as JSON.
    pub(crate) fn run<J: Job>(&self, tables: &[&str], job: &J) -> Result<String> {
        match self.engine {
            Choice::Rocksdb => self.over::<Rocks, J>(tables, job, ""),
            Choice::Wiredtiger => self.over::<WiredTiger, J>(tables, job, ""),
            Choice::Lmdb => {
                // It has no bound of its own. What cannot be bounded is measured all the same, and
                // said.
                let limit = MemoryLimit::set(self.memory + PROCESS_BYTES);
                let note = match &limit {
                    Ok(limit) => format!("memory: {}", limit.described()),
                    Err(error) => format!("memory NOT limited: {error}"),
                };
                self.over::<Lmdb, J>(tables, job, &note)
            }
        }
    }

    fn over<E: Engine, J: Job>(&self, tables: &[&str], job: &J, note: &str) -> Result<String> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let settings = Settings {
            path: self.store.clone(),
            tables: tables.iter().map(|&name| name.to_owned()).collect(),
            memory_bytes: self.memory,
            page_bytes: self.page_size,
            log: !matches!(self.durability, Promise::None),
            background_threads: self.background.unwrap_or(cores as u32),
        };
        let failed = |error: qpair_peers::Error| Error::new(ErrorKind::Io, error.to_string());
        let kv = Peer::new(E::open(&settings).map_err(failed)?).with_note(note);
        let report = job.run(&kv)?;
        drop(kv);
        serde_json::to_string_pretty(&report)
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("writing JSON: {error}")))
    }
}
