//! `Range`: the records of a range of keys, of a table, a snapshot or a transaction.

use std::sync::{Arc, Mutex, TryLockError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList};
use qpair::{Error, Result};

use crate::errors::raise;
use crate::handle::{Exclusive, Open, Shared};
use crate::input::{Bounds, Input};
use crate::process::wait;
use crate::table::{Record, pair};

/// The number of records that an iteration reads first, and later, and their bytes at most. More
/// than 700 new tuples make Python look for cycles.
const PART_MIN: usize = 16;
const PART_MAX: usize = 512;
const PART_BYTES_MAX: usize = 1 << 20;

/// The reader of a range.
#[derive(Clone)]
pub(crate) enum Source {
    Table,
    Snapshot(Arc<Shared<Arc<qpair::Snapshot>>>),
    Transaction(Arc<Exclusive<qpair::Transaction>>),
}

/// The part of each record that a range gives.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Part {
    Items,
    Keys,
    Values,
}

/// The records of a range of keys, in order. Each iteration begins anew.
#[pyclass(frozen, generic, module = "qpair")]
pub(crate) struct Range {
    open: Arc<Open>,
    source: Source,
    table: Arc<Shared<qpair::Table>>,
    bounds: Bounds,
    part: Part,
    reversed: bool,
    limit: Option<usize>,
}

impl Range {
    pub(crate) fn new(
        open: Arc<Open>,
        source: Source,
        table: Arc<Shared<qpair::Table>>,
        bounds: Bounds,
        part: Part,
    ) -> Self {
        Self { open, source, table, bounds, part, reversed: false, limit: None }
    }

    /// Returns an iterator. It is Python's own, over lists of records, since a call of this module
    /// for each record would cost as much as the record.
    pub(crate) fn iterate<'py>(
        &self,
        py: Python<'py>,
        reversed: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        static CHAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let chain = CHAIN.get_or_try_init(py, || {
            let chain = py.import("itertools")?.getattr("chain")?;
            chain.getattr("from_iterable").map(Bound::unbind)
        })?;
        chain.bind(py).call1((self.parts(reversed),))
    }

    fn parts(&self, reversed: bool) -> RangeParts {
        let reader = Reader {
            open: self.open.clone(),
            source: self.source.clone(),
            table: self.table.clone(),
            bounds: self.bounds.clone(),
            reversed: self.reversed != reversed,
            left: self.limit.unwrap_or(usize::MAX),
            part: PART_MIN,
            range: None,
            ended: self.bounds.is_empty(),
        };
        RangeParts { state: Mutex::new(State { reader, failed: None }), part: self.part }
    }

    fn like(&self) -> Self {
        Self {
            open: self.open.clone(),
            source: self.source.clone(),
            table: self.table.clone(),
            bounds: self.bounds.clone(),
            ..*self
        }
    }

    fn value_of(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        let table = self.table.get().map_err(raise)?;
        wait(py, || match &self.source {
            Source::Table => table.get(key),
            Source::Snapshot(snapshot) => snapshot.get()?.get(&table, key),
            Source::Transaction(transaction) => transaction.with(|tx| tx.get(&table, key)),
        })
        .map_err(raise)
    }
}

#[pymethods]
impl Range {
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.iterate(py, false)
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.iterate(py, true)
    }

    fn __contains__(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.limit.is_some() || self.part == Part::Values {
            let mut all = self.iterate(py, false)?.try_iter()?;
            return all.try_fold(false, |found, next| Ok(found || next?.eq(item)?));
        }
        let record: Option<(Input<'_>, Input<'_>)>;
        let (key, value) = match self.part {
            Part::Keys => (&item.extract::<Input<'_>>()?, None),
            _ => {
                record = item.extract().ok();
                let Some((key, value)) = &record else { return Ok(false) };
                (key, Some(value))
            }
        };
        if !self.bounds.has(key) {
            return Ok(false);
        }
        let found = self.value_of(py, key)?;
        Ok(found.is_some_and(|found| value.is_none_or(|value| **value == *found)))
    }

    /// The same range without records after the first `records`.
    #[pyo3(signature = (records, /))]
    fn limit(&self, records: usize) -> Self {
        Self { limit: Some(self.limit.map_or(records, |limit| limit.min(records))), ..self.like() }
    }

    /// The same range in the reverse order.
    fn reverse(&self) -> PyResult<Self> {
        if self.limit.is_some() {
            return Err(PyValueError::new_err("a range is reversed before it is limited"));
        }
        Ok(Self { reversed: !self.reversed, ..self.like() })
    }

    // Not `keys`: `dict(range)` would take a range for a mapping, and look each key up.

    /// The keys of the same range.
    fn only_keys(&self) -> Self {
        Self { part: Part::Keys, ..self.like() }
    }

    /// The values of the same range.
    fn only_values(&self) -> Self {
        Self { part: Part::Values, ..self.like() }
    }
}

/// Reads a range in parts.
pub(crate) struct Reader {
    open: Arc<Open>,
    source: Source,
    table: Arc<Shared<qpair::Table>>,
    /// The keys that were not read yet.
    bounds: Bounds,
    reversed: bool,
    left: usize,
    part: usize,
    /// The engine's iterator over a table. Those over snapshots and transactions borrow them, and
    /// so begin again with each part.
    range: Option<Arc<Exclusive<qpair::Range>>>,
    ended: bool,
}

impl Reader {
    /// Reads the next part; returns the records before an error too. The thread is detached from
    /// the interpreter.
    fn next(&mut self) -> (Records, Option<Error>) {
        let mut records = Records::default();
        if self.ended {
            return (records, None);
        }
        let outcome = self.read(&mut records);
        self.left -= records.lens.len();
        self.part = (self.part * 4).min(PART_MAX);
        self.ended = self.left == 0 || !matches!(outcome, Ok(true));
        (records, outcome.err())
    }

    /// Returns whether there may be more records.
    fn read(&mut self, records: &mut Records) -> Result<bool> {
        let most = self.part.min(self.left);
        let table = self.table.get()?;
        match &self.source {
            Source::Table => {
                let range = match &self.range {
                    Some(range) => range,
                    None => {
                        let mut range = table.range(self.bounds.clone())?;
                        if self.left < usize::MAX {
                            range = range.limit(self.left);
                        }
                        if self.reversed {
                            range = range.reverse();
                        }
                        self.range.insert(self.open.exclusive(range)?)
                    }
                };
                range.with(|range| gather(range, most, records))
            }
            Source::Snapshot(snapshot) => {
                let snapshot = snapshot.get()?;
                let range = snapshot.range(&table, self.bounds.clone())?.limit(most);
                let mut range = if self.reversed { range.reverse() } else { range };
                let more = gather(&mut range, most, records)?;
                self.pass(records);
                Ok(more)
            }
            Source::Transaction(transaction) => {
                let more = transaction.with(|tx| {
                    let range = tx.range(&table, self.bounds.clone())?.limit(most);
                    let mut range = if self.reversed { range.reverse() } else { range };
                    gather(&mut range, most, records)
                })?;
                self.pass(records);
                Ok(more)
            }
        }
    }

    /// Begins the next part behind these records.
    fn pass(&mut self, records: &Records) {
        if let Some((key, _)) = records.iter().last() {
            self.bounds.go_behind(key, self.reversed);
        }
    }
}

fn gather(
    range: &mut impl Iterator<Item = Result<Record>>,
    most: usize,
    records: &mut Records,
) -> Result<bool> {
    while records.lens.len() < most && records.bytes.len() < PART_BYTES_MAX {
        let Some(record) = range.next() else { return Ok(false) };
        let (key, value) = record?;
        records.bytes.extend_from_slice(&key);
        records.bytes.extend_from_slice(&value);
        records.lens.push((key.len(), value.len()));
    }
    Ok(true)
}

/// Records, one behind the other.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    lens: Vec<(usize, usize)>,
}

impl Records {
    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lens.iter().scan(&self.bytes[..], |rest, &(key_len, value_len)| {
            let (key, after) = rest.split_at(key_len);
            let (value, after) = after.split_at(value_len);
            *rest = after;
            Some((key, value))
        })
    }
}

struct State {
    reader: Reader,
    failed: Option<Error>,
}

/// An iterator over the parts of a range: lists of records.
#[pyclass(frozen, module = "qpair")]
pub(crate) struct RangeParts {
    state: Mutex<State>,
    part: Part,
}

#[pymethods]
impl RangeParts {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(PyValueError::new_err("another thread is using this iterator"));
            }
        };
        if let Some(error) = state.failed.take() {
            return Err(raise(error));
        }
        py.check_signals()?;
        let reader = &mut state.reader;
        let (records, failed) = wait(py, || reader.next());
        match failed {
            // The records before an error come first.
            Some(error) if !records.lens.is_empty() => state.failed = Some(error),
            Some(error) => return Err(raise(error)),
            None if records.lens.is_empty() => return Ok(None),
            None => {}
        }
        let list = PyList::empty(py);
        for (key, value) in records.iter() {
            match self.part {
                Part::Items => list.append(pair(py, key, value)?)?,
                Part::Keys => list.append(PyBytes::new(py, key))?,
                Part::Values => list.append(PyBytes::new(py, value))?,
            }
        }
        Ok(Some(list))
    }
}
