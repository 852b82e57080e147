//! Loading records from Python iterables.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyTuple};
use qpair::{Error, Result};

use crate::errors::{as_error, raise};
use crate::input::Input;
use crate::table::Record;

/// The number of records that are taken from Python at a time.
const PART: usize = 512;
/// The bytes of records that an unsorted load sorts at a time.
const SORTED_BYTES: usize = 32 << 20;
/// The bytes of records of one transaction of an unsorted load, and their number.
const TRANSACTION_BYTES: usize = 4 << 20;
const TRANSACTION_RECORDS: usize = 8192;

/// Breaks off if a signal handler raised an exception, which it puts into `stopped`. The thread is
/// detached from the interpreter.
pub(crate) fn check_signals(stopped: &mut Option<PyErr>) -> ControlFlow<()> {
    match Python::attach(|py| py.check_signals()) {
        Ok(()) => ControlFlow::Continue(()),
        Err(raised) => {
            *stopped = Some(raised);
            ControlFlow::Break(())
        }
    }
}

enum Shape {
    /// Pairs of a key and a value.
    Records,
    /// The offsets and bytes of many keys, and those of their values, as Arrow has them: offsets of
    /// 64 bits.
    Columns,
}

/// The records of a Python iterator.
pub(crate) struct Feed {
    iterator: Py<PyIterator>,
    shape: Shape,
    records: std::vec::IntoIter<Record>,
    ended: bool,
    /// The error to end with, after the records before it.
    failed: Option<Error>,
    /// The exception of the iterator.
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Feed {
    pub(crate) fn of_records(records: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(records, Shape::Records)
    }

    pub(crate) fn of_columns(columns: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(columns, Shape::Columns)
    }

    fn new(iterable: &Bound<'_, PyAny>, shape: Shape) -> PyResult<Self> {
        let iterator = iterable.try_iter()?.unbind();
        let (records, raised) = (Vec::new().into_iter(), Arc::default());
        Ok(Self { iterator, shape, records, ended: false, failed: None, raised })
    }

    /// Takes the next records from Python.
    fn fetch(&mut self, py: Python<'_>) {
        let mut records = Vec::with_capacity(PART);
        let taken = self.pull(py, &mut records);
        self.records = records.into_iter();
        self.ended = !matches!(taken, Ok(true));
        if let Err(raised) = taken {
            self.failed = Some(as_error(py, &raised));
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
        }
    }

    /// Returns whether there may be more records.
    fn pull(&self, py: Python<'_>, records: &mut Vec<Record>) -> PyResult<bool> {
        py.check_signals()?;
        let mut iterator = self.iterator.bind(py).clone();
        while records.len() < PART {
            let Some(item) = iterator.next().transpose()? else { return Ok(false) };
            match self.shape {
                Shape::Records => records.push(pair(&item)?),
                Shape::Columns => columns(&item, records)?,
            }
        }
        Ok(true)
    }
}

fn pair(item: &Bound<'_, PyAny>) -> PyResult<Record> {
    if let Ok(tuple) = item.cast::<PyTuple>()
        && tuple.len() == 2
    {
        let (key, value) = (tuple.get_borrowed_item(0)?, tuple.get_borrowed_item(1)?);
        return Ok((key.extract::<Input<'_>>()?.to_vec(), value.extract::<Input<'_>>()?.to_vec()));
    }
    let parts: Vec<Bound<'_, PyAny>> = item.extract().unwrap_or_default();
    let [key, value] = &parts[..] else {
        let text = "a record to load must be a pair of a key and a value";
        return Err(PyTypeError::new_err(text));
    };
    Ok((key.extract::<Input<'_>>()?.to_vec(), value.extract::<Input<'_>>()?.to_vec()))
}

fn columns(item: &Bound<'_, PyAny>, records: &mut Vec<Record>) -> PyResult<()> {
    type Column<'py> = Bound<'py, PyBytes>;
    let all: (Column<'_>, Column<'_>, Column<'_>, Column<'_>) = item.extract()?;
    let (key_ends, keys) = (all.0.as_bytes(), all.1.as_bytes());
    let (value_ends, values) = (all.2.as_bytes(), all.3.as_bytes());
    let wrong = || PyValueError::new_err("the offsets of a column do not fit its bytes");
    let part = |ends: &[u8], bytes: &[u8], row: usize| -> Option<Vec<u8>> {
        let end = |row: usize| {
            let end = ends.get(8 * row..8 * row + 8)?;
            usize::try_from(u64::from_le_bytes(end.try_into().ok()?)).ok()
        };
        Some(bytes.get(end(row)?..end(row + 1)?)?.to_vec())
    };
    for row in 0..(key_ends.len() / 8).saturating_sub(1) {
        let key = part(key_ends, keys, row).ok_or_else(wrong)?;
        records.push((key, part(value_ends, values, row).ok_or_else(wrong)?));
    }
    Ok(())
}

impl Iterator for Feed {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.records.next() {
                return Some(Ok(record));
            }
            if self.ended {
                return self.failed.take().map(Err);
            }
            Python::attach(|py| self.fetch(py));
        }
    }
}

/// Returns the exception that ended a load: that of its iterator, if there is one.
fn ended_by(error: Error, raised: &Mutex<Option<PyErr>>, loaded: u64) -> PyErr {
    let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
    let raised = raised.unwrap_or_else(|| raise(error));
    // An exception without attributes ends the load all the same.
    let _ = Python::attach(|py| raised.value(py).setattr("loaded", loaded));
    raised
}

/// Loads records in the order of their keys into an empty table. The thread is detached from the
/// interpreter.
pub(crate) fn sorted(table: &qpair::Table, feed: Feed) -> PyResult<u64> {
    let raised = feed.raised.clone();
    table.bulk_load(feed).map_err(|error| ended_by(error, &raised, 0))
}

/// Loads records in any order, the last of each key. The thread is detached from the interpreter.
pub(crate) fn unsorted(
    store: &qpair::Store,
    table: &qpair::Table,
    mut feed: Feed,
) -> PyResult<u64> {
    let raised = feed.raised.clone();
    let mut loaded = 0;
    loop {
        let mut records: Vec<Record> = Vec::new();
        let mut bytes = 0;
        let mut failed = None;
        while bytes < SORTED_BYTES {
            match feed.next() {
                Some(Ok((key, value))) => {
                    bytes += key.len() + value.len();
                    records.push((key, value));
                }
                Some(Err(error)) => {
                    failed = Some(error);
                    break;
                }
                None => break,
            }
        }
        let is_last = failed.is_none() && bytes < SORTED_BYTES;
        // A stable sort: of records with one key, the last stays.
        records.sort_by(|a, b| a.0.cmp(&b.0));
        records.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        write(store, table, records, &mut loaded)
            .map_err(|error| ended_by(error, &raised, loaded))?;
        if let Some(error) = failed {
            return Err(ended_by(error, &raised, loaded));
        }
        if is_last {
            return Ok(loaded);
        }
    }
}

fn write(
    store: &qpair::Store,
    table: &qpair::Table,
    records: Vec<Record>,
    loaded: &mut u64,
) -> Result<()> {
    let mut rest = &records[..];
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |(key, value): &&Record| {
            bytes += key.len() + value.len();
            bytes <= TRANSACTION_BYTES
        };
        let count = rest.iter().take(TRANSACTION_RECORDS).take_while(fits).count().max(1);
        let (part, after) = rest.split_at(count);
        store.transact(|tx| part.iter().try_for_each(|(key, value)| tx.put(table, key, value)))?;
        *loaded += count as u64;
        rest = after;
    }
    Ok(())
}
