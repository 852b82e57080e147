//! A lock for tasks: who waits for it gives the worker to others.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

#[derive(Debug, Default)]
struct State {
    held: bool,
    waiters: Vec<Waker>,
}

/// One task at a time is between [`Alone::enter`] and the end of its guard.
#[derive(Debug, Default)]
pub(crate) struct Alone(Mutex<State>);

/// The right to be alone.
#[derive(Debug)]
pub(crate) struct AloneGuard(Arc<Alone>);

impl Alone {
    pub(crate) async fn enter(self: &Arc<Self>) -> AloneGuard {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !std::mem::replace(&mut state.held, true) {
                return Poll::Ready(AloneGuard(self.clone()));
            }
            state.waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Whether somebody is there.
    pub(crate) fn is_held(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).held
    }
}

impl Drop for AloneGuard {
    fn drop(&mut self) {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.held = false;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
    }
}
