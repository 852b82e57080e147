//! Running clients, and clients that have a thread each.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use qpair::{Error, ErrorKind, Result};

type Join<T> = Box<dyn FnOnce() -> Result<T> + Send>;

/// Running clients. Dropping this does not stop them.
pub struct Clients<T> {
    joins: Vec<Join<T>>,
}

impl<T> std::fmt::Debug for Clients<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").field("running", &self.joins.len()).finish()
    }
}

impl<T> Clients<T> {
    /// Makes clients from functions that each wait for one client.
    #[must_use]
    pub fn new(joins: Vec<Box<dyn FnOnce() -> Result<T> + Send>>) -> Self {
        Self { joins }
    }

    /// Waits for all clients, and returns their results in order.
    ///
    /// # Errors
    /// The first error, after all clients have ended.
    pub fn join(self) -> Result<Vec<T>> {
        let answers: Vec<Result<T>> = self.joins.into_iter().map(|join| join()).collect();
        answers.into_iter().collect()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread until it is done.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // Futures of stores that block are ready at once, so no waker needs to be created for them.
    if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return value;
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park();
    }
}

/// Starts clients on a thread each. `session` makes a client's session, on the client's thread.
///
/// # Errors
/// An error if the system cannot start a thread. Clients that were started before end by
/// themselves.
pub fn start_threads<S, M, F, Fut, T>(clients: usize, session: M, client: F) -> Result<Clients<T>>
where
    M: Fn() -> Result<S> + Send + Sync + 'static,
    F: Fn(usize, S) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T>>,
    T: Send + 'static,
{
    let shared = Arc::new((session, client));
    let mut joins: Vec<Join<T>> = Vec::with_capacity(clients);
    for number in 0..clients {
        let shared = shared.clone();
        let thread = thread::Builder::new()
            .name(format!("client-{number}"))
            .spawn(move || block_on((shared.1)(number, (shared.0)()?)))
            .map_err(|error| {
                Error::new(ErrorKind::Invalid, format!("starting client {number}: {error}"))
            })?;
        joins.push(Box::new(move || {
            let panicked = |_| Error::new(ErrorKind::Invalid, format!("client {number} panicked"));
            thread.join().map_err(panicked)?
        }));
    }
    Ok(Clients::new(joins))
}
