//! Whether what a disk's channels had under way has come back: what a reset waits for.
//!
//! Invariants:
//! - a recall has a number, and each is larger than the one before;
//! - a channel that has answered a recall's number has nothing under way that it had when it saw it;
//! - a channel that is not busy has nothing under way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_micros(50);

/// A disk's side.
#[derive(Debug, Default)]
pub(crate) struct Recall {
    number: AtomicU64,
    channels: Mutex<Vec<Weak<Answers>>>,
}

/// A channel's side, on a cache line of its own: each thread writes to its channel's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Answers {
    is_busy: AtomicBool,
    answered: AtomicU64,
}

impl Recall {
    /// A channel was opened.
    pub(crate) fn enlist(&self) -> Arc<Answers> {
        let answers = Arc::new(Answers::default());
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(Arc::downgrade(&answers));
        answers
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Asks all channels; the number to wait for.
    pub(crate) fn begin(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Waits for the answers; how many are missing when the time is up.
    pub(crate) fn wait(&self, number: u64, at_most: Duration) -> usize {
        let start = Instant::now();
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner).clone();
        loop {
            let missing = channels.iter().filter_map(Weak::upgrade).filter(|it| it.owes(number));
            let missing = missing.count();
            if missing == 0 || start.elapsed() >= at_most {
                return missing;
            }
            std::thread::sleep(NAP);
        }
    }
}

impl Answers {
    fn owes(&self, number: u64) -> bool {
        // Acquire: what the channel's thread did with what came back is seen by whoever is told so.
        self.is_busy.load(Ordering::Acquire) && self.answered.load(Ordering::Acquire) < number
    }

    #[inline(always)]
    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::Release);
    }

    pub(crate) fn answer(&self, number: u64) {
        self.answered.store(number, Ordering::Release);
    }
}
