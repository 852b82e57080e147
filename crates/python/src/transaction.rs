//! `Transaction`, and running a function as a transaction.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use qpair::{Error, ErrorKind, TransactionOptions};

use crate::errors::{as_error, raise};
use crate::handle::{Exclusive, Open};
use crate::input::{Bounds, Input};
use crate::process::wait;
use crate::range::{Part, Range, Source};
use crate::store::Store;
use crate::table::{Table, to_bytes};

/// Several reads and changes that happen at one moment, or not at all.
#[pyclass(frozen, module = "qpair")]
pub(crate) struct Transaction {
    open: Arc<Open>,
    handle: Arc<Exclusive<qpair::Transaction>>,
    /// Whether `Store.transact` commits it.
    managed: bool,
}

/// A point in a transaction.
#[pyclass(frozen, module = "qpair")]
pub(crate) struct Savepoint(qpair::transaction::Savepoint);

impl Transaction {
    pub(crate) fn begin(open: &Arc<Open>, options: &TransactionOptions) -> qpair::Result<Self> {
        let handle = open.exclusive(open.store()?.begin_with(options))?;
        Ok(Self { open: open.clone(), handle, managed: false })
    }

    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        table: &Table,
        run: impl FnOnce(&mut qpair::Transaction, &qpair::Table) -> qpair::Result<T> + Send,
    ) -> PyResult<T> {
        let table = table.handle.get().map_err(raise)?;
        wait(py, || {
            let outcome = self.handle.with(|tx| run(tx, &table));
            drop(table);
            outcome
        })
        .map_err(raise)
    }

    fn end(&self) -> PyResult<Option<qpair::Transaction>> {
        if self.managed {
            return Err(PyRuntimeError::new_err(
                "the transaction is ended by Store.transact: return to commit, raise to roll back",
            ));
        }
        self.handle.take().map_err(raise)
    }

    fn range_of(&self, table: &Table, bounds: Bounds) -> Range {
        let source = Source::Transaction(self.handle.clone());
        Range::new(self.open.clone(), source, table.handle.clone(), bounds, Part::Items)
    }
}

#[pymethods]
impl Transaction {
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind=None, error=None, trace=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
        trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let _ = (error, trace);
        match kind {
            None => drop(self.commit_if_open(py)?),
            Some(_) => self.rollback(py)?,
        }
        Ok(false)
    }

    /// Returns the value of a key as the transaction sees it, or `default`.
    #[pyo3(signature = (table, key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        table: &Table,
        key: Input<'_>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.wait(py, table, |tx, table| tx.get(table, &key))?;
        Ok(to_bytes(py, value).map(Bound::into_any).or(default))
    }

    /// Locks a key's row until the transaction ends, then returns its value, or None.
    #[pyo3(signature = (table, key, /))]
    fn get_for_update<'py>(
        &self,
        py: Python<'py>,
        table: &Table,
        key: Input<'_>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.wait(py, table, |tx, table| tx.get_for_update(table, &key))?;
        Ok(to_bytes(py, value))
    }

    /// Locks a key's row until the transaction ends.
    #[pyo3(signature = (table, key, /))]
    fn lock(&self, py: Python<'_>, table: &Table, key: Input<'_>) -> PyResult<()> {
        self.wait(py, table, |tx, table| tx.lock(table, &key))
    }

    /// Inserts or replaces a record.
    #[pyo3(signature = (table, key, value, /))]
    fn put(&self, py: Python<'_>, table: &Table, key: Input<'_>, value: Input<'_>) -> PyResult<()> {
        self.wait(py, table, |tx, table| tx.put(table, &key, &value))
    }

    /// Inserts a record if the key has none; returns whether it was inserted.
    #[pyo3(signature = (table, key, value, /))]
    fn insert(
        &self,
        py: Python<'_>,
        table: &Table,
        key: Input<'_>,
        value: Input<'_>,
    ) -> PyResult<bool> {
        self.wait(py, table, |tx, table| tx.insert(table, &key, &value))
    }

    /// Removes a key's record; returns whether there was one.
    #[pyo3(signature = (table, key, /))]
    fn delete(&self, py: Python<'_>, table: &Table, key: Input<'_>) -> PyResult<bool> {
        self.wait(py, table, |tx, table| tx.delete(table, &key))
    }

    /// Replaces a record if its value is the expected one; returns whether it was replaced.
    #[pyo3(signature = (table, key, expected, new, /))]
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        table: &Table,
        key: Input<'_>,
        expected: Option<Input<'_>>,
        new: Option<Input<'_>>,
    ) -> PyResult<bool> {
        self.wait(py, table, |tx, table| {
            tx.compare_and_swap(table, &key, expected.as_deref(), new.as_deref())
        })
    }

    /// Removes the records of a range of keys; returns their number.
    #[pyo3(signature = (table, start=None, stop=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        table: &Table,
        start: Option<Input<'_>>,
        stop: Option<Input<'_>>,
    ) -> PyResult<u64> {
        let bounds = Bounds::between(start, stop);
        if bounds.is_empty() {
            return Ok(0);
        }
        self.wait(py, table, |tx, table| tx.delete_range(table, bounds))
    }

    /// The records with keys from `start` on and before `stop`. Changes that the transaction makes
    /// during an iteration may appear in it.
    #[pyo3(signature = (table, start=None, stop=None))]
    fn range(&self, table: &Table, start: Option<Input<'_>>, stop: Option<Input<'_>>) -> Range {
        self.range_of(table, Bounds::between(start, stop))
    }

    /// The records whose keys begin with `prefix`.
    #[pyo3(signature = (table, prefix, /))]
    fn prefix(&self, table: &Table, prefix: Input<'_>) -> Range {
        self.range_of(table, Bounds::of_prefix(&prefix))
    }

    /// Marks this point, for a later rollback to it.
    fn savepoint(&self) -> PyResult<Savepoint> {
        self.handle.with(qpair::Transaction::savepoint).map(Savepoint).map_err(raise)
    }

    /// Discards all writes since a savepoint.
    #[pyo3(signature = (savepoint, /))]
    fn rollback_to(&self, savepoint: &Savepoint) -> PyResult<()> {
        self.handle.with(|tx| tx.rollback_to(&savepoint.0)).map_err(raise)
    }

    /// Makes all changes, at once; returns the timestamp of the commit.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let ended = || raise(Error::new(ErrorKind::Closed, "the transaction has ended"));
        self.commit_if_open(py)?.ok_or_else(ended)
    }

    /// Discards all changes. Does nothing if the transaction has ended.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let transaction = self.end()?;
        wait(py, || drop(transaction));
        Ok(())
    }
}

impl Transaction {
    fn commit_if_open(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let Some(transaction) = self.end()? else { return Ok(None) };
        let commit = wait(py, || transaction.commit().map(|commit| commit.timestamp()));
        commit.map(Some).map_err(raise)
    }
}

/// Runs `function` as a transaction, again after conflicts.
pub(crate) fn transact(
    store: &Store,
    py: Python<'_>,
    function: &Py<PyAny>,
    options: &TransactionOptions,
) -> PyResult<Py<PyAny>> {
    let open = &store.open;
    let engine = open.store().map_err(raise)?;
    let mut raised = None;
    let outcome = wait(py, || {
        let outcome = engine.transact_with(options, |tx| {
            // Python gets the transaction itself for the length of the call, and the engine another.
            let own = std::mem::replace(tx, engine.begin());
            let handle = open.exclusive(own)?;
            let lent = Transaction { open: open.clone(), handle: handle.clone(), managed: true };
            let returned = Python::attach(|py| {
                let returned = Py::new(py, lent).and_then(|lent| function.call1(py, (lent,)));
                returned.map_err(|exception| {
                    let error = as_error(py, &exception);
                    raised = (error.kind() != ErrorKind::Conflict).then_some(exception);
                    error
                })
            });
            // Gone if the function closed the store.
            match handle.take() {
                Ok(Some(own)) => *tx = own,
                Ok(None) => return Err(Error::new(ErrorKind::Closed, "the store is closed")),
                // Another thread still makes a call by it: it ends without a commit.
                Err(error) => {
                    handle.end();
                    return Err(error);
                }
            }
            returned
        });
        drop(engine);
        outcome
    });
    match (outcome, raised) {
        (Ok(value), _) => Ok(value),
        (Err(_), Some(exception)) => Err(exception),
        (Err(error), None) => Err(raise(error)),
    }
}
