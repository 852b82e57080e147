//! Tasks that wait for something, each with one entry however often it is polled, in the order of
//! what they wait for.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use qpair_memory::locks::Mutex;

/// The value that a task waits for, and the number of its entry.
type Place = (u64, u64);

#[derive(Debug, Default)]
struct Entries {
    wakers: BTreeMap<Place, Waker>,
    next: u64,
    /// Entries that wakes have looked at.
    #[cfg(test)]
    looks: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters(Arc<Mutex<Entries>>);

/// The entry of one future, removed when the future is dropped.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    of: Option<(Waiters, Place)>,
}

impl Waiters {
    /// Notes that the future with this ticket waits for `at` until it is woken. An earlier value of
    /// the ticket is forgotten.
    pub(crate) fn wait(&self, ticket: &mut Ticket, at: u64, waker: &Waker) {
        let is_here = |(of, place): &(Self, Place)| place.0 == at && Arc::ptr_eq(&of.0, &self.0);
        if !ticket.of.as_ref().is_some_and(is_here) {
            ticket.end();
        }
        let mut entries = self.0.lock();
        let next = entries.next;
        // A future that was woken in vain keeps its place.
        let (_, place) = ticket.of.get_or_insert_with(|| (self.clone(), (at, next)));
        entries.next += 1;
        let entry = entries.wakers.entry(*place).or_insert_with(|| waker.clone());
        if !entry.will_wake(waker) {
            entry.clone_from(waker);
        }
    }

    /// Waits until this task is woken. Returns at once if `is_over`.
    pub(crate) async fn woken(&self, is_over: impl Fn() -> bool) {
        let mut ticket = Ticket::default();
        poll_fn(|context| {
            if is_over() || ticket.end() {
                return Poll::Ready(());
            }
            self.wait(&mut ticket, 0, context.waker());
            if is_over() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Returns the smallest value that a task waits for.
    pub(crate) fn first(&self) -> Option<u64> {
        self.0.lock().wakers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Wakes the tasks that wait for `at` or less.
    pub(crate) fn wake_up_to(&self, at: u64) {
        self.wake_some(|first| first <= at, 0);
    }

    /// Wakes the tasks that wait for `at`.
    pub(crate) fn wake_at(&self, at: u64) {
        self.wake_some(|first| first == at, at);
    }

    /// Wakes the tasks from value `from` on, as long as `is_such` holds for their values. Looks at
    /// no other entries.
    fn wake_some(&self, is_such: impl Fn(u64) -> bool, from: u64) {
        let mut woken = Vec::new();
        let mut entries = self.0.lock();
        while let Some((place, _)) = entries.wakers.range((from, 0)..).next() {
            let place = *place;
            #[cfg(test)]
            {
                entries.looks += 1;
            }
            if !is_such(place.0) {
                break;
            }
            woken.extend(entries.wakers.remove(&place));
        }
        drop(entries);
        woken.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn wake_all(&self) {
        let woken = std::mem::take(&mut self.0.lock().wakers);
        woken.into_values().for_each(Waker::wake);
    }

    /// Wakes the task that came first.
    pub(crate) fn wake_one(&self) {
        let first = self.0.lock().wakers.pop_first();
        if let Some((_, waker)) = first {
            waker.wake();
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().wakers.len()
    }
}

impl Ticket {
    /// Removes the entry. Returns whether the future was woken and has not waited again since.
    pub(crate) fn end(&mut self) -> bool {
        let Some((waiters, place)) = self.of.take() else { return false };
        waiters.0.lock().wakers.remove(&place).is_none()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Wakes;

    /// A regression: each step of many commits woke those whose turn it was, and looked at all
    /// others.
    #[test]
    fn waking_some_of_ten_thousand_looks_at_no_other() {
        let looks = |tasks: u64| {
            let (waiters, waker) = (Waiters::default(), Wakes::counted().1);
            let mut tickets: Vec<_> = (0..tasks).map(|_| Ticket::default()).collect();
            for (at, ticket) in tickets.iter_mut().enumerate() {
                waiters.wait(ticket, at as u64, &waker);
            }
            (0..tasks / 2).for_each(|at| waiters.wake_up_to(at));
            (tasks / 2..tasks).rev().for_each(|at| waiters.wake_at(at));
            assert_eq!(waiters.len(), 0);
            waiters.0.lock().looks
        };
        assert_eq!(looks(10_000), 100 * looks(100));
    }

    #[test]
    fn a_future_that_is_polled_often_waits_once_and_one_that_is_dropped_no_more() {
        let waiters = Waiters::default();
        let (wakes, waker) = Wakes::counted();
        let mut tickets: Vec<_> = (0..100).map(|_| Ticket::default()).collect();
        for _ in 0..10 {
            for (at, ticket) in tickets.iter_mut().enumerate() {
                waiters.wait(ticket, at as u64, &waker);
            }
        }
        assert_eq!((waiters.len(), waiters.first()), (100, Some(0)));
        tickets.truncate(50);
        assert_eq!(waiters.len(), 50);
        waiters.wake_up_to(9);
        assert_eq!((waiters.len(), waiters.first()), (40, Some(10)));
        assert_eq!(wakes.count(), 10);
        waiters.wake_one();
        assert!(tickets[10].end() && !tickets[11].end());
        waiters.wake_all();
        assert_eq!(wakes.count(), 49);
        assert_eq!(waiters.len(), 0);
    }
}
