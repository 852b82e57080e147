//! `Range`: the records of a range of keys, of a table, a snapshot or a transaction.

use std::sync::{Arc, Mutex, TryLockError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use qpair::{Error, Result};

use crate::errors::raise;
use crate::handle::{Exclusive, Open, Shared};
use crate::input::{Bounds, Input};
use crate::process::wait;
use crate::table::{Record, to_pair};

/// The number of records that an iterator reads first, and later, and their bytes at most.
const PART_MIN: usize = 16;
const PART_MAX: usize = 1024;
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

    pub(crate) fn iterate(&self, reversed: bool) -> RangeIterator {
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
        let state = State { reader, records: Vec::new().into_iter(), failed: None };
        RangeIterator { state: Mutex::new(state), part: self.part }
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
    fn __iter__(&self) -> RangeIterator {
        self.iterate(false)
    }

    fn __reversed__(&self) -> RangeIterator {
        self.iterate(true)
    }

    fn __contains__(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.limit.is_some() || self.part == Part::Values {
            let mut all = self.iterate(false).into_pyobject(py)?.into_any().try_iter()?;
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
    fn next(&mut self) -> (Vec<Record>, Option<Error>) {
        let mut records = Vec::new();
        if self.ended {
            return (records, None);
        }
        let outcome = self.read(&mut records);
        self.left -= records.len();
        self.part = (self.part * 4).min(PART_MAX);
        self.ended = self.left == 0 || !matches!(outcome, Ok(true));
        (records, outcome.err())
    }

    /// Returns whether there may be more records.
    fn read(&mut self, records: &mut Vec<Record>) -> Result<bool> {
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
    fn pass(&mut self, records: &[Record]) {
        if let Some((key, _)) = records.last() {
            self.bounds.go_behind(key, self.reversed);
        }
    }
}

fn gather(
    range: &mut impl Iterator<Item = Result<Record>>,
    most: usize,
    records: &mut Vec<Record>,
) -> Result<bool> {
    let mut bytes = 0;
    while records.len() < most && bytes < PART_BYTES_MAX {
        let Some(record) = range.next() else { return Ok(false) };
        let (key, value) = record?;
        bytes += key.len() + value.len();
        records.push((key, value));
    }
    Ok(true)
}

struct State {
    reader: Reader,
    records: std::vec::IntoIter<Record>,
    failed: Option<Error>,
}

/// An iterator over a range.
#[pyclass(frozen, generic, module = "qpair")]
pub(crate) struct RangeIterator {
    state: Mutex<State>,
    part: Part,
}

#[pymethods]
impl RangeIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(PyValueError::new_err("another thread is using this iterator"));
            }
        };
        if let Some(record) = state.records.next() {
            return self.give(py, &record).map(Some);
        }
        if let Some(error) = state.failed.take() {
            return Err(raise(error));
        }
        py.check_signals()?;
        let reader = &mut state.reader;
        let (records, failed) = wait(py, || reader.next());
        state.records = records.into_iter();
        match (state.records.next(), failed) {
            (None, Some(error)) => Err(raise(error)),
            (first, failed) => {
                state.failed = failed;
                first.map(|record| self.give(py, &record)).transpose()
            }
        }
    }
}

impl RangeIterator {
    fn give<'py>(&self, py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self.part {
            Part::Items => to_pair(py, record)?.into_any(),
            Part::Keys => PyBytes::new(py, &record.0).into_any(),
            Part::Values => PyBytes::new(py, &record.1).into_any(),
        })
    }
}
