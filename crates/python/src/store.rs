//! `open` and `Store`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use qpair::Options;
use qpair::metrics::SampleValue;
use qpair::report::OpenReport;

use crate::errors::raise;
use crate::handle::Open;
use crate::load::check_signals;
use crate::options::{compression as compression_of, of_store, of_transaction};
use crate::process::wait;
use crate::snapshot::{Batch, Snapshot};
use crate::table::Table;
use crate::transaction::{Transaction, transact};

/// An open store: named tables on a file, several files or block devices.
#[pyclass(frozen, module = "qpair")]
pub(crate) struct Store {
    pub(crate) open: Arc<Open>,
    report: OpenReport,
}

/// Opens a store, or creates it. Called by `qpair.open`, which tells of the report's warnings.
#[pyfunction]
#[pyo3(signature = (path, /, **options))]
pub(crate) fn open(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Store> {
    let options = of_store(path, options)?;
    let (store, report) = wait(py, || options.open_with_report()).map_err(raise)?;
    Ok(Store { open: Open::new(store), report })
}

impl Store {
    /// Calls the engine detached from the interpreter.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&qpair::Store) -> qpair::Result<T> + Send,
    ) -> PyResult<T> {
        let store = self.open.store().map_err(raise)?;
        wait(py, || {
            let outcome = run(&store);
            // Dropped here, since the last handle of a store waits for its close.
            drop(store);
            outcome
        })
        .map_err(raise)
    }

    /// Like [`Store::wait`], for a call that tells of its progress, and so can be interrupted.
    fn wait_with_progress<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&qpair::Store, &dyn Fn(u64, u64) -> ControlFlow<()>) -> qpair::Result<T> + Send,
    ) -> PyResult<T> {
        let stopped = std::sync::Mutex::new(None);
        let outcome = self.wait(py, |store| {
            run(store, &|_, _| match stopped.lock() {
                Ok(mut stopped) => check_signals(&mut stopped),
                Err(_) => ControlFlow::Break(()),
            })
        });
        match stopped.into_inner() {
            Ok(Some(raised)) => Err(raised),
            _ => outcome,
        }
    }
}

#[pymethods]
impl Store {
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let closed = if self.open.is_open() { "open" } else { "closed" };
        format!("<qpair.Store by {}, {closed}>", self.report.interface)
    }

    /// Writes all changes to the device and closes the store. All handles of it, such as tables and
    /// transactions, are closed too. Does nothing if the store is closed, and in a fork.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || self.open.close()).map_err(raise)
    }

    /// Whether the store is closed, or belongs to the parent of this process.
    #[getter]
    fn closed(&self) -> bool {
        !self.open.is_open()
    }

    /// How the store was opened: the interface to the kernel and its mode, the interfaces that did
    /// not work and why, whether the store was created, and whether it is read beside a process
    /// that writes it.
    #[getter]
    fn opened<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = PyDict::new(py);
        let passed_over = PyList::empty(py);
        for other in &self.report.passed_over {
            passed_over.append((other.interface.name(), other.reason.as_str()))?;
        }
        report.set_item("interface", &self.report.interface)?;
        report.set_item("mode", &self.report.mode)?;
        report.set_item("passed_over", passed_over)?;
        report.set_item("created", self.report.created)?;
        let text = |error: &Option<qpair::Error>| error.as_ref().map(ToString::to_string);
        report.set_item("not_writable", text(&self.report.not_writable))?;
        report.set_item("memory_warning", &self.report.memory_warning)?;
        report.set_item("not_published", text(&self.report.not_published))?;
        report.set_item("beside_writer", self.report.beside_writer)?;
        Ok(report)
    }

    /// Whether changes are refused.
    #[getter]
    fn read_only(&self) -> PyResult<bool> {
        Ok(self.open.store().map_err(raise)?.is_read_only())
    }

    /// The length of the longest key that the store takes, in bytes.
    #[getter]
    fn key_len_max(&self) -> PyResult<usize> {
        Ok(self.open.store().map_err(raise)?.key_len_max())
    }

    /// Returns a table, and creates it if it does not exist, unless `create` is false. With a
    /// `compression`, 'lz4' or 'zstd', the values of a new table are compressed; an existing table
    /// must have it. With a `ttl`, in seconds, each record of a new table is gone that long after
    /// it was put last; an existing table must have both as they are given.
    #[pyo3(signature = (name, /, *, create=true, compression=None, ttl=None))]
    fn table(
        &self,
        py: Python<'_>,
        name: String,
        create: bool,
        compression: Option<&str>,
        ttl: Option<f64>,
    ) -> PyResult<Table> {
        let compression = compression.map(compression_of).transpose()?;
        let ttl = ttl.map(Duration::try_from_secs_f64).transpose().map_err(|error| {
            PyValueError::new_err(format!("the time to live is no number of seconds: {error}"))
        })?;
        let table = self.wait(py, |store| match (create, compression, ttl) {
            (true, None, None) => store.table(&name).map(Some),
            (true, Some(compression), None) => store.compressed_table(&name, compression).map(Some),
            (true, compression, Some(ttl)) => {
                let compression = compression.unwrap_or_default();
                let options = qpair::TableOptions::default().compression(compression).ttl(ttl);
                store.table_with(&name, &options).map(Some)
            }
            (false, ..) => store.existing_table(&name),
        })?;
        let Some(table) = table else { return Err(PyKeyError::new_err(name)) };
        Table::new(&self.open, table, name).map_err(raise)
    }

    fn __getitem__(&self, py: Python<'_>, name: String) -> PyResult<Table> {
        self.table(py, name, false, None, None)
    }

    /// Returns the names of the tables.
    fn table_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.wait(py, qpair::Store::table_names)
    }

    /// Removes a table and its records.
    #[pyo3(signature = (name, /))]
    fn drop_table(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.wait(py, |store| store.drop_table(name))
    }

    /// Renames a table.
    #[pyo3(signature = (old, new, /))]
    fn rename_table(&self, py: Python<'_>, old: &str, new: &str) -> PyResult<()> {
        self.wait(py, |store| store.rename_table(old, new))
    }

    /// Begins a transaction, whose first call decides which state of the store it sees. As a
    /// context manager it commits at the end of the block, and rolls back after an exception.
    #[pyo3(signature = (**options))]
    fn transaction(&self, options: Option<&Bound<'_, PyDict>>) -> PyResult<Transaction> {
        Transaction::begin(&self.open, &of_transaction(options)?).map_err(raise)
    }

    /// Calls `function(tx)` and commits the transaction `tx`; calls it again if another transaction
    /// was in the way. Returns what the function returned. An exception rolls back.
    #[pyo3(signature = (function, /, **options))]
    fn transact(
        &self,
        py: Python<'_>,
        function: Py<PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        transact(self, py, &function, &of_transaction(options)?)
    }

    /// Takes a snapshot of all that is committed.
    fn snapshot(&self) -> PyResult<Snapshot> {
        Snapshot::take(&self.open).map_err(raise)
    }

    /// Returns an empty batch of changes, which are made when its `with` block ends.
    fn batch(&self) -> PyResult<Batch> {
        Batch::new(&self.open).map_err(raise)
    }

    /// Writes a checkpoint, so that the next opening has less to recover.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        self.wait(py, qpair::Store::checkpoint)
    }

    /// Makes a store at `path` that has all that is committed now; returns the number of its pages.
    #[pyo3(signature = (path, /, *, force=false))]
    fn backup(&self, py: Python<'_>, path: PathBuf, force: bool) -> PyResult<u64> {
        let report = self.wait_with_progress(py, |store, progress| {
            Options::new(path).force(force).backup_of(store, progress)
        })?;
        Ok(report.pages)
    }

    /// Makes the file of the store shorter; returns its length before and after, in bytes.
    fn compact(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let report = self.wait_with_progress(py, |store, progress| store.compact(progress))?;
        Ok((report.bytes_before, report.bytes_after))
    }

    /// Reads all pages of the store and returns the faults found. The store must be as it was
    /// opened, without changes since.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.wait(py, |store| store.check(&|_, _| ()))?.faults)
    }

    /// Returns the metrics of the store by name. A histogram is a dict of its count, its sum, its
    /// largest value and quantiles, in microseconds.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let metrics = self.wait(py, qpair::Store::metrics)?;
        let all = PyDict::new(py);
        for sample in metrics.samples() {
            match sample.value {
                SampleValue::Counter(count) => all.set_item(sample.name, count)?,
                SampleValue::Gauge(value) => all.set_item(sample.name, value)?,
                SampleValue::Histogram(histogram) => {
                    let parts = PyDict::new(py);
                    parts.set_item("count", histogram.count())?;
                    parts.set_item("sum", histogram.sum_us())?;
                    parts.set_item("max", histogram.max_us())?;
                    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                        parts.set_item(name, histogram.quantile_us(share))?;
                    }
                    all.set_item(sample.name, parts)?;
                }
            }
        }
        Ok(all)
    }

    /// Returns the metrics in the text format of Prometheus.
    fn metrics_text(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.wait(py, qpair::Store::metrics)?.to_prometheus())
    }

    /// Returns the open transactions, the oldest first: identifier, name, age in commits, locks.
    fn transactions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let open = self.wait(py, |store| Ok(store.transactions()))?;
        let parts = |info: qpair::transaction::TransactionInfo| {
            (info.id, info.name, info.age_commits, info.locks).into_pyobject(py)
        };
        open.into_iter().map(parts).collect()
    }
}
