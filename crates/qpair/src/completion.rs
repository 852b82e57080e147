//! A queue of finished operations with a descriptor, for event loops and for other languages.
//!
//! ```text
//!  start(future) ──► polled here ──► result at once
//!                        │ pending
//!                  worker finishes ──► wake: woken += operation, descriptor readable
//!                                                │
//!  take ◄── polls woken operations ◄─────────────┘       no thread but the callers' own
//! ```
//!
//! [`CompletionQueue`] runs any futures, among them those of [`Table::get_async`],
//! [`Table::put_async`], [`Transaction::commit_async`] and [`Store::spawn`]. A future is polled on
//! the thread that starts it, and after each wake-up on a thread that takes results.
//!
//! ```
//! # use qpair::{Options, completion::CompletionQueue};
//! # fn main() -> qpair::Result<()> {
//! # let store = Options::new("ram:size=16MiB").open()?;
//! let table = store.table("t")?;
//! let queue = CompletionQueue::new()?;
//! for key in 0..10u8 {
//!     let table = table.clone();
//!     let put = async move { (key, table.put_async(&[key], b"v").await) };
//!     if let Some((key, outcome)) = queue.start(put) {
//!         println!("{key} is done at once: {outcome:?}");
//!     }
//! }
//! // An event loop would wait until `queue.as_fd()` is readable, and then call `take`.
//! let mut done = Vec::new();
//! while queue.in_flight() > 0 {
//!     queue.wait(&mut done, 1, usize::MAX, None);
//! }
//! # store.close()
//! # }
//! ```
//!
//! Invariants: if notifications are on and a result can be taken, the descriptor is readable. An
//! operation is counted as in flight until its result is taken, returned at once, or lost.
//!
//! [`Table::get_async`]: crate::Table::get_async
//! [`Table::put_async`]: crate::Table::put_async
//! [`Transaction::commit_async`]: crate::Transaction::commit_async
//! [`Store::spawn`]: crate::Store::spawn

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use qpair_block::locks::Mutex;
use qpair_engine::{Error, ErrorKind, Result};
use rustix::event::{EventfdFlags, eventfd};

/// A queue of operations and their results, with a descriptor that is readable while there are
/// results to take. Cheap to clone; any number of threads may start operations and take results.
///
/// When the last clone is dropped, results that nobody took are dropped. Operations that are under
/// way continue, and their futures are dropped at their next wake-up.
pub struct CompletionQueue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Notified if a result can be taken and a thread waits in [`CompletionQueue::wait`].
    arrived: Condvar,
    event: OwnedFd,
}

struct State<T> {
    /// The operations that were woken and not polled since.
    woken: VecDeque<Arc<Operation<T>>>,
    finished: VecDeque<T>,
    in_flight: usize,
    notifies: bool,
    /// Whether the descriptor is readable.
    signalled: bool,
    waiting: usize,
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

struct Operation<T> {
    /// `None` once the future is finished.
    future: Mutex<Option<Boxed<T>>>,
    /// Whether this is among the woken operations. Cleared before a poll, so that a wake-up during
    /// the poll leads to another poll.
    is_woken: AtomicBool,
    queue: Weak<Shared<T>>,
}

impl<T> Shared<T> {
    /// Makes the descriptor readable if there is something to take and notifications are on, and
    /// unreadable if there is nothing to take.
    fn settle(&self, state: &mut State<T>) {
        let has_more = !state.woken.is_empty() || !state.finished.is_empty();
        if has_more && state.notifies && !state.signalled {
            // A counter of 0 or 1 can be raised without waiting.
            state.signalled = rustix::io::write(&self.event, &1u64.to_ne_bytes()).is_ok();
        } else if !has_more && state.signalled {
            // Only a program that reads the descriptor itself makes this fail, and then the
            // descriptor is unreadable already.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
            state.signalled = false;
        }
    }

    fn add(&self, add: impl FnOnce(&mut State<T>)) {
        let mut state = self.state.lock();
        add(&mut state);
        self.settle(&mut state);
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.arrived.notify_one();
        }
    }

    /// Counts one operation less, and lets waiting threads see whether it was the last one.
    fn lose(&self) {
        let mut state = self.state.lock();
        state.in_flight -= 1;
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.arrived.notify_all();
        }
    }

    /// Polls an operation. If its future panics, the operation is lost and the panic continues.
    fn poll(&self, operation: &Arc<Operation<T>>) -> Option<T>
    where
        T: Send + 'static,
    {
        operation.is_woken.store(false, Ordering::Release);
        let waker = Waker::from(operation.clone());
        let mut future = operation.future.lock();
        let running = future.as_mut()?;
        let mut context = Context::from_waker(&waker);
        match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut context))) {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(result)) => {
                *future = None;
                Some(result)
            }
            Err(panic) => {
                *future = None;
                self.lose();
                resume_unwind(panic)
            }
        }
    }
}

impl<T: Send + 'static> Wake for Operation<T> {
    fn wake(self: Arc<Self>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(queue) = self.queue.upgrade() {
            queue.add(|state| state.woken.push_back(self));
        }
    }
}

impl<T: Send + 'static> CompletionQueue<T> {
    /// Creates a queue with notifications switched on.
    ///
    /// # Errors
    /// `Limit` if the process can have no more descriptors.
    pub fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(0, flags).map_err(|error| {
            Error::with_hint(
                ErrorKind::Limit,
                format!("creating the descriptor of a completion queue: {error}"),
                "raise the limit on open files (ulimit -n)",
            )
        })?;
        let state = State {
            woken: VecDeque::new(),
            finished: VecDeque::new(),
            in_flight: 0,
            notifies: true,
            signalled: false,
            waiting: 0,
        };
        let shared = Shared { state: Mutex::new(state), arrived: Condvar::new(), event };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Starts an operation. Polls the future once, on this thread, and returns the result if it is
    /// there at once; otherwise the result will be taken from the queue.
    pub fn start(&self, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let operation = Arc::new(Operation {
            future: Mutex::new(Some(Box::pin(future))),
            is_woken: AtomicBool::new(false),
            queue: Arc::downgrade(&self.shared),
        });
        self.shared.state.lock().in_flight += 1;
        let result = self.shared.poll(&operation)?;
        self.shared.lose();
        Some(result)
    }

    /// Begins an operation that another thread will complete.
    #[must_use]
    pub fn completer(&self) -> Completer<T> {
        self.shared.state.lock().in_flight += 1;
        Completer { queue: Some(Arc::downgrade(&self.shared)) }
    }

    /// Takes up to `max` results without waiting, and appends them to `results`; returns their
    /// number. Results come in the order in which operations finish.
    pub fn take(&self, results: &mut Vec<T>, max: usize) -> usize {
        let mut taken = 0;
        let mut state = self.shared.state.lock();
        // A future that wakes itself is polled again by the next call.
        let mut polls_left = state.woken.len();
        while taken < max {
            if let Some(result) = state.finished.pop_front() {
                state.in_flight -= 1;
                results.push(result);
                taken += 1;
                continue;
            }
            if polls_left == 0 {
                break;
            }
            let Some(operation) = state.woken.pop_front() else { break };
            polls_left -= 1;
            drop(state);
            let polled = self.shared.poll(&operation);
            drop(operation);
            state = self.shared.state.lock();
            if let Some(result) = polled {
                state.in_flight -= 1;
                results.push(result);
                taken += 1;
            }
        }
        self.shared.settle(&mut state);
        taken
    }

    /// Takes at least `min` and up to `max` results, and appends them to `results`; returns their
    /// number. Waits for them, but no longer than `timeout`, and not for more operations than are
    /// in flight. Other threads that take results may leave this one with fewer than `min`.
    pub fn wait(
        &self,
        results: &mut Vec<T>,
        min: usize,
        max: usize,
        timeout: Option<Duration>,
    ) -> usize {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut taken = self.take(results, max);
        while taken < min.min(max) {
            let mut state = self.shared.state.lock();
            if state.in_flight == 0 {
                break;
            }
            if state.woken.is_empty() && state.finished.is_empty() {
                state.waiting += 1;
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                state = match left {
                    None => {
                        let woken = self.shared.arrived.wait(state);
                        woken.unwrap_or_else(PoisonError::into_inner)
                    }
                    Some(left) => {
                        let woken = self.shared.arrived.wait_timeout(state, left);
                        woken.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
                state.waiting -= 1;
            }
            drop(state);
            taken += self.take(results, max - taken);
            if deadline.is_some_and(|at| Instant::now() >= at) {
                break;
            }
        }
        taken
    }

    /// Returns the number of operations whose results were not taken yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.state.lock().in_flight
    }

    /// Switches notifications by the descriptor on or off. A busy loop that takes results anyway
    /// saves system calls without them: it switches them off, takes results until there are none,
    /// switches them on, takes once more, and waits for the descriptor only if there was nothing.
    /// The descriptor becomes readable at once if results are there.
    pub fn set_notifications(&self, on: bool) {
        let mut state = self.shared.state.lock();
        state.notifies = on;
        self.shared.settle(&mut state);
    }
}

impl<T> AsFd for CompletionQueue<T> {
    /// Returns the descriptor, an eventfd. It is readable while results can be taken and
    /// notifications are on, and for a moment longer if another thread takes the last result.
    /// Wait for it with `poll` or `epoll`; do not read it, [`CompletionQueue::take`] does that.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl<T> Clone for CompletionQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T> fmt::Debug for CompletionQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.shared.state.lock().in_flight;
        f.debug_struct("CompletionQueue").field("in_flight", &in_flight).finish_non_exhaustive()
    }
}

/// An operation that a thread of the program completes. Dropped without a result, the operation is
/// no longer in flight, and nothing is added to the queue.
pub struct Completer<T> {
    /// `None` once completed.
    queue: Option<Weak<Shared<T>>>,
}

impl<T> Completer<T> {
    /// Adds the result to the queue.
    pub fn complete(mut self, result: T) {
        if let Some(queue) = self.queue.take().and_then(|queue| queue.upgrade()) {
            queue.add(|state| state.finished.push_back(result));
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take().and_then(|queue| queue.upgrade()) {
            queue.lose();
        }
    }
}

impl<T> fmt::Debug for Completer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
