//! `Table`: a mapping of bytes to bytes, in order.

use std::cell::Cell;
use std::sync::Arc;
use std::task::Poll;

use pyo3::exceptions::{PyKeyError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::aio::AsyncTable;
use crate::errors::raise;
use crate::handle::{Open, Shared};
use crate::input::{Bounds, Input};
use crate::load;
use crate::process::wait;
use crate::range::{Part, Range, Source};

/// An ordered mapping of byte strings to byte strings, on a device.
#[pyclass(frozen, mapping, module = "qpair")]
pub(crate) struct Table {
    pub(crate) open: Arc<Open>,
    pub(crate) handle: Arc<Shared<qpair::Table>>,
    name: String,
}

pub(crate) type Record = (Vec<u8>, Vec<u8>);

pub(crate) fn to_bytes<'py>(
    py: Python<'py>,
    value: Option<Vec<u8>>,
) -> Option<Bound<'py, PyBytes>> {
    value.map(|value| PyBytes::new(py, &value))
}

pub(crate) fn pair<'py>(
    py: Python<'py>,
    key: &[u8],
    value: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, [PyBytes::new(py, key), PyBytes::new(py, value)])
}

thread_local! {
    /// The buffer to which a value is copied from its page, before its length is known.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `read` with the value of a key, if nothing has to be waited for. `read` must not run
/// Python.
#[inline]
pub(crate) fn try_get<T>(
    table: &qpair::Table,
    key: &[u8],
    read: impl FnOnce(&[u8]) -> T,
) -> qpair::Result<Poll<Option<T>>> {
    // A thread that is ending has no buffer.
    let mut value = BUFFER.try_with(Cell::take).unwrap_or_default();
    value.clear();
    let found = match table.try_get_into(key, &mut value)? {
        Some(found) => Poll::Ready(found.then(|| read(&value))),
        None => Poll::Pending,
    };
    let _ = BUFFER.try_with(|buffer| buffer.set(value));
    Ok(found)
}

impl Table {
    pub(crate) fn new(open: &Arc<Open>, table: qpair::Table, name: String) -> qpair::Result<Self> {
        Ok(Self { open: open.clone(), handle: open.share(table)?, name })
    }

    /// Returns the value of a key. Only a value that is not in memory costs the interpreter's lock.
    #[inline]
    fn look<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let read = |value: &[u8]| PyBytes::new(py, value);
        match self.handle.with(|table| try_get(table, key, read)) {
            Ok(Poll::Ready(value)) => Ok(value),
            Ok(Poll::Pending) => self.look_on_device(py, key),
            Err(error) => Err(raise(error)),
        }
    }

    #[cold]
    fn look_on_device<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(to_bytes(py, self.wait(py, |table| table.get(key))?))
    }

    /// Calls the engine detached from the interpreter.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&qpair::Table) -> qpair::Result<T> + Send,
    ) -> PyResult<T> {
        let table = self.handle.get().map_err(raise)?;
        wait(py, || {
            let outcome = run(&table);
            // Dropped here, since the last handle of a store waits for its close.
            drop(table);
            outcome
        })
        .map_err(raise)
    }

    fn record<'py>(
        &self,
        py: Python<'py>,
        find: impl FnOnce(&qpair::Table) -> qpair::Result<Option<Record>> + Send,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.wait(py, find)?.map(|(key, value)| pair(py, &key, &value)).transpose()
    }

    fn part(&self, bounds: Bounds, part: Part) -> Range {
        Range::new(self.open.clone(), Source::Table, self.handle.clone(), bounds, part)
    }
}

fn missing(key: &Input<'_>) -> PyErr {
    Python::attach(|py| PyKeyError::new_err(PyBytes::new(py, key).unbind()))
}

#[pymethods]
impl Table {
    /// The name of the table.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// How the table's values are compressed: 'none', 'lz4' or 'zstd'.
    #[getter]
    fn compression(&self) -> PyResult<String> {
        self.handle.with(|table| Ok(table.compression().to_string())).map_err(raise)
    }

    /// The time to live of the table's records in seconds; None if they do not expire.
    #[getter]
    fn ttl(&self) -> PyResult<Option<f64>> {
        self.handle.with(|table| Ok(table.ttl().map(|ttl| ttl.as_secs_f64()))).map_err(raise)
    }

    /// The same table for asyncio, trio and anyio: its calls return awaitables.
    #[getter]
    fn aio(slf: Py<Self>) -> AsyncTable {
        AsyncTable::new(slf)
    }

    fn __repr__(&self) -> String {
        let closed = if self.open.is_open() { "" } else { ", closed" };
        format!("<qpair.Table {:?}{closed}>", self.name)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Input<'_>) -> PyResult<Bound<'py, PyBytes>> {
        self.look(py, &key)?.ok_or_else(|| missing(&key))
    }

    fn __setitem__(&self, py: Python<'_>, key: Input<'_>, value: Input<'_>) -> PyResult<()> {
        self.put(py, key, value).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: Input<'_>) -> PyResult<()> {
        match self.wait(py, |table| table.delete(&key))? {
            true => Ok(()),
            false => Err(missing(&key)),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: Input<'_>) -> PyResult<bool> {
        match self.handle.with(|table| try_get(table, &key, |_| ())) {
            Ok(Poll::Ready(found)) => Ok(found.is_some()),
            Ok(Poll::Pending) => self.wait(py, |table| table.contains_key(&key)),
            Err(error) => Err(raise(error)),
        }
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(Bounds::all(), Part::Keys).iterate(py, false)
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(Bounds::all(), Part::Keys).iterate(py, true)
    }

    /// The number of records, for which all leaves are read. `statistics()` estimates it.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let count = self.wait(py, qpair::Table::count)?;
        usize::try_from(count).map_err(|error| PyOverflowError::new_err(error.to_string()))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!self.wait(py, qpair::Table::is_empty)?)
    }

    /// Returns the value of a key, or `default`.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Input<'_>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.look(py, &key)?.map(Bound::into_any).or(default))
    }

    /// Returns the values of several keys, in their order; None for a key without a record. Pages
    /// that are not in memory are read all at the same time.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let values = PyList::empty(py);
        let mut waiting: Vec<(usize, Vec<u8>)> = Vec::new();
        for (at, key) in keys.try_iter()?.enumerate() {
            let key = key?;
            let key: Input<'_> = key.extract()?;
            let read = |value: &[u8]| PyBytes::new(py, value);
            match self.handle.with(|table| try_get(table, &key, read)).map_err(raise)? {
                Poll::Ready(value) => values.append(value)?,
                Poll::Pending => {
                    waiting.push((at, key.to_vec()));
                    values.append(py.None())?;
                }
            }
        }
        if !waiting.is_empty() {
            let found =
                self.wait(py, |table| table.multi_get(waiting.iter().map(|(_, key)| key)))?;
            for ((at, _), value) in waiting.iter().zip(found) {
                values.set_item(*at, to_bytes(py, value))?;
            }
        }
        Ok(values)
    }

    /// Inserts or replaces a record; returns whether one was replaced.
    #[pyo3(signature = (key, value, /))]
    fn put(&self, py: Python<'_>, key: Input<'_>, value: Input<'_>) -> PyResult<bool> {
        self.wait(py, |table| table.put(&key, &value))
    }

    /// Inserts a record if the key has none; returns whether it was inserted.
    #[pyo3(signature = (key, value, /))]
    fn insert(&self, py: Python<'_>, key: Input<'_>, value: Input<'_>) -> PyResult<bool> {
        self.wait(py, |table| table.insert(&key, &value))
    }

    /// Removes a key's record; returns whether there was one.
    #[pyo3(signature = (key, /))]
    fn delete(&self, py: Python<'_>, key: Input<'_>) -> PyResult<bool> {
        self.wait(py, |table| table.delete(&key))
    }

    /// Replaces a record if its value is the expected one; returns whether it was replaced. None
    /// stands for no record, in both `expected` and `new`.
    #[pyo3(signature = (key, expected, new, /))]
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: Input<'_>,
        expected: Option<Input<'_>>,
        new: Option<Input<'_>>,
    ) -> PyResult<bool> {
        self.wait(py, |table| table.compare_and_swap(&key, expected.as_deref(), new.as_deref()))
    }

    /// Returns the value of a key; inserts `default` if it has none.
    #[pyo3(signature = (key, default, /))]
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: Input<'_>,
        default: Input<'_>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        loop {
            if let Some(value) = self.look(py, &key)? {
                return Ok(value);
            }
            if self.wait(py, |table| table.insert(&key, &default))? {
                return Ok(PyBytes::new(py, &default));
            }
        }
    }

    /// Removes a key's record and returns its value, or `default` if it has none.
    #[pyo3(signature = (key, /, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: Input<'_>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        while let Some(value) = self.look(py, &key)? {
            let expected = value.as_bytes();
            if self.wait(py, |table| table.compare_and_swap(&key, Some(expected), None))? {
                return Ok(value.into_any());
            }
        }
        default.get_item(0).map_err(|_| missing(&key))
    }

    /// Returns the record with the smallest key, or None.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.record(py, qpair::Table::first)
    }

    /// Returns the record with the greatest key, or None.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.record(py, qpair::Table::last)
    }

    /// Removes the record with the smallest key, and returns it; None if the table is empty.
    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.record(py, qpair::Table::pop_first)
    }

    /// Removes the record with the greatest key, and returns it; None if the table is empty.
    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.record(py, qpair::Table::pop_last)
    }

    /// Removes the record with the greatest key, and returns it.
    fn popitem<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.pop_last(py)?.ok_or_else(|| PyKeyError::new_err("popitem(): the table is empty"))
    }

    /// The records with keys from `start` on and before `stop`.
    #[pyo3(signature = (start=None, stop=None))]
    fn range(&self, start: Option<Input<'_>>, stop: Option<Input<'_>>) -> Range {
        self.part(Bounds::between(start, stop), Part::Items)
    }

    /// The records whose keys begin with `prefix`.
    #[pyo3(signature = (prefix, /))]
    fn prefix(&self, prefix: Input<'_>) -> Range {
        self.part(Bounds::of_prefix(&prefix), Part::Items)
    }

    /// All records.
    fn items(&self) -> Range {
        self.part(Bounds::all(), Part::Items)
    }

    /// All keys.
    fn keys(&self) -> Range {
        self.part(Bounds::all(), Part::Keys)
    }

    /// All values, in the order of their keys.
    fn values(&self) -> Range {
        self.part(Bounds::all(), Part::Values)
    }

    /// Removes the records of a range of keys, in parts; returns their number.
    #[pyo3(signature = (start=None, stop=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Input<'_>>,
        stop: Option<Input<'_>>,
    ) -> PyResult<u64> {
        let bounds = Bounds::between(start, stop);
        if bounds.is_empty() {
            return Ok(0);
        }
        let mut stopped = None;
        let outcome = self.wait(py, |table| {
            table.delete_range_with(bounds, |_| load::check_signals(&mut stopped))
        });
        stopped.map_or(outcome, Err)
    }

    /// Removes all records, in parts; returns their number.
    fn clear(&self, py: Python<'_>) -> PyResult<u64> {
        self.delete_range(py, None, None)
    }

    /// Loads records, pairs of bytes, and returns their number. With `sorted`, the keys must ascend
    /// and the table must be empty: the load then writes whole pages, and is all or nothing.
    /// Otherwise the records are sorted by the part, and each part is a transaction.
    #[pyo3(signature = (records, /, *, sorted=false))]
    fn load(&self, py: Python<'_>, records: &Bound<'_, PyAny>, sorted: bool) -> PyResult<u64> {
        let records = match records.cast::<PyDict>() {
            Ok(records) => records.call_method0("items")?,
            Err(_) if records.hasattr("keys")? => records.call_method0("items")?,
            Err(_) => records.clone(),
        };
        self.load_from(py, load::Feed::of_records(&records)?, sorted)
    }

    /// Puts the records of a mapping or an iterable of pairs, as `load` does.
    #[pyo3(signature = (records, /))]
    fn update(&self, py: Python<'_>, records: &Bound<'_, PyAny>) -> PyResult<()> {
        self.load(py, records, false).map(drop)
    }

    /// Loads columns: tuples of the offsets and bytes of keys, and those of values.
    #[pyo3(signature = (columns, /, *, sorted))]
    fn _load_columns(
        &self,
        py: Python<'_>,
        columns: &Bound<'_, PyAny>,
        sorted: bool,
    ) -> PyResult<u64> {
        self.load_from(py, load::Feed::of_columns(columns)?, sorted)
    }

    /// Estimates the size of the table from some of its leaves.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.wait(py, qpair::Table::statistics)?;
        let all = PyDict::new(py);
        all.set_item("records", found.records)?;
        all.set_item("value_bytes", found.value_bytes)?;
        all.set_item("leaves", found.leaves)?;
        all.set_item("depth", found.depth)?;
        Ok(all)
    }
}

impl Table {
    fn load_from(&self, py: Python<'_>, feed: load::Feed, sorted: bool) -> PyResult<u64> {
        let store = self.open.store().map_err(raise)?;
        let table = self.handle.get().map_err(raise)?;
        wait(py, || match sorted {
            true => load::sorted(&table, feed),
            false => load::unsorted(&store, &table, feed),
        })
    }
}
