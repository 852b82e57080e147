//! A reconnection: a thread that connects a queue again, because a channel may not wait for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{Error, Result, WakeEvent};
use qpair_memory::locks::Mutex;

use super::association::{Association, Queue};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Shared {
    found: Mutex<Option<Result<Queue>>>,
    is_over: AtomicBool,
    wake: Arc<WakeEvent>,
}

/// Attempts to connect again, until one succeeds or their time is over. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Reconnection(Arc<Shared>);

impl Reconnection {
    /// Begins the attempts, after a pause if that is wanted. `wake` is signalled when they have
    /// ended.
    ///
    /// # Errors
    /// `Limit` if there is no thread.
    pub(super) fn begin(
        association: Arc<Association>,
        (number, entries): (u16, u32),
        pauses: bool,
        until: Instant,
        wake: Arc<WakeEvent>,
    ) -> Result<Self> {
        let shared =
            Arc::new(Shared { found: Mutex::default(), is_over: AtomicBool::default(), wake });
        let own = shared.clone();
        std::thread::Builder::new()
            .name("nvme-reconnect".into())
            .spawn(move || {
                if pauses {
                    std::thread::sleep(PAUSE);
                }
                own.run(|| association.connect_queue(number, entries), until);
            })
            .map_err(|cause| {
                Error::os(cause, "starting a thread that connects to an NVMe/TCP target")
            })?;
        Ok(Self(shared))
    }

    /// Takes the result, if the attempts have ended.
    pub(super) fn take(&self) -> Option<Result<Queue>> {
        self.0.found.lock().take()
    }
}

impl Shared {
    fn run(&self, mut connect: impl FnMut() -> Result<Queue>, until: Instant) {
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

impl Drop for Reconnection {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}
