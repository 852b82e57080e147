//! Whether what a disk's channels had under way has come back: what a reset waits for.
//!
//! Invariants:
//! - a recall has a number, and each is larger than the one before;
//! - a channel that has answered a recall's number has nothing under way that it had when it saw it;
//! - a channel that is not busy has nothing under way.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, AtomicU64, Ordering};

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
            let missing = missing(&channels, number);
            if missing == 0 || start.elapsed() >= at_most {
                return missing;
            }
            std::thread::sleep(NAP);
        }
    }
}

/// Channels that have not answered.
fn missing(channels: &[Weak<Answers>], number: u64) -> usize {
    channels.iter().filter_map(Weak::upgrade).filter(|it| it.owes(number)).count()
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

#[cfg(all(test, loom))]
mod tests {
    use super::*;

    /// Whoever waits for a recall sees all that a channel did with what it had under way: that channel answers, or is not busy any more.
    #[test]
    fn what_came_back_is_seen() {
        for goes_idle in [false, true] {
            loom::model(move || {
                let recall = Arc::new(Recall::default());
                let answers = recall.enlist();
                answers.set_busy(true);
                let buffer = Arc::new(AtomicU64::new(0));
                let channel = {
                    let (recall, buffer) = (recall.clone(), buffer.clone());
                    loom::thread::spawn(move || {
                        let seen = recall.number();
                        // What came back: with no order of its own.
                        buffer.store(1, Ordering::Relaxed);
                        match (seen, goes_idle) {
                            // It had not seen the recall, and has nothing under way.
                            (0, _) | (_, true) => answers.set_busy(false),
                            (number, false) => answers.answer(number),
                        }
                        answers
                    })
                };
                let number = recall.begin();
                let channels = recall.channels.lock().unwrap().clone();
                while missing(&channels, number) > 0 {
                    loom::thread::yield_now();
                }
                assert_eq!(buffer.load(Ordering::Relaxed), 1);
                drop(channel.join().unwrap());
            });
        }
    }
}
