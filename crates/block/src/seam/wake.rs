//! The event by which other threads end a worker's sleep.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd that a channel's wait listens to.
///
/// Protocol: the worker calls [`WakeEvent::prepare`], checks once more for work, and only then
/// waits. Other threads first publish their work and then call [`WakeEvent::wake`]. A wake is never
/// lost, and costs a system call only when the worker sleeps or is about to.
#[derive(Debug)]
pub struct WakeEvent {
    fd: OwnedFd,
    sleeping: AtomicBool,
    /// Set after the signal, and cleared before it: while there is a signal, the flag is set or
    /// about to be.
    signalled: AtomicBool,
}

impl WakeEvent {
    /// Creates an event that is not signalled.
    ///
    /// # Errors
    /// Returns the error of eventfd(2) if no descriptors are left.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd, sleeping: AtomicBool::new(false), signalled: AtomicBool::new(false) })
    }

    /// Announces that the worker is about to wait.
    pub fn prepare(&self) {
        // SeqCst: ordered before the worker's last check for work. Pairs with the fence in `wake`.
        self.sleeping.store(true, Ordering::SeqCst);
    }

    /// Announces that the worker is awake, and clears the signal.
    pub fn awake(&self) {
        // Another thread has woken this one: the signal is set, or about to be. A signal that is
        // set after this call is found by the next call; otherwise it would end every sleep at
        // once.
        if !self.sleeping.swap(false, Ordering::SeqCst) || self.is_signalled() {
            self.clear();
        }
    }

    /// Clears the signal.
    pub fn clear(&self) {
        // SeqCst, and before the read: a signal that comes in between leaves the flag set, which
        // costs one turn.
        self.signalled.store(false, Ordering::SeqCst);
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.fd, &mut count);
    }

    /// Ends the worker's wait, if it waits. Call it after the work was published.
    pub fn wake(&self) {
        // SeqCst: ordered after the caller's work was published. Pairs with `prepare`.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.signal();
        }
    }

    /// Sets the signal whether or not the worker sleeps.
    pub fn signal(&self) {
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        // SeqCst: pairs with the load in `is_signalled`.
        self.signalled.store(true, Ordering::SeqCst);
    }

    /// Whether the signal is set. Makes no system call, for a worker that polls for completions
    /// instead of sleeping.
    #[inline]
    #[must_use]
    pub fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::SeqCst)
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_set(event: &WakeEvent) -> bool {
        let mut count = [0; 8];
        rustix::io::read(event, &mut count).is_ok()
    }

    #[test]
    fn wakes_only_a_sleeper() {
        let event = WakeEvent::new().unwrap();
        event.wake();
        assert!(!is_set(&event));
        event.prepare();
        event.wake();
        event.wake();
        assert!(event.is_signalled());
        assert!(is_set(&event));
        event.awake();
        assert!(!is_set(&event));
        assert!(!event.is_signalled());
    }

    /// A thread that wakes the worker may be slow, so that the worker is awake before the signal
    /// comes.
    #[test]
    fn a_late_signal_ends_one_sleep() {
        let event = WakeEvent::new().unwrap();
        event.prepare();
        assert!(event.sleeping.swap(false, Ordering::SeqCst), "another thread wakes");
        event.awake();
        event.signal();
        event.prepare();
        assert!(event.is_signalled());
        event.awake();
        assert!(!is_set(&event) && !event.is_signalled());
    }
}
