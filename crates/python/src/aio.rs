//! Awaiting the engine under asyncio, trio and anyio, without threads.
//!
//! - A value in memory is found by the call itself: [`Awaitable`] is ready before it is awaited.
//! - Otherwise the operation begins when it is awaited. Its completion is put into the [`Queue`] of
//!   the event loop, whose one descriptor the loop watches. The loop's thread takes all completions
//!   at once and gives them to the futures of the loop (`qpair/_loops.py`).
//! - No worker of the engine needs the interpreter.

use std::future::Future;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use pyo3::exceptions::{PyRuntimeError, PyStopAsyncIteration, PyStopIteration};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList};
use qpair::Result;
use qpair::completion::CompletionQueue;

use crate::errors::raise;
use crate::input::{Bounds, Input};
use crate::snapshot::Batch;
use crate::table::{Record, Table, pair, to_bytes, try_get};

/// The result of an operation, before it is a Python object.
enum Outcome {
    Value(Option<Vec<u8>>),
    Values(Vec<Option<Vec<u8>>>),
    Flag(bool),
    Nothing,
    Records(Vec<Record>, Arc<Cursor>),
}

type Running = Pin<Box<dyn Future<Output = Result<Outcome>> + Send>>;

impl Outcome {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Outcome::Value(value) => to_bytes(py, value).into_pyobject(py)?.unbind(),
            Outcome::Values(values) => {
                let values = values.into_iter().map(|value| to_bytes(py, value));
                PyList::new(py, values.collect::<Vec<_>>())?.into_any().unbind()
            }
            Outcome::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any().unbind(),
            Outcome::Nothing => py.None(),
            Outcome::Records(records, cursor) => match cursor.take(records) {
                Some((key, value)) => pair(py, &key, &value)?.into_any().unbind(),
                None => return Err(PyStopAsyncIteration::new_err(())),
            },
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An outcome, and the future of the event loop that takes it: an object with `done`, `set_result`
/// and `set_exception`.
type Completion = (Result<Outcome>, Py<PyAny>);

/// The completions of one event loop, and the descriptor that is readable when there are some.
#[pyclass(frozen, module = "qpair")]
pub(crate) struct Queue(CompletionQueue<Completion>);

#[pymethods]
impl Queue {
    #[new]
    fn new() -> PyResult<Self> {
        CompletionQueue::new().map(Self).map_err(raise)
    }

    fn fileno(&self) -> i32 {
        self.0.as_fd().as_raw_fd()
    }

    /// Gives all results to their futures.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let mut completions = Vec::new();
        self.0.take(&mut completions, usize::MAX);
        for (outcome, future) in completions {
            let future = future.bind(py);
            // A task that was cancelled takes no result.
            if future.call_method0(intern!(py, "done"))?.is_truthy()? {
                continue;
            }
            match outcome.map_err(raise).and_then(|outcome| outcome.into_python(py)) {
                Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
                Err(error) => future.call_method1(intern!(py, "set_exception"), (error,))?,
            };
        }
        Ok(())
    }
}

enum Stage {
    Ready(PyResult<Py<PyAny>>),
    Idle(Running),
    Awaited,
}

/// The result of a call, which may have to be waited for. It is awaited once.
#[pyclass(frozen, generic, module = "qpair")]
pub(crate) struct Awaitable(Mutex<Stage>);

impl Awaitable {
    fn ready(value: PyResult<Py<PyAny>>) -> Self {
        Self(Mutex::new(Stage::Ready(value)))
    }

    fn idle(running: impl Future<Output = Result<Outcome>> + Send + 'static) -> Self {
        Self(Mutex::new(Stage::Idle(Box::pin(running))))
    }
}

#[pymethods]
impl Awaitable {
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let stage = std::mem::replace(&mut *lock(&slf.get().0), Stage::Awaited);
        let running = match stage {
            Stage::Ready(value) => {
                *lock(&slf.get().0) = Stage::Ready(value);
                return Ok(slf.clone().into_any());
            }
            Stage::Idle(running) => running,
            Stage::Awaited => {
                return Err(PyRuntimeError::new_err("the result of this call was awaited before"));
            }
        };
        // The running loop's queue, and a new future of that loop.
        static BEGIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let begin = BEGIN.get_or_try_init(py, || {
            py.import("qpair._loops")?.getattr("begin").map(Bound::unbind)
        })?;
        let (queue, future): (Bound<'_, Queue>, Bound<'_, PyAny>) =
            begin.bind(py).call0()?.extract()?;
        let own = future.clone().unbind();
        match queue.get().0.start(async move { (running.await, own) }) {
            None => future.call_method0(intern!(py, "__await__")),
            Some((outcome, _)) => {
                let value = outcome.map_err(raise).and_then(|outcome| outcome.into_python(py));
                *lock(&slf.get().0) = Stage::Ready(value);
                Ok(slf.clone().into_any())
            }
        }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Ends the iteration that `__await__` began, with the value.
    fn __next__(&self) -> PyResult<()> {
        match std::mem::replace(&mut *lock(&self.0), Stage::Awaited) {
            Stage::Ready(Ok(value)) => Err(PyStopIteration::new_err((value,))),
            Stage::Ready(Err(error)) => Err(error),
            Stage::Idle(_) | Stage::Awaited => {
                Err(PyRuntimeError::new_err("await the result of this call, once"))
            }
        }
    }
}

/// A table for asyncio, trio and anyio.
#[pyclass(frozen, module = "qpair")]
pub(crate) struct AsyncTable(Py<Table>);

impl AsyncTable {
    pub(crate) fn new(table: Py<Table>) -> Self {
        Self(table)
    }

    fn engine(&self) -> PyResult<qpair::Table> {
        self.0.get().handle.get().map_err(raise)
    }

    /// Runs a task on a worker of the store when it is awaited.
    fn on_worker<F>(
        &self,
        make: impl FnOnce(qpair::task::TaskTable) -> F + Send + 'static,
    ) -> PyResult<Awaitable>
    where
        F: Future<Output = Result<Outcome>> + 'static,
    {
        let (store, table) = (self.0.get().open.store().map_err(raise)?, self.engine()?.task());
        Ok(Awaitable::idle(async move { store.spawn(move || make(table)).await? }))
    }
}

#[pymethods]
impl AsyncTable {
    /// The table for blocking calls.
    #[getter]
    fn sync(&self, py: Python<'_>) -> Py<Table> {
        self.0.clone_ref(py)
    }

    /// Returns the value of a key, or None.
    #[pyo3(signature = (key, /))]
    fn get(&self, py: Python<'_>, key: Input<'_>) -> PyResult<Awaitable> {
        let handle = &self.0.get().handle;
        let read = |value: &[u8]| PyBytes::new(py, value).into_any().unbind();
        match handle.with(|table| try_get(table, &key, read)) {
            Ok(Poll::Ready(value)) => Ok(Awaitable::ready(Ok(value.unwrap_or_else(|| py.None())))),
            Ok(Poll::Pending) => {
                let (table, key) = (self.engine()?, key.to_vec());
                Ok(Awaitable::idle(async move { table.get_async(&key).await.map(Outcome::Value) }))
            }
            Err(error) => Err(raise(error)),
        }
    }

    /// Returns the values of several keys, in their order; None for a key without a record.
    #[pyo3(signature = (keys, /))]
    fn multi_get(&self, keys: &Bound<'_, PyAny>) -> PyResult<Awaitable> {
        let own = |key: PyResult<Bound<'_, PyAny>>| Ok(key?.extract::<Input<'_>>()?.to_vec());
        let keys = keys.try_iter()?.map(own).collect::<PyResult<Vec<_>>>()?;
        self.on_worker(|table| async move { table.multi_get(&keys).await.map(Outcome::Values) })
    }

    /// Inserts or replaces a record; returns whether one was replaced.
    #[pyo3(signature = (key, value, /))]
    fn put(&self, key: Input<'_>, value: Input<'_>) -> PyResult<Awaitable> {
        let (table, key, value) = (self.engine()?, key.to_vec(), value.to_vec());
        Ok(Awaitable::idle(async move { table.put_async(&key, &value).await.map(Outcome::Flag) }))
    }

    /// Inserts a record if the key has none; returns whether it was inserted.
    #[pyo3(signature = (key, value, /))]
    fn insert(&self, key: Input<'_>, value: Input<'_>) -> PyResult<Awaitable> {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.on_worker(|table| async move { table.insert(&key, &value).await.map(Outcome::Flag) })
    }

    /// Replaces a record if its value is the expected one; returns whether it was replaced.
    #[pyo3(signature = (key, expected, new, /))]
    fn compare_and_swap(
        &self,
        key: Input<'_>,
        expected: Option<Input<'_>>,
        new: Option<Input<'_>>,
    ) -> PyResult<Awaitable> {
        let own = |value: Input<'_>| value.to_vec();
        let (key, expected, new) = (key.to_vec(), expected.map(own), new.map(own));
        self.on_worker(|table| async move {
            let swap = table.compare_and_swap(&key, expected.as_deref(), new.as_deref());
            swap.await.map(Outcome::Flag)
        })
    }

    /// Removes a key's record; returns whether there was one.
    #[pyo3(signature = (key, /))]
    fn delete(&self, key: Input<'_>) -> PyResult<Awaitable> {
        let (table, key) = (self.engine()?, key.to_vec());
        Ok(Awaitable::idle(async move { table.delete_async(&key).await.map(Outcome::Flag) }))
    }

    /// Makes the changes of a batch, or none of them, and leaves it empty.
    #[pyo3(signature = (batch, /))]
    fn write(&self, batch: &Batch) -> PyResult<Awaitable> {
        let store = self.0.get().open.store().map_err(raise)?;
        let batch = batch.take().map_err(raise)?;
        Ok(Awaitable::idle(async move {
            let task = store.task();
            store.spawn(move || async move { task.write(&batch).await }).await??;
            Ok(Outcome::Nothing)
        }))
    }

    /// The records with keys from `start` on and before `stop`, for `async for`.
    #[pyo3(signature = (start=None, stop=None, *, reverse=false))]
    fn range(
        &self,
        py: Python<'_>,
        start: Option<Input<'_>>,
        stop: Option<Input<'_>>,
        reverse: bool,
    ) -> AsyncRange {
        AsyncRange::new(self.0.clone_ref(py), Bounds::between(start, stop), reverse)
    }

    /// The records whose keys begin with `prefix`, for `async for`.
    #[pyo3(signature = (prefix, /, *, reverse=false))]
    fn prefix(&self, py: Python<'_>, prefix: Input<'_>, reverse: bool) -> AsyncRange {
        AsyncRange::new(self.0.clone_ref(py), Bounds::of_prefix(&prefix), reverse)
    }
}

/// The position of an asynchronous iteration.
struct Cursor {
    reversed: bool,
    state: Mutex<CursorState>,
}

struct CursorState {
    /// The keys that were not read yet; `None` after the last part.
    bounds: Option<Bounds>,
    part: usize,
    records: std::vec::IntoIter<Record>,
}

impl Cursor {
    /// Takes the first record of a part that was read, and keeps the others.
    fn take(&self, records: Vec<Record>) -> Option<Record> {
        let mut state = lock(&self.state);
        let part = state.part;
        state.bounds = match (state.bounds.take(), records.last()) {
            (Some(mut bounds), Some((key, _))) if records.len() == part => {
                bounds.go_behind(key, self.reversed);
                Some(bounds)
            }
            _ => None,
        };
        state.part = (part * 4).min(1024);
        state.records = records.into_iter();
        state.records.next()
    }
}

/// The records of a range, for `async for`.
#[pyclass(frozen, module = "qpair")]
pub(crate) struct AsyncRange {
    table: Py<Table>,
    cursor: Arc<Cursor>,
}

impl AsyncRange {
    fn new(table: Py<Table>, bounds: Bounds, reversed: bool) -> Self {
        let bounds = (!bounds.is_empty()).then_some(bounds);
        let state = CursorState { bounds, part: 16, records: Vec::new().into_iter() };
        Self { table, cursor: Arc::new(Cursor { reversed, state: Mutex::new(state) }) }
    }
}

#[pymethods]
impl AsyncRange {
    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self, py: Python<'_>) -> PyResult<Awaitable> {
        let cursor = self.cursor.clone();
        let mut state = lock(&cursor.state);
        if let Some((key, value)) = state.records.next() {
            let record = pair(py, &key, &value)?.into_any().unbind();
            return Ok(Awaitable::ready(Ok(record)));
        }
        let Some(bounds) = state.bounds.clone() else {
            return Err(PyStopAsyncIteration::new_err(()));
        };
        let part = state.part;
        drop(state);
        let table = self.table.get();
        let store = table.open.store().map_err(raise)?;
        let task = table.handle.get().map_err(raise)?.task();
        let reversed = cursor.reversed;
        Ok(Awaitable::idle(async move {
            let read = move || async move {
                let range = task.range(bounds)?.limit(part);
                let mut range = if reversed { range.reverse() } else { range };
                let mut records = Vec::new();
                while let Some(record) = range.next().await? {
                    records.push(record);
                }
                Ok(records)
            };
            let records: Result<Vec<Record>> = store.spawn(read).await?;
            Ok(Outcome::Records(records?, cursor))
        }))
    }
}
