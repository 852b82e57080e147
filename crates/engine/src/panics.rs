//! Panics in the engine's own code: its changes are half done, so the store fails.
//!
//! Invariants: a panic in code of the program, a closure or a task, ends only that closure or task.
//! A panic while a frame is latched leaves the frame latched for ever, so that no thread sees the
//! page; a task that waits for the latch gets the store's failure.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;

use qpair_format::{Error, ErrorKind};

use crate::shared::Shared;

thread_local! {
    /// Whether code of the program is running within the engine's.
    static IN_PROGRAM: Cell<bool> = const { Cell::new(false) };
}

/// A guard for running code of the engine: when a panic drops it, the store fails.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    #[cold]
    fn drop(&mut self) {
        if !IN_PROGRAM.take() {
            self.0.fail_by_panic();
        }
    }
}

/// Runs code of the engine, whose panics fail the store.
#[inline(always)]
pub(crate) fn guarded<T>(shared: &Shared, run: impl FnOnce() -> T) -> T {
    let running = Running(shared);
    let outcome = run();
    std::mem::forget(running);
    outcome
}

/// Runs a future of the engine, whose panics fail the store.
pub(crate) async fn guarded_future<F: Future>(shared: &Shared, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| guarded(shared, || future.as_mut().poll(context))).await
}

/// Runs code of the program within a future of the engine; its panics do not fail the store.
pub(crate) fn of_program<T>(run: impl FnOnce() -> T) -> T {
    IN_PROGRAM.set(true);
    let outcome = run();
    IN_PROGRAM.set(false);
    outcome
}

impl Shared {
    /// Fails the store after a panic in the engine. From now on nothing in memory is relied on, and
    /// no thread or task waits for an event that will not come.
    #[cold]
    pub(crate) fn fail_by_panic(&self) {
        let error = Error::with_hint(
            ErrorKind::Panicked,
            "the engine panicked and the store cannot be used until it is opened again; standard error of the process has the panic message",
            "close the store and open it again: it recovers every acknowledged commit; report the panic",
        );
        self.lifecycle.set_panicked(error.clone());
        self.fail(error.clone());
        self.oracle.fail(error);
        self.checkpointing.barrier.open();
        // The workers are woken even if a write had failed before.
        self.worker_handles.iter().for_each(|handle| handle.wake_up());
    }
}
