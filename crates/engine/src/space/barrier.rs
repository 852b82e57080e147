//! The barrier that every change of the trees passes, so that a checkpoint can find an instant
//! between them.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};

use qpair_format::{Error, Result};
use qpair_memory::locks::Mutex;

use crate::sync::{Ticket, Waiters};

/// The number of bits that count the changes inside; the bits above them count reserved pages.
const INSIDE_BITS: u32 = 24;
const INSIDE: u64 = (1 << INSIDE_BITS) - 1;

/// Counts the changes to the trees that are under way, and lets no change in while it is closed.
#[derive(Debug, Default)]
pub(crate) struct CommitBarrier {
    /// The number of changes inside, and the pages reserved for them, in one word: leaving gives
    /// back both at once.
    inside: AtomicU64,
    closed: AtomicBool,
    /// Whether the barrier is closed for good, because the store is being closed.
    shut: AtomicBool,
    waiters: Waiters,
    /// Changes inside that wait for a frame, and can leave and begin again.
    preparing: Waiters,
    /// The waker of the checkpoint that waits until no commit is inside.
    closer: Mutex<Option<Waker>>,
}

/// Permission to change the trees. No checkpoint's instant comes until it is dropped.
#[derive(Debug)]
pub(crate) struct BarrierGuard {
    barrier: Arc<CommitBarrier>,
    reserved: u64,
}

impl BarrierGuard {
    /// Reserves `pages` pages for this holder until it is dropped. Returns the number of pages
    /// reserved for all holders.
    pub(crate) fn reserve(&mut self, pages: u64) -> u64 {
        self.reserved += pages;
        let added = pages << INSIDE_BITS;
        (self.barrier.inside.fetch_add(added, Ordering::Relaxed) + added) >> INSIDE_BITS
    }

    pub(crate) fn take_back(&mut self) {
        let reserved = std::mem::take(&mut self.reserved);
        self.barrier.inside.fetch_sub(reserved << INSIDE_BITS, Ordering::Relaxed);
    }
}

impl Drop for BarrierGuard {
    fn drop(&mut self) {
        self.barrier.leave(self.reserved);
    }
}

impl CommitBarrier {
    /// Waits until the barrier is open.
    ///
    /// # Errors
    /// `Closed` if the store is being closed.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<BarrierGuard> {
        let mut ticket = Ticket::default();
        poll_fn(|context| {
            if let Some(entered) = self.try_enter() {
                return Poll::Ready(entered);
            }
            self.waiters.wait(&mut ticket, 0, context.waker());
            // The barrier may have been opened in between.
            match self.try_enter() {
                Some(entered) => Poll::Ready(entered),
                None => Poll::Pending,
            }
        })
        .await
    }

    #[inline]
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Result<BarrierGuard>> {
        // This change is counted first: the task that closes the barrier either sees the count, or
        // this change sees that the barrier is closed.
        self.inside.fetch_add(1, Ordering::SeqCst);
        let guard = BarrierGuard { barrier: self.clone(), reserved: 0 };
        if !self.closed.load(Ordering::SeqCst) {
            return Some(Ok(guard));
        }
        drop(guard);
        self.shut.load(Ordering::SeqCst).then(|| Err(Error::closed()))
    }

    #[inline]
    pub(crate) fn reserved(&self) -> u64 {
        self.inside.load(Ordering::Relaxed) >> INSIDE_BITS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inside.load(Ordering::SeqCst) & INSIDE == 0
    }

    fn leave(&self, reserved: u64) {
        let before = self.inside.fetch_sub(reserved << INSIDE_BITS | 1, Ordering::SeqCst);
        if before & INSIDE == 1
            && self.closed.load(Ordering::SeqCst)
            && let Some(closer) = self.closer.lock().take()
        {
            closer.wake();
        }
    }

    /// Whether the barrier is closed. Otherwise [`CommitBarrier::give_way`] wakes the waker.
    pub(crate) fn is_awaited(&self, ticket: &mut Ticket, waker: &Waker) -> bool {
        self.preparing.wait(ticket, 0, waker);
        self.closed.load(Ordering::SeqCst)
    }

    /// Wakes the changes inside that can leave, if the barrier is closed.
    pub(crate) fn give_way(&self) {
        if self.closed.load(Ordering::SeqCst) {
            self.preparing.wake_all();
        }
    }

    /// Lets no change in from now on, and waits until no change is inside. Returns `false` if the
    /// barrier was opened meanwhile, as a panic does.
    pub(crate) async fn close(&self) -> bool {
        self.closed.store(true, Ordering::SeqCst);
        let outcome = || match self.closed.load(Ordering::SeqCst) {
            true => self.is_empty().then_some(true),
            false => Some(false),
        };
        poll_fn(|context| {
            if let Some(closed) = outcome() {
                return Poll::Ready(closed);
            }
            *self.closer.lock() = Some(context.waker().clone());
            outcome().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Lets changes in again, unless the store is being closed.
    pub(crate) fn open(&self) {
        if !self.shut.load(Ordering::SeqCst) {
            self.closed.store(false, Ordering::SeqCst);
            self.waiters.wake_all();
            // Those inside do not look for it when they leave an open barrier.
            if let Some(closer) = self.closer.lock().take() {
                closer.wake();
            }
        }
    }

    /// Lets no commit in any more; waiting commits get the error that the store is closed.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
        self.closed.store(true, Ordering::SeqCst);
        self.waiters.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;
    use crate::sync::Wakes;

    /// A panic opens the barrier. A checkpoint that waited for a commit to leave was then never
    /// woken, and its store never closed.
    #[test]
    fn a_task_that_closes_a_barrier_which_is_opened_goes_on() {
        let barrier = Arc::new(CommitBarrier::default());
        let inside = barrier.try_enter().unwrap().unwrap();
        let (wakes, waker) = Wakes::counted();
        let mut context = Context::from_waker(&waker);
        let mut closing = pin!(barrier.close());
        assert!(closing.as_mut().poll(&mut context).is_pending());
        barrier.open();
        assert_eq!(wakes.count(), 1);
        assert_eq!(closing.as_mut().poll(&mut context), Poll::Ready(false));
        drop(inside);
        assert_eq!(pin!(barrier.close()).poll(&mut context), Poll::Ready(true));
    }

    /// A regression: on a full device commits waited inside for frames that only a checkpoint would
    /// give them, and the checkpoint waited for them.
    #[test]
    fn a_change_that_waits_inside_is_woken_once_a_checkpoint_waits_for_it() {
        let barrier = Arc::new(CommitBarrier::default());
        let inside = barrier.try_enter().unwrap().unwrap();
        let (wakes, waker) = Wakes::counted();
        let mut ticket = Ticket::default();
        assert!(!barrier.is_awaited(&mut ticket, &waker));
        barrier.give_way();
        assert_eq!(wakes.count(), 0);
        let mut closing = pin!(barrier.close());
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(closing.as_mut().poll(&mut context).is_pending());
        barrier.give_way();
        assert_eq!(wakes.count(), 1);
        assert!(barrier.is_awaited(&mut ticket, &waker));
        drop(inside);
        assert_eq!(closing.as_mut().poll(&mut context), Poll::Ready(true));
    }
}
