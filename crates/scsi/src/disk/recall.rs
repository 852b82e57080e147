//! Coordination of a disk's channels. A reset waits until their commands in flight have come back
//! (a recall). A flush waits until they have seen how those commands ended at the device (a look).
//!
//! Invariants:
//! - Each recall has a number, larger than that of the one before; so has each look.
//! - A channel that has answered a recall's number has in flight none of the commands that were in
//!   flight when it saw the number.
//! - A channel that has answered a look's number has been told of the end of all commands that it
//!   had sent when it saw the number.
//! - A channel that is not busy has nothing in flight, and has taken all that ended.

use qpair_memory::locks::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

use qpair_block::{WakeEvent, time};

use crate::sync::{AtomicBool, AtomicU64, Ordering, fence};

const NAP: Duration = Duration::from_micros(50);

#[derive(Debug, Default)]
pub(crate) struct Recall {
    number: AtomicU64,
    looks: AtomicU64,
    channels: Mutex<Vec<Weak<Answers>>>,
}

/// A channel's side of recalls and looks, on a cache line of its own: each thread writes only to
/// its channel's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Answers {
    is_busy: AtomicBool,
    answered: AtomicU64,
    looked: AtomicU64,
    /// An event that wakes the channel's thread.
    wake: Option<Arc<WakeEvent>>,
}

impl Recall {
    /// Adds a new channel, whose thread this event wakes.
    pub(crate) fn enlist(&self, wake: Option<Arc<WakeEvent>>) -> Arc<Answers> {
        let answers = Arc::new(Answers { wake, ..Answers::default() });
        let mut channels = self.channels.lock();
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(Arc::downgrade(&answers));
        answers
    }

    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Begins a recall of all channels. Returns its number.
    pub(crate) fn begin(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed) + 1
    }

    #[inline(always)]
    pub(crate) fn looks(&self) -> u64 {
        // Acquire: what is sent after this is sent after the flush was done; the partner is
        // `begin_look`.
        self.looks.load(Ordering::Acquire)
    }

    /// Begins a look: asks all channels how their sent commands ended, and wakes all but the asking
    /// one. Returns its number.
    pub(crate) fn begin_look(&self, but: &Arc<Answers>) -> u64 {
        let number = self.looks.fetch_add(1, Ordering::AcqRel) + 1;
        for channel in self.all() {
            if let Some(wake) = &channel.wake
                && !Arc::ptr_eq(&channel, but)
                && channel.is_unseen(number)
            {
                wake.wake();
            }
        }
        number
    }

    pub(crate) fn is_seen(&self, number: u64) -> bool {
        !self.all().iter().any(|channel| channel.is_unseen(number))
    }

    fn all(&self) -> Vec<Arc<Answers>> {
        let channels = self.channels.lock();
        let all = channels.iter().filter_map(Weak::upgrade).collect();
        // The partner is the drop of a closed channel's last `Arc`: what that channel noted is seen
        // here.
        fence(Ordering::Acquire);
        all
    }

    /// Waits for the answers to a recall. Returns the number of missing ones when the time is up.
    pub(crate) fn wait(&self, number: u64, at_most: Duration) -> usize {
        let start = time::now();
        let channels = self.channels.lock().clone();
        loop {
            let missing = missing(&channels, number);
            if missing == 0 || time::now() - start >= at_most {
                return missing;
            }
            time::sleep(NAP);
        }
    }
}

fn missing(channels: &[Weak<Answers>], number: u64) -> usize {
    channels.iter().filter_map(Weak::upgrade).filter(|it| it.owes(number)).count()
}

impl Answers {
    fn owes(&self, number: u64) -> bool {
        // Acquire: what the channel's thread did with what came back is seen by the thread that is
        // told so.
        self.is_busy.load(Ordering::Acquire) && self.answered.load(Ordering::Acquire) < number
    }

    fn is_unseen(&self, number: u64) -> bool {
        // Acquire: the notified thread sees everything that the channel noted.
        self.is_busy.load(Ordering::Acquire) && self.looked.load(Ordering::Acquire) < number
    }

    /// Answers a look: the end is known of all commands that were sent when it was seen.
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

    /// One channel is told of a loss of power by a command that it sent before a flush was done on
    /// another channel: the flush knows of the loss.
    #[test]
    fn what_was_sent_before_a_flush_is_known_after_a_look() {
        for goes_idle in [false, true] {
            loom::model(move || {
                let recall = Arc::new(Recall::default());
                let (own, other) = (recall.enlist(None), recall.enlist(None));
                let (sent, power_losses) =
                    (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
                let channel = {
                    let (recall, sent, power_losses) =
                        (recall.clone(), sent.clone(), power_losses.clone());
                    loom::thread::spawn(move || {
                        other.set_busy(true);
                        // With nothing sent yet.
                        other.answer_look(recall.looks());
                        sent.store(1, Ordering::Release);
                        // It ends, and says so.
                        power_losses.store(1, Ordering::Relaxed);
                        match goes_idle {
                            true => other.set_busy(false),
                            false => other.answer_look(recall.looks()),
                        }
                        other
                    })
                };
                // The device does it, and then the flush.
                if sent.load(Ordering::Acquire) == 1 {
                    let look = recall.begin_look(&own);
                    if recall.is_seen(look) {
                        assert_eq!(power_losses.load(Ordering::Relaxed), 1);
                    }
                }
                drop(channel.join().unwrap());
            });
        }
    }

    /// A thread that waits for a recall sees everything that a channel did with its commands,
    /// because that channel answers or is no longer busy.
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
                let channels = recall.channels.lock().clone();
                while missing(&channels, number) > 0 {
                    loom::thread::yield_now();
                }
                assert_eq!(buffer.load(Ordering::Relaxed), 1);
                drop(channel.join().unwrap());
            });
        }
    }
}
