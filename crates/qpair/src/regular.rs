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

/// Makes a checkpoint of the store after each interval in which something was committed. The thread
/// does not keep the store open.
pub(crate) fn begin(store: &Store, interval: Duration) -> Result<()> {
    let last = store.metrics()?.last_timestamp;
    let (ended, weak) = (Arc::new(AtomicBool::new(false)), store.downgrade());
    let seen = ended.clone();
    let thread = thread::Builder::new()
        .name("qpair-checkpoint".to_owned())
        .spawn(move || run(&weak, interval, last, &seen))
        .map_err(|error| {
            Error::new(ErrorKind::Limit, format!("starting a thread for checkpoints: {error}"))
        })?;
    store.keep_until_closed(End { ended, thread: thread.thread().clone() });
    Ok(())
}

/// `last` is the timestamp of the newest commit that needs no checkpoint.
fn run(store: &WeakStore, interval: Duration, mut last: u64, ended: &AtomicBool) {
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
        if last != now && store.checkpoint().is_ok() {
            last = now;
        }
    }
}
