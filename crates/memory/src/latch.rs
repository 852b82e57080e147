//! The optimistic latch, and its state in which a device owns the bytes.
//!
//! One 64-bit word: `version << 3 | WAITERS | IN_FLIGHT | EXCLUSIVE`.
//!
//! | EXCLUSIVE | IN_FLIGHT | state | readers | writers |
//! |---|---|---|---|---|
//! | 0 | 0 | open | optimistic | may latch |
//! | 1 | 0 | latched by one writer, briefly | refused | refused |
//! | 1 | 1 | a device is filling the bytes | park | park |
//! | 0 | 1 | a device is reading the bytes (write-back) | optimistic | park |
//!
//! The version changes whenever bytes may have changed. WAITERS is set only together with
//! IN_FLIGHT, so a plain store releases the brief latch, and only the end of an I/O needs a
//! read-modify-write.

use crate::sync::{AtomicU64, Ordering, fence};

const EXCLUSIVE: u64 = 1;
const IN_FLIGHT: u64 = 2;
const WAITERS: u64 = 4;
const FLAGS: u64 = EXCLUSIVE | IN_FLIGHT | WAITERS;
const STEP: u64 = 8;

/// The state that an optimistic reader saw: the latch word without its I/O flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

/// The reason why a latch was not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Another thread holds the latch for a few instructions, or the version has changed: try again
    /// soon.
    Contended,
    /// A device reads or writes the bytes: wait until it is done ([`Latch::add_waiter`]).
    InFlight,
}

/// The latch; see the module for its states.
#[derive(Debug)]
pub struct Latch {
    word: AtomicU64,
}

impl Default for Latch {
    fn default() -> Self {
        Self::new()
    }
}

impl Latch {
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// Begins an optimistic read.
    ///
    /// # Errors
    /// [`Blocked`] while a writer or a filling device has the bytes.
    #[inline(always)]
    pub fn optimistic(&self) -> Result<Version, Blocked> {
        // Acquire: pairs with the Release of `release_exclusive`, so that the bytes read next are
        // at least as new as this version.
        let word = self.word.load(Ordering::Acquire);
        if word & EXCLUSIVE == 0 {
            Ok(Version(word & !FLAGS))
        } else if word & IN_FLIGHT != 0 {
            Err(Blocked::InFlight)
        } else {
            Err(Blocked::Contended)
        }
    }

    /// Whether everything read since `version` was taken was stable.
    #[inline(always)]
    #[must_use]
    pub fn validate(&self, version: Version) -> bool {
        // Acquire fence: pairs with the Release fence of `lock`. If a reader saw any byte that a
        // writer stored after latching, the load below sees that writer's EXCLUSIVE or a later
        // value.
        fence(Ordering::Acquire);
        let word = self.word.load(Ordering::Relaxed);
        word & !(IN_FLIGHT | WAITERS) == version.0
    }

    /// Turns an optimistic read into the exclusive latch, if nothing changed since.
    ///
    /// # Errors
    /// [`Blocked`] if the version has changed, or another thread or a device has the latch.
    #[inline]
    pub fn try_upgrade(&self, version: Version) -> Result<(), Blocked> {
        self.lock(version.0)
    }

    /// Takes the exclusive latch if it is open.
    ///
    /// # Errors
    /// [`Blocked`] if another thread or a device has it.
    #[inline]
    pub fn try_exclusive(&self) -> Result<(), Blocked> {
        self.lock(self.word.load(Ordering::Relaxed) & !FLAGS)
    }

    fn lock(&self, open: u64) -> Result<(), Blocked> {
        match self.word.compare_exchange(
            open,
            open | EXCLUSIVE,
            Ordering::Acquire,
            Ordering::Relaxed,
        ) {
            Ok(_) => {
                // Release fence: pairs with the Acquire fence of `validate`.
                fence(Ordering::Release);
                Ok(())
            }
            Err(word) if word & IN_FLIGHT != 0 => Err(Blocked::InFlight),
            Err(_) => Err(Blocked::Contended),
        }
    }

    /// Releases the brief exclusive latch. Changes the version, and returns the new one.
    #[inline]
    pub fn release_exclusive(&self) -> Version {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & FLAGS, EXCLUSIVE);
        let open = (word & !FLAGS).wrapping_add(STEP);
        self.word.store(open, Ordering::Release);
        Version(open)
    }

    /// Changes from exclusive to *being filled*: the device may write, and readers and writers
    /// wait.
    pub fn begin_fill(&self) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & FLAGS, EXCLUSIVE);
        self.word.store(word | IN_FLIGHT, Ordering::Release);
    }

    /// Changes from *being filled* to open, with a new version. Returns whether a task waits.
    #[must_use]
    pub fn end_fill(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & (EXCLUSIVE | IN_FLIGHT), EXCLUSIVE | IN_FLIGHT);
        let open = (word & !FLAGS).wrapping_add(STEP);
        // AcqRel: publishes the bytes, and sees everything that a waiter did before it set WAITERS.
        self.word.swap(open, Ordering::AcqRel) & WAITERS != 0
    }

    /// Changes from exclusive to *being written back*, with a new version: readers continue, and
    /// writers wait.
    pub fn begin_write_back(&self) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & FLAGS, EXCLUSIVE);
        self.word.store((word & !FLAGS).wrapping_add(STEP) | IN_FLIGHT, Ordering::Release);
    }

    /// Changes from *being written back* to open, with the same version. Returns whether a task
    /// waits.
    #[must_use]
    pub fn end_write_back(&self) -> bool {
        let word = self.word.fetch_and(!(IN_FLIGHT | WAITERS), Ordering::AcqRel);
        debug_assert_eq!(word & (EXCLUSIVE | IN_FLIGHT), IN_FLIGHT);
        word & WAITERS != 0
    }

    /// Announces a waiter for the end of the I/O.
    ///
    /// Returns `false` if no I/O is in flight any more: nothing will wake the caller, which must
    /// try again. The caller must be in the list of waiters already. The thread that ends the I/O
    /// looks there after [`Latch::end_fill`] or [`Latch::end_write_back`], so no waiter is missed.
    #[must_use]
    pub fn add_waiter(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & IN_FLIGHT == 0 {
                return false;
            }
            match self.word.compare_exchange_weak(
                word,
                word | WAITERS,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Whether a device reads or writes the bytes at the moment.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.word.load(Ordering::Relaxed) & IN_FLIGHT != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn writer_moves_the_version() {
        let latch = Latch::new();
        let before = latch.optimistic().unwrap();
        assert!(latch.validate(before));
        latch.try_upgrade(before).unwrap();
        assert_eq!(latch.optimistic(), Err(Blocked::Contended));
        assert!(!latch.validate(before));
        let _ = latch.release_exclusive();
        assert!(!latch.validate(before));
        assert_eq!(latch.try_upgrade(before), Err(Blocked::Contended));
        assert!(latch.optimistic().is_ok());
    }

    #[test]
    fn a_filling_device_parks_everybody() {
        let latch = Latch::new();
        assert!(!latch.add_waiter());
        latch.try_exclusive().unwrap();
        latch.begin_fill();
        assert_eq!(latch.optimistic(), Err(Blocked::InFlight));
        assert_eq!(latch.try_exclusive(), Err(Blocked::InFlight));
        assert!(latch.add_waiter());
        assert!(latch.end_fill());
        assert!(!latch.add_waiter());
    }

    #[test]
    fn write_back_lets_readers_through() {
        let latch = Latch::new();
        latch.try_exclusive().unwrap();
        latch.begin_write_back();
        let version = latch.optimistic().unwrap();
        assert_eq!(latch.try_upgrade(version), Err(Blocked::InFlight));
        assert!(latch.validate(version));
        assert!(!latch.end_write_back());
        assert!(latch.validate(version));
        latch.try_upgrade(version).unwrap();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// A writer keeps two words equal: a validated reader must never see them differ.
    #[test]
    fn validated_reads_are_consistent() {
        loom::model(|| {
            let shared = Arc::new((Latch::new(), AtomicU64::new(0), AtomicU64::new(0)));
            let writer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    if shared.0.try_exclusive().is_ok() {
                        shared.1.store(1, Ordering::Relaxed);
                        shared.2.store(1, Ordering::Relaxed);
                        let _ = shared.0.release_exclusive();
                    }
                })
            };
            if let Ok(version) = shared.0.optimistic() {
                let a = shared.1.load(Ordering::Relaxed);
                let b = shared.2.load(Ordering::Relaxed);
                if shared.0.validate(version) {
                    assert_eq!(a, b);
                }
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn two_writers_exclude_each_other() {
        loom::model(|| {
            let shared = Arc::new((Latch::new(), AtomicU64::new(0)));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        if shared.0.try_exclusive().is_err() {
                            return 0;
                        }
                        let seen = shared.1.load(Ordering::Relaxed);
                        shared.1.store(seen + 1, Ordering::Relaxed);
                        let _ = shared.0.release_exclusive();
                        1
                    })
                })
                .collect();
            let done: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
            assert_eq!(shared.1.load(Ordering::Relaxed), done);
        });
    }

    /// A task that waits for a page in flight is woken, whatever the interleaving.
    fn no_waiter_is_missed(write_back: bool) {
        loom::model(move || {
            let shared = Arc::new((Latch::new(), Mutex::new(Vec::<u32>::new())));
            shared.0.try_exclusive().unwrap();
            if write_back {
                shared.0.begin_write_back()
            } else {
                shared.0.begin_fill()
            }
            let device = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let waited =
                        if write_back { shared.0.end_write_back() } else { shared.0.end_fill() };
                    if waited { shared.1.lock().unwrap().drain(..).count() } else { 0 }
                })
            };
            let parked = {
                let mut waiters = shared.1.lock().unwrap();
                let parked = shared.0.add_waiter();
                if parked {
                    waiters.push(1);
                }
                parked
            };
            let woken = device.join().unwrap();
            assert_eq!(woken, usize::from(parked), "a task would sleep for ever");
        });
    }

    #[test]
    fn no_waiter_on_a_load_is_missed() {
        no_waiter_is_missed(false);
    }

    #[test]
    fn no_waiter_on_a_write_back_is_missed() {
        no_waiter_is_missed(true);
    }

    #[test]
    fn a_reader_sees_what_was_loaded() {
        loom::model(|| {
            let shared = Arc::new((Latch::new(), AtomicU64::new(0)));
            shared.0.try_exclusive().unwrap();
            shared.0.begin_fill();
            let device = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.store(7, Ordering::Relaxed);
                    let _ = shared.0.end_fill();
                })
            };
            if let Ok(version) = shared.0.optimistic() {
                let seen = shared.1.load(Ordering::Relaxed);
                assert!(shared.0.validate(version));
                assert_eq!(seen, 7);
            }
            device.join().unwrap();
        });
    }

    /// Two tasks want a cold page, and an evictor works on the frame into which one of them loads
    /// it. `reference` is the parent's word: 0 is cold, 1 says that the page is in the frame. Only
    /// the holder of the parent's latch changes it. A thread that reads the page sees the content
    /// from the device, a task that waits is woken, and the page is loaded once for each time that
    /// it left.
    #[test]
    fn two_tasks_fault_one_page_beside_an_evictor() {
        struct Shared {
            parent: Latch,
            reference: AtomicU64,
            frame: Latch,
            content: AtomicU64,
            waiters: Mutex<Vec<u32>>,
            loads: AtomicU64,
        }

        /// One attempt of a task. Returns the content, if it was reached, and whether the task
        /// waited.
        fn fault(shared: &Shared, task: u32) -> (Option<u64>, bool) {
            let Ok(version) = shared.parent.optimistic() else { return (None, false) };
            let hot = shared.reference.load(Ordering::Relaxed) == 1;
            if !shared.parent.validate(version) {
                return (None, false);
            }
            if !hot {
                if shared.parent.try_upgrade(version).is_err() {
                    return (None, false);
                }
                // The evictor may hold the free frame briefly; the real loader spins here.
                if shared.frame.try_exclusive().is_err() {
                    let _ = shared.parent.release_exclusive();
                    return (None, false);
                }
                shared.reference.store(1, Ordering::Relaxed);
                shared.frame.begin_fill();
                let _ = shared.parent.release_exclusive();
                // The completion, handled by the worker that began the load.
                shared.content.store(7, Ordering::Relaxed);
                shared.loads.fetch_add(1, Ordering::Relaxed);
                if shared.frame.end_fill() {
                    shared.waiters.lock().unwrap().clear();
                }
                return (None, false);
            }
            match shared.frame.optimistic() {
                Ok(below) if shared.parent.validate(version) => {
                    let seen = shared.content.load(Ordering::Relaxed);
                    (shared.frame.validate(below).then_some(seen), false)
                }
                Err(Blocked::InFlight) if shared.parent.validate(version) => {
                    let mut waiters = shared.waiters.lock().unwrap();
                    let parked = shared.frame.add_waiter();
                    if parked {
                        waiters.push(task);
                    }
                    (None, parked)
                }
                _ => (None, false),
            }
        }

        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new(Shared {
                parent: Latch::new(),
                reference: AtomicU64::new(0),
                frame: Latch::new(),
                content: AtomicU64::new(0),
                waiters: Mutex::new(Vec::new()),
                loads: AtomicU64::new(0),
            });
            let tasks: Vec<_> = (0..2)
                .map(|task| {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        let seen = fault(&shared, task).0;
                        assert!(seen.is_none_or(|seen| seen == 7), "a reader saw {seen:?}");
                    })
                })
                .collect();
            // The evictor latches the frame first, and then its parent, as a sweep does.
            let mut evictions = 0;
            if shared.frame.try_exclusive().is_ok() {
                if shared.parent.try_exclusive().is_ok() {
                    if shared.reference.load(Ordering::Relaxed) == 1 {
                        assert_eq!(shared.content.load(Ordering::Relaxed), 7);
                        shared.reference.store(0, Ordering::Relaxed);
                        shared.content.store(0, Ordering::Relaxed);
                        evictions += 1;
                    }
                    let _ = shared.parent.release_exclusive();
                }
                let _ = shared.frame.release_exclusive();
            }
            tasks.into_iter().for_each(|task| task.join().unwrap());
            assert!(shared.waiters.lock().unwrap().is_empty(), "a task would sleep for ever");
            let loads = shared.loads.load(Ordering::Relaxed);
            let hot = shared.reference.load(Ordering::Relaxed);
            assert_eq!(loads, evictions + hot, "{loads} loads, {evictions} evictions");
        });
    }
}
