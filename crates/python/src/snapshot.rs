//! `Snapshot` and `Batch`.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::errors::raise;
use crate::handle::{Exclusive, Open, Shared};
use crate::input::{Bounds, Input};
use crate::process::wait;
use crate::range::{Part, Range, Source};
use crate::table::{Table, to_bytes};

/// The store as it was when the snapshot was taken.
#[pyclass(frozen, module = "qpair")]
pub(crate) struct Snapshot {
    open: Arc<Open>,
    handle: Arc<Shared<Arc<qpair::Snapshot>>>,
}

impl Snapshot {
    pub(crate) fn take(open: &Arc<Open>) -> qpair::Result<Self> {
        let handle = open.share(Arc::new(open.store()?.snapshot()?))?;
        Ok(Self { open: open.clone(), handle })
    }

    fn range_of(&self, table: &Table, bounds: Bounds) -> Range {
        let source = Source::Snapshot(self.handle.clone());
        Range::new(self.open.clone(), source, table.handle.clone(), bounds, Part::Items)
    }
}

#[pymethods]
impl Snapshot {
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) {
        self.release(py);
    }

    /// Gives the snapshot up, so that the store no longer keeps older values for it.
    fn release(&self, py: Python<'_>) {
        let snapshot = self.handle.take();
        wait(py, || drop(snapshot));
    }

    /// The timestamp of the last commit that the snapshot sees.
    #[getter]
    fn timestamp(&self) -> PyResult<u64> {
        self.handle.with(|snapshot| Ok(snapshot.timestamp())).map_err(raise)
    }

    /// Returns the value of a key, or `default`.
    #[pyo3(signature = (table, key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        table: &Table,
        key: Input<'_>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let snapshot = self.handle.get().map_err(raise)?;
        let table = table.handle.get().map_err(raise)?;
        let value = wait(py, move || snapshot.get(&table, &key)).map_err(raise)?;
        Ok(to_bytes(py, value).map(Bound::into_any).or(default))
    }

    /// The records with keys from `start` on and before `stop`.
    #[pyo3(signature = (table, start=None, stop=None))]
    fn range(&self, table: &Table, start: Option<Input<'_>>, stop: Option<Input<'_>>) -> Range {
        self.range_of(table, Bounds::between(start, stop))
    }

    /// The records whose keys begin with `prefix`.
    #[pyo3(signature = (table, prefix, /))]
    fn prefix(&self, table: &Table, prefix: Input<'_>) -> Range {
        self.range_of(table, Bounds::of_prefix(&prefix))
    }
}

/// Changes that are made all at once, when the `with` block ends or by `write`.
#[pyclass(frozen, module = "qpair")]
pub(crate) struct Batch {
    open: Arc<Open>,
    handle: Arc<Exclusive<qpair::WriteBatch>>,
}

impl Batch {
    pub(crate) fn new(open: &Arc<Open>) -> qpair::Result<Self> {
        Ok(Self { open: open.clone(), handle: open.exclusive(qpair::WriteBatch::default())? })
    }

    /// Returns the changes, and leaves the batch empty.
    pub(crate) fn take(&self) -> qpair::Result<qpair::WriteBatch> {
        self.handle.with(|batch| Ok(std::mem::take(batch)))
    }
}

#[pymethods]
impl Batch {
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind=None, *_error))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _error: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        match kind {
            None => self.write(py)?,
            Some(_) => drop(self.take()),
        }
        Ok(false)
    }

    fn __len__(&self) -> PyResult<usize> {
        self.handle.with(|batch| Ok(batch.len())).map_err(raise)
    }

    /// Adds a change that inserts or replaces a record.
    #[pyo3(signature = (table, key, value, /))]
    fn put(&self, table: &Table, key: Input<'_>, value: Input<'_>) -> PyResult<()> {
        let put = |table: &qpair::Table| {
            self.handle.with(|batch| {
                batch.put(table, &key, &value);
                Ok(())
            })
        };
        table.handle.with(put).map_err(raise)
    }

    /// Adds a change that removes a key's record, if there is one.
    #[pyo3(signature = (table, key, /))]
    fn delete(&self, table: &Table, key: Input<'_>) -> PyResult<()> {
        let delete = |table: &qpair::Table| {
            self.handle.with(|batch| {
                batch.delete(table, &key);
                Ok(())
            })
        };
        table.handle.with(delete).map_err(raise)
    }

    /// Makes the changes, in their order, or none of them. The batch is empty afterwards, and keeps
    /// its changes if they could not be made.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.open.store().map_err(raise)?;
        wait(py, || {
            self.handle.with(|batch| {
                let outcome = store.write(batch);
                drop(store);
                outcome.inspect(|()| batch.clear())
            })
        })
        .map_err(raise)
    }
}
