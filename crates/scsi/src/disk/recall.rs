//! What a disk's channels say of themselves: whether what they had under way has come back, which a reset waits for, and whether they have
//! looked at what was reported to them, which a flush waits for.
//!
//! Invariants:
//! - a recall has a number, and each is larger than the one before; so has a look;
//! - a channel that has answered a recall's number has nothing under way that it had when it saw it;
//! - a channel that has answered a look's number has taken all that was reported to it before it saw it;
//! - a channel that is not busy has nothing under way, and nothing that it has not taken.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use qpair_block::WakeEvent;

use crate::sync::{AtomicBool, AtomicU64, Ordering};

const NAP: Duration = Duration::from_micros(50);

/// A disk's side.
#[derive(Debug, Default)]
pub(crate) struct Recall {
    number: AtomicU64,
    looks: AtomicU64,
    channels: Mutex<Vec<Weak<Answers>>>,
}

/// A channel's side, on a cache line of its own: each thread writes to its channel's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Answers {
    is_busy: AtomicBool,
    answered: AtomicU64,
    looked: AtomicU64,
    /// Ends the sleep of its thread.
    wake: Option<Arc<WakeEvent>>,
}

impl Recall {
    /// A channel was opened, whose thread this event wakes.
    pub(crate) fn enlist(&self, wake: Option<Arc<WakeEvent>>) -> Arc<Answers> {
        let answers = Arc::new(Answers { wake, ..Answers::default() });
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

    /// The last look that was asked for. To be read before the channel takes what was reported.
    #[inline(always)]
    pub(crate) fn looks(&self) -> u64 {
        // Acquire: what the device had reported when the look was asked for is seen after this.
        self.looks.load(Ordering::Acquire)
    }

    /// Asks all channels but the asking one to take what was reported to them; the number to ask about.
    pub(crate) fn begin_look(&self, but: &Arc<Answers>) -> u64 {
        let number = self.looks.fetch_add(1, Ordering::AcqRel) + 1;
        for channel in self.others(but).iter().filter(|it| it.is_unseen(number)) {
            if let Some(wake) = &channel.wake {
                wake.wake();
            }
        }
        number
    }

    /// Whether they have.
    pub(crate) fn has_looked(&self, number: u64, but: &Arc<Answers>) -> bool {
        !self.others(but).iter().any(|channel| channel.is_unseen(number))
    }

    fn others(&self, but: &Arc<Answers>) -> Vec<Arc<Answers>> {
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let all = channels.iter().filter_map(Weak::upgrade);
        all.filter(|channel| !Arc::ptr_eq(channel, but)).collect()
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

    fn is_unseen(&self, number: u64) -> bool {
        // Acquire: what the channel took is seen by whoever is told so.
        self.is_busy.load(Ordering::Acquire) && self.looked.load(Ordering::Acquire) < number
    }

    /// What was reported before this look was asked for is taken.
    #[cold]
    pub(crate) fn answer_look(&self, number: u64) {
        self.looked.store(number, Ordering::Release);
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

    /// A loss of power that one channel was told of before a flush ended on another: the flush knows of it.
    #[test]
    fn what_was_reported_before_a_look_is_known_after_it() {
        loom::model(|| {
            let recall = Arc::new(Recall::default());
            let (own, other) = (recall.enlist(None), recall.enlist(None));
            other.set_busy(true);
            let (reported, power_losses) =
                (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let channel = {
                let (recall, reported, power_losses) =
                    (recall.clone(), reported.clone(), power_losses.clone());
                loom::thread::spawn(move || {
                    // It is busy until it has taken what is reported.
                    while power_losses.load(Ordering::Relaxed) == 0 {
                        let look = recall.looks();
                        if reported.load(Ordering::Relaxed) == 1 {
                            power_losses.store(1, Ordering::Relaxed);
                        }
                        other.answer_look(look);
                        loom::thread::yield_now();
                    }
                    other.set_busy(false);
                    other
                })
            };
            // The device reports it there, and then the flush here.
            reported.store(1, Ordering::Relaxed);
            let look = recall.begin_look(&own);
            if recall.has_looked(look, &own) {
                assert_eq!(power_losses.load(Ordering::Relaxed), 1);
            }
            drop(channel.join().unwrap());
        });
    }

    /// Whoever waits for a recall sees all that a channel did with what it had under way: that channel answers, or is not busy any more.
    #[test]
    fn what_came_back_is_seen() {
        for goes_idle in [false, true] {
            loom::model(move || {
                let recall = Arc::new(Recall::default());
                let answers = recall.enlist(None);
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
