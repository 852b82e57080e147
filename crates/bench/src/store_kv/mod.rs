//! A qpair store behind the trait of the workloads.
//!
//! Always holds: clients are tasks that are assigned to the store's workers in turn. A session's
//! transaction belongs to such a task, and its waits yield the worker to other tasks. Nothing is
//! allocated for a row if the buffers are large enough.

mod loader;
mod options;
mod session;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair::{Error, ErrorKind, Isolation, Result, Store, Table};

use crate::kv::{Clients, Kv, KvResult, KvStatistics};
pub use loader::StoreLoader;
pub use options::{StoreKvOptions, StoreKvReport};
pub use session::StoreSession;

/// A qpair store with the tables of a workload.
#[derive(Clone, Debug)]
pub struct StoreKv {
    store: Store,
    tables: Arc<[Table]>,
    log: bool,
    isolation: Isolation,
    commits: Arc<[Commits]>,
}

/// Returns an error if the store has tables that a workload does not use: the user may have named
/// the wrong store.
pub(crate) fn check_tables(store: &Store, path: &Path, own: &[&str]) -> Result<()> {
    let there = store.table_names()?;
    let Some(other) = there.iter().find(|name| !own.contains(&name.as_str())) else {
        return Ok(());
    };
    Err(Error::with_hint(
        ErrorKind::Invalid,
        format!(
            "{} has a table \"{other}\", which does not belong to this benchmark ({})",
            path.display(),
            own.join(", ")
        ),
        "name a store that is not there, and it is made and loaded",
    ))
}

/// The number of commits of a worker's clients, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Commits(AtomicU64);

impl StoreKv {
    /// Opens a store with these tables, or creates it.
    ///
    /// # Errors
    /// As [`qpair::Options::open`] and [`Store::table`]; `Invalid` if the store has other tables,
    /// since it is then not a store of this benchmark.
    pub fn open(options: &StoreKvOptions, tables: &[&str]) -> Result<Self> {
        let store = options.open()?;
        check_tables(&store, &options.store, tables)?;
        Ok(Self { isolation: options.isolation, ..Self::new(store, tables, options.log)? })
    }

    /// Uses an open store. `log`: whether the store writes a log.
    ///
    /// # Errors
    /// As [`Store::table`].
    pub fn new(store: Store, tables: &[&str], log: bool) -> Result<Self> {
        let tables = tables.iter().map(|name| store.table(name)).collect::<Result<Arc<[_]>>>()?;
        let commits = (0..store.workers()).map(|_| Commits::default()).collect();
        Ok(Self { store, tables, log, isolation: Isolation::default(), commits })
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Reports the interface, workers and memory of the store.
    #[must_use]
    pub fn report(&self, tasks: usize) -> StoreKvReport {
        let (info, store) = (self.store.device_info(), self.store.report());
        StoreKvReport {
            io: info.interface,
            io_mode: info.mode,
            workers: self.store.workers(),
            tasks,
            memory_bytes: store.memory_bytes,
            log: self.log,
            log_device: store.log_device.map(|log| log.name),
            serializable: self.isolation == Isolation::Serializable,
            warmed: None,
        }
    }

    fn session(&self, number: usize) -> StoreSession {
        let worker = number % self.commits.len();
        let report = self.store.report();
        let used_bytes = (report.pages - report.free_pages) * report.page_size as u64;
        let fetches = used_bytes > report.memory_bytes;
        let (task, tables) = (self.store.task(), self.tables.clone());
        StoreSession::new(task, tables, self.commits.clone(), worker, fetches, self.isolation)
    }

    /// Closes the store.
    ///
    /// # Errors
    /// As [`Store::close`].
    pub fn close(self) -> Result<()> {
        self.store.close()
    }
}

impl Kv for StoreKv {
    type Session = StoreSession;

    fn describe(&self) -> String {
        let info = self.store.device_info();
        let log = if self.log { "" } else { ", without a log" };
        format!("qpair over {} ({}){log}", info.interface, info.mode)
    }

    fn start<F, Fut, T>(&self, clients: usize, client: F) -> KvResult<Clients<T>>
    where
        F: Fn(usize, StoreSession) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = KvResult<T>> + 'static,
        T: Send + 'static,
    {
        let client = Arc::new(client);
        let workers = self.store.workers();
        let joins = (0..clients)
            .map(|number| -> Box<dyn FnOnce() -> KvResult<T> + Send> {
                let (client, kv) = (client.clone(), self.clone());
                let handle = self
                    .store
                    .spawn_on(number % workers, move || client(number, kv.session(number)));
                Box::new(move || handle.join()?)
            })
            .collect();
        Ok(Clients::new(joins))
    }

    fn statistics(&self) -> KvResult<KvStatistics> {
        let (statistics, report) = (self.store.statistics()?, self.store.report());
        let reads = self.store.metrics()?.device_read_us;
        Ok(KvStatistics {
            device_reads: Some(statistics.device.reads),
            device_writes: Some(statistics.device.writes),
            device_bytes: Some(statistics.device.read_bytes + statistics.device.written_bytes),
            device_reads_timed: Some((reads.count(), reads.sum_us())),
            // Each write of the log is made durable by itself.
            log_flushes: self.log.then_some(statistics.log_writes),
            log_commits: self.log.then(|| {
                self.commits.iter().map(|commits| commits.0.load(Ordering::Relaxed)).sum()
            }),
            log_bytes: self.log.then_some(statistics.log_bytes),
            cycles: statistics.cycles,
            store_bytes: Some((report.pages - report.free_pages) * report.page_size as u64),
        })
    }
}
