//! Shadow doorbells: a driver's store to memory wakes a device only if the device is about to
//! sleep.
//!
//! ```text
//! driver                                       device
//! store the shadow: new                        store the event: the value that it has seen
//! fence (SeqCst)                               fence (SeqCst)
//! load the event; ring if old..new passes it   load the shadow; sleep if it is the value seen
//! ```
//!
//! Invariant: at least one of the two loads sees the other side's store, since both stores come
//! before a fence and both loads after one. So either the driver rings, or the device does not
//! sleep. While the device is awake, the event stays behind the values that the device has seen,
//! and the driver passes the event only after a whole round of the queue.

use crate::shared::SharedBytes;
use crate::sync::{Ordering, fence};

/// A word of four bytes that both sides load and store.
pub trait DoorbellWord: Copy {
    /// Loads the word. What the other side wrote before its store is seen after this load
    /// (acquire).
    fn load(self) -> u32;

    /// Stores the word. What was written before is seen by a side that sees the store (release).
    fn store(self, value: u32);
}

/// A doorbell word in shared memory.
#[derive(Clone, Copy)]
pub struct SharedWord<'a> {
    /// The bytes that contain the word.
    pub bytes: SharedBytes<'a>,
    /// The offset of the word in `bytes`, a multiple of 4.
    pub at: usize,
}

impl DoorbellWord for SharedWord<'_> {
    #[inline(always)]
    fn load(self) -> u32 {
        self.bytes.load_u32_acquire(self.at)
    }

    #[inline(always)]
    fn store(self, value: u32) {
        self.bytes.store_u32_release(self.at, value);
    }
}

/// Publishes a doorbell that goes from `old` to `new`, for the driver's side. Returns whether the
/// device asked to be rung.
#[inline]
#[must_use]
pub fn tell(shadow: impl DoorbellWord, event: impl DoorbellWord, old: u32, new: u32) -> bool {
    shadow.store(new);
    // Pairs with the fence in `listen`.
    fence(Ordering::SeqCst);
    passes(event.load(), old, new)
}

/// Asks to be rung for the next value after `seen`, for the device's side. Returns whether the
/// doorbell is still at `seen`, so that the device may sleep.
#[inline]
#[must_use]
pub fn listen(shadow: impl DoorbellWord, event: impl DoorbellWord, seen: u32) -> bool {
    event.store(seen);
    // Pairs with the fence in `tell`.
    fence(Ordering::SeqCst);
    shadow.load() == seen
}

/// Whether a doorbell that goes from `old` to `new` passes `event`: whether `event` is in
/// `old..new`, modulo the size of the word.
#[inline]
fn passes(event: u32, old: u32, new: u32) -> bool {
    let (event, old, new) = (event as u16, old as u16, new as u16);
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_doorbell_passes_what_lies_between() {
        const ENTRIES: u32 = 7;
        for old in 0..ENTRIES {
            for steps in 0..ENTRIES {
                let new = (old + steps) % ENTRIES;
                let between: Vec<_> = (0..steps).map(|step| (old + step) % ENTRIES).collect();
                for event in 0..ENTRIES {
                    let what = format!("{event} in {old}..{new}");
                    assert_eq!(passes(event, old, new), between.contains(&event), "{what}");
                }
            }
        }
        // A hostile device may write an invalid event. That causes or suppresses a ring, and does
        // no other harm.
        assert!(!passes(60_000, 1, 2));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{AtomicBool, AtomicU32};
    use loom::sync::Arc;
    use loom::thread;

    impl DoorbellWord for &AtomicU32 {
        fn load(self) -> u32 {
            AtomicU32::load(self, Ordering::Acquire)
        }

        fn store(self, value: u32) {
            AtomicU32::store(self, value, Ordering::Release);
        }
    }

    #[derive(Default)]
    struct Bells {
        shadow: AtomicU32,
        event: AtomicU32,
        rung: AtomicBool,
    }

    /// A driver submits twice, and a device sleeps whenever it may. The device must never sleep
    /// after a submission for which no ring follows.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let bells = Arc::new(Bells::default());
            let driver = bells.clone();
            let driver = thread::spawn(move || {
                for old in 0..2 {
                    if tell(&driver.shadow, &driver.event, old, old + 1) {
                        driver.rung.store(true, Ordering::SeqCst);
                    }
                }
            });
            let mut seen = 0;
            let mut slept = false;
            for _ in 0..3 {
                let shadow = DoorbellWord::load(&bells.shadow);
                if shadow != seen {
                    seen = shadow;
                } else if listen(&bells.shadow, &bells.event, seen) {
                    slept = true;
                    break;
                }
            }
            driver.join().unwrap();
            let is_behind = DoorbellWord::load(&bells.shadow) != seen;
            assert!(!slept || !is_behind || bells.rung.load(Ordering::SeqCst));
        });
    }
}
