//! A lock for tasks: a waiting task gives the worker to others, and waiters get the lock in turn.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use super::waiters::{Ticket, Waiters};

/// A lock that one task at a time holds, between [`AsyncMutex::enter`] and the end of its guard.
#[derive(Debug, Default)]
pub(crate) struct AsyncMutex {
    held: AtomicBool,
    waiters: Waiters,
}

#[derive(Debug)]
pub(crate) struct AsyncMutexGuard(Arc<AsyncMutex>);

/// The place of a waiting task. If the task was woken and is dropped, the next one is woken.
struct Turn<'a> {
    alone: &'a AsyncMutex,
    ticket: Ticket,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.ticket.end() && !self.alone.is_held() {
            self.alone.waiters.wake_one();
        }
    }
}

impl AsyncMutex {
    pub(crate) async fn enter(self: &Arc<Self>) -> AsyncMutexGuard {
        let mut turn = Turn { alone: self, ticket: Ticket::default() };
        poll_fn(|context| {
            if let Some(guard) = self.try_enter() {
                return Poll::Ready(guard);
            }
            self.waiters.wait(&mut turn.ticket, 0, context.waker());
            // The lock may have been released in between.
            self.try_enter().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn try_enter(self: &Arc<Self>) -> Option<AsyncMutexGuard> {
        // SeqCst, with the store in the guard's drop: if this task does not get the lock, the
        // guard's drop sees its entry, provided that the entry was made before.
        (!self.held.swap(true, Ordering::SeqCst)).then(|| AsyncMutexGuard(self.clone()))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }
}

impl Drop for AsyncMutexGuard {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::SeqCst);
        self.0.waiters.wake_one();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::Context;

    use super::*;
    use crate::sync::Wakes;

    /// A regression: each waiter whose turn came woke all others, so 10,000 waiters made fifty
    /// million polls.
    #[test]
    fn ten_thousand_that_wait_are_woken_once_each() {
        const TASKS: usize = 10_000;
        let alone = Arc::new(AsyncMutex::default());
        let (wakes, waker) = Wakes::counted();
        let mut context = Context::from_waker(&waker);
        let mut first = pin!(alone.enter());
        let Poll::Ready(mut held) = first.as_mut().poll(&mut context) else { panic!("free") };
        let mut waiting: Vec<Pin<Box<_>>> = (0..TASKS).map(|_| Box::pin(alone.enter())).collect();
        for _ in 0..3 {
            waiting.iter_mut().for_each(|task| {
                assert!(task.as_mut().poll(&mut context).is_pending());
            });
        }
        assert_eq!(alone.waiters.len(), TASKS);
        // Every other waiter is dropped: most before they are woken, one just after.
        let mut left = waiting.into_iter().enumerate().filter(|(at, _)| at % 2 == 0 || *at == 1);
        let gone_when_woken = 3;
        for turn in 0.. {
            drop(held);
            let Some((_, mut next)) = left.next() else { break };
            if turn == gone_when_woken {
                drop(next);
                let Some(after) = left.next() else { break };
                next = after.1;
            }
            let Poll::Ready(guard) = next.as_mut().poll(&mut context) else { panic!("in turn") };
            held = guard;
        }
        assert!(alone.waiters.len() == 0 && !alone.is_held());
        assert!(wakes.count() <= TASKS as u32);
    }
}
