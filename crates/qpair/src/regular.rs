//! Checkpoints at regular intervals, by a thread of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use qpair_engine::{Error, ErrorKind, Result, Store, WeakStore};

/// Ends the thread when the store is closed.
struct End {
    ended: Arc<AtomicBool>,
    thread: Thread,
}

impl Drop for End {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The shortest interval, so that a store without changes does not use a processor.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Makes a checkpoint of the store after each interval in which something was committed. The thread
/// does not keep the store open.
pub(crate) fn begin(store: &Store, interval: Duration) -> Result<()> {
    let (ended, weak) = (Arc::new(AtomicBool::new(false)), store.downgrade());
    let seen = ended.clone();
    let thread = thread::Builder::new()
        .name("qpair-checkpoint".to_owned())
        .spawn(move || run(&weak, interval.max(INTERVAL_MIN), &seen))
        .map_err(|error| {
            Error::new(ErrorKind::Limit, format!("starting a thread for checkpoints: {error}"))
        })?;
    store.keep_until_closed(End { ended, thread: thread.thread().clone() });
    Ok(())
}

fn run(store: &WeakStore, interval: Duration, ended: &AtomicBool) {
    // The newest commit in a checkpoint of this thread. The first interval has one always, because
    // recovery leaves commits in the log.
    let mut last = None;
    loop {
        let begun = Instant::now();
        while let Some(left) = interval.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
        {
            thread::park_timeout(left);
            if ended.load(Ordering::Acquire) {
                return;
            }
        }
        let Some(store) = store.upgrade() else { return };
        let Ok(now) = store.metrics().map(|metrics| metrics.last_timestamp) else { return };
        if last != Some(now) && store.checkpoint().is_ok() {
            last = Some(now);
        }
    }
}
