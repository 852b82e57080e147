//! The gate that every change of the trees goes through, so that a checkpoint can find an instant between them.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use crate::error::{Error, Result};

/// Counts who changes the trees, and lets nobody in while it is closed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    inside: AtomicU64,
    closed: AtomicBool,
    /// Closed for good: the store is being closed.
    shut: AtomicBool,
    /// Those who wait to enter.
    waiters: Mutex<Vec<Waker>>,
    /// Who waits for nobody to be inside.
    closer: Mutex<Option<Waker>>,
}

/// Leave to change the trees; until it is dropped no checkpoint begins.
#[derive(Debug)]
pub(crate) struct GateGuard(Arc<Gate>);

impl Drop for GateGuard {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Gate {
    /// Waits until the gate is open.
    ///
    /// # Errors
    /// `Closed` if the store is being closed.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<GateGuard> {
        poll_fn(|context| {
            if let Some(entered) = self.try_enter() {
                return Poll::Ready(entered);
            }
            self.lock().push(context.waker().clone());
            // It may have been opened in between.
            match self.try_enter() {
                Some(entered) => Poll::Ready(entered),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Enters if the gate is open.
    #[inline]
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Result<GateGuard>> {
        // Counted first: who closes either sees the count, or is seen.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let guard = GateGuard(self.clone());
        if !self.closed.load(Ordering::SeqCst) {
            return Some(Ok(guard));
        }
        drop(guard);
        self.shut.load(Ordering::SeqCst).then(|| Err(Error::closed()))
    }

    fn leave(&self) {
        if self.inside.fetch_sub(1, Ordering::SeqCst) == 1
            && self.closed.load(Ordering::SeqCst)
            && let Some(closer) = self.closer().take()
        {
            closer.wake();
        }
    }

    fn closer(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.closer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        let waiters = std::mem::take(&mut *self.lock());
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Lets nobody in from now on, and waits until nobody is inside.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        poll_fn(|context| {
            if self.inside.load(Ordering::SeqCst) == 0 {
                return Poll::Ready(());
            }
            *self.closer() = Some(context.waker().clone());
            match self.inside.load(Ordering::SeqCst) {
                0 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }

    /// Lets them in again, unless the store is being closed.
    pub(crate) fn open(&self) {
        if !self.shut.load(Ordering::SeqCst) {
            self.closed.store(false, Ordering::SeqCst);
            self.wake_all();
        }
    }

    /// Lets nobody in any more; those who wait are told that the store is closed.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
        self.closed.store(true, Ordering::SeqCst);
        self.wake_all();
    }
}
