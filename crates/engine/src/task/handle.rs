//! The result of a task, for the code that waits for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, PoisonError};
use std::task::{Context, Poll, Waker};

use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::locks::Mutex;

use super::stepped::{self, Step};
use super::{current, refuse_on_worker};
use crate::panics::guarded_future;
use crate::shared::Shared;

struct State<T> {
    value: Option<Result<T>>,
    waker: Option<Waker>,
}

struct Cell<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
}

/// The result of a task that may still run: block on it with [`JoinHandle::join`], or await it.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// let answer = store.spawn(|| async { 6 * 7 });
/// assert_eq!(answer.join()?, 42);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct JoinHandle<T> {
    cell: Arc<Cell<T>>,
}

/// The side that fills a [`JoinHandle`]. If it is dropped unfilled, the handle reports that the
/// task is gone.
pub(crate) struct OneshotSender<T> {
    cell: Option<Arc<Cell<T>>>,
}

pub(crate) fn oneshot<T>() -> (OneshotSender<T>, JoinHandle<T>) {
    let cell = Arc::new(Cell {
        state: Mutex::new(State { value: None, waker: None }),
        filled: Condvar::new(),
    });
    (OneshotSender { cell: Some(cell.clone()) }, JoinHandle { cell })
}

/// Starts a task of the engine on a worker. Its panics fail the store.
pub(crate) fn spawn_to<F, T>(
    shared: &Shared,
    worker: usize,
    make: impl FnOnce() -> F + Send + 'static,
) -> JoinHandle<T>
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    spawn_program(shared, worker, move || guarded_here(make))
}

/// Creates a future on a worker and runs it as a task of the engine.
pub(crate) async fn guarded_here<F: Future>(make: impl FnOnce() -> F) -> F::Output {
    match current(|worker| worker.shared_arc()) {
        Some(shared) => guarded_future(&shared, async move { make().await }).await,
        None => make().await,
    }
}

/// Starts a task of the program on a worker.
pub(crate) fn spawn_program<F, T>(
    shared: &Shared,
    worker: usize,
    make: impl FnOnce() -> F + Send + 'static,
) -> JoinHandle<T>
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let (sender, handle) = oneshot();
    // If the worker is gone, the sender is dropped unfilled, and says so.
    let _ = shared.worker_handles[worker].spawn(Box::new(move || {
        // The future is made as part of the task, so that a panic ends only the task.
        Box::pin(async move {
            let value = make().await;
            sender.fill(Ok(value));
        })
    }));
    handle
}

/// Starts a task on this worker that runs to its end even if the waiting task is dropped.
pub(crate) fn spawn_here<F, T>(
    shared: &Shared,
    make: impl FnOnce() -> F + Send + 'static,
) -> JoinHandle<T>
where
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    spawn_to(shared, current(|worker| worker.number).unwrap_or(0), make)
}

impl<T> OneshotSender<T> {
    pub(crate) fn fill(mut self, value: Result<T>) {
        self.put(value);
    }

    fn put(&mut self, value: Result<T>) {
        let Some(cell) = self.cell.take() else { return };
        let mut state = cell.state.lock();
        state.value = Some(value);
        let waker = state.waker.take();
        drop(state);
        cell.filled.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        self.put(Err(Error::new(
            ErrorKind::Closed,
            "the task ended without a result: it panicked, or the store is closed",
        )));
    }
}

impl<T> JoinHandle<T> {
    /// Blocks until the task is done. Do not call it in a task: await the handle there.
    ///
    /// # Errors
    /// `Closed` if the task panicked, or the store was closed before it began; `Invalid` on a
    /// worker if the task is not done yet.
    pub fn join(self) -> Result<T> {
        if stepped::is_stepped_here() {
            return self.join_stepping();
        }
        let mut state = self.cell.state.lock();
        loop {
            if let Some(value) = state.value.take() {
                return value;
            }
            refuse_on_worker()?;
            state = self.cell.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> JoinHandle<T> {
    /// Whether the task has finished, so that the result is available.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.cell.state.lock().value.is_some()
    }

    /// Works like [`JoinHandle::join`], on a thread that steps the workers itself.
    fn join_stepping(self) -> Result<T> {
        loop {
            let value = self.cell.state.lock().value.take();
            if let Some(value) = value {
                return value;
            }
            refuse_on_worker()?;
            if stepped::step_any() == Step::Stuck {
                return Err(stepped::deadlock());
            }
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.cell.state.lock();
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
