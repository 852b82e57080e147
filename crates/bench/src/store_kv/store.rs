//! The store, its tables, and its clients.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair::{Error, ErrorKind, Isolation, Options, Result, Store, Table};

use super::options::{StoreKvOptions, StoreKvReport};
use super::session::{Commits, StoreSession};
use crate::kv::{Clients, Kv, KvStatistics, System};

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
fn check_tables(store: &Store, path: &Path, own: &[&str]) -> Result<()> {
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

impl StoreKv {
    /// Opens a store with these tables, or creates it.
    ///
    /// # Errors
    /// As [`qpair::Options::open`] and [`Store::table`]; `Invalid` if the store has other tables,
    /// since it is then not a store of this benchmark.
    pub fn open(options: &StoreKvOptions, tables: &[&str]) -> Result<Self> {
        let kv = Self::open_as(options.to_options(), &options.store, tables, options.log)?;
        Ok(Self { isolation: options.isolation, ..kv })
    }

    /// As [`Self::open`], with options of the store. `log`: whether it writes a log.
    pub(crate) fn open_as(
        options: Options,
        path: &Path,
        tables: &[&str],
        log: bool,
    ) -> Result<Self> {
        let store = options.open()?;
        check_tables(&store, path, tables)?;
        let tables = tables.iter().map(|name| store.table(name)).collect::<Result<Arc<[_]>>>()?;
        let commits = (0..store.workers()).map(|_| Commits::default()).collect();
        Ok(Self { store, tables, log, isolation: Isolation::default(), commits })
    }

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
            tasks_chosen_of: None,
            memory_bytes: store.memory_bytes,
            log: self.log,
            log_device: store.log_device.map(|log| log.name),
            serializable: self.isolation == Isolation::Serializable,
            warmed: None,
        }
    }

    pub(crate) fn session(&self, number: usize) -> StoreSession {
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
    fn describe(&self) -> String {
        let info = self.store.device_info();
        let log = if self.log { "" } else { ", without a log" };
        format!("qpair over {} ({}){log}", info.interface, info.mode)
    }
}

impl System for StoreKv {
    type Session = StoreSession;

    fn start<F, Fut, T>(&self, clients: usize, client: F) -> Result<Clients<T>>
    where
        F: Fn(usize, StoreSession) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T>> + 'static,
        T: Send + 'static,
    {
        let client = Arc::new(client);
        let workers = self.store.workers();
        let joins = (0..clients)
            .map(|number| -> Box<dyn FnOnce() -> Result<T> + Send> {
                let (client, kv) = (client.clone(), self.clone());
                let handle = self
                    .store
                    .spawn_on(number % workers, move || client(number, kv.session(number)));
                Box::new(move || handle.join()?)
            })
            .collect();
        Ok(Clients::new(joins))
    }

    fn statistics(&self) -> Result<KvStatistics> {
        let (statistics, report) = (self.store.statistics()?, self.store.report());
        let reads = self.store.metrics()?.device_read_us;
        Ok(KvStatistics {
            device_reads: Some(statistics.device.reads),
            device_writes: Some(statistics.device.writes),
            device_bytes: Some(statistics.device.read_bytes + statistics.device.written_bytes),
            system_calls: Some(statistics.device.system_calls),
            device_reads_timed: Some((reads.count(), reads.sum_us())),
            // Each write of the log is durable without a flush.
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
