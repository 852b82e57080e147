//! A reconnection: a thread that connects again, because a channel may not wait for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qpair_memory::locks::Mutex;

use crate::{Error, Result, WakeEvent};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Shared<T> {
    found: Mutex<Option<Result<T>>>,
    is_over: AtomicBool,
    wake: Arc<WakeEvent>,
}

/// Attempts to connect again, until one succeeds or their time is over. Dropping it ends them.
#[derive(Debug)]
pub struct Reconnection<T>(Arc<Shared<T>>);

impl<T: Send + 'static> Reconnection<T> {
    /// Begins the attempts, after a pause if that is wanted. `wake` is signalled when they have
    /// ended.
    ///
    /// # Errors
    /// `Limit` if there is no thread.
    pub fn begin(
        connect: impl FnMut() -> Result<T> + Send + 'static,
        pauses: bool,
        until: Instant,
        wake: Arc<WakeEvent>,
    ) -> Result<Self> {
        let shared =
            Arc::new(Shared { found: Mutex::default(), is_over: AtomicBool::default(), wake });
        let own = shared.clone();
        std::thread::Builder::new()
            .name("qpair-reconnect".into())
            .spawn(move || {
                if pauses {
                    std::thread::sleep(PAUSE);
                }
                own.run(connect, until);
            })
            .map_err(|cause| Error::os(cause, "starting a thread that connects to a server"))?;
        Ok(Self(shared))
    }
}

impl<T> Reconnection<T> {
    /// Takes the result, if the attempts have ended.
    #[must_use]
    pub fn take(&self) -> Option<Result<T>> {
        self.0.found.lock().take()
    }
}

impl<T> Shared<T> {
    fn run(&self, mut connect: impl FnMut() -> Result<T>, until: Instant) {
        loop {
            let result = connect();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if result.is_ok() || Instant::now() + PAUSE >= until {
                *self.found.lock() = Some(result);
                self.wake.signal();
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl<T> Drop for Reconnection<T> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}
