//! A thread that serves a socket until it is told to stop.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use qpair_block::{Error, Result, WakeEvent};

/// The signal that tells a service's thread to stop.
pub(crate) struct Stop {
    is_over: AtomicBool,
    wake: WakeEvent,
}

impl Stop {
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// The descriptor polls readable once the service is to stop.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// A thread that serves a socket. Dropping it stops the thread.
pub(crate) struct Service {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts a thread of this name, for `what`.
    ///
    /// # Errors
    /// `Limit` if there are no more threads or descriptors.
    pub(crate) fn start(
        name: &str,
        what: &str,
        serve: impl FnOnce(&Stop) + Send + 'static,
    ) -> Result<Self> {
        let wake =
            WakeEvent::new().map_err(|cause| Error::os(cause, "creating an event for a socket"))?;
        let stop = Arc::new(Stop { is_over: AtomicBool::new(false), wake });
        let its = stop.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || serve(&its))
            .map_err(|cause| Error::thread(cause, what))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.is_over.store(true, Ordering::Release);
        self.stop.wake.signal();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked will not report anything.
            let _ = thread.join();
        }
    }
}
