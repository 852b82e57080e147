//! Tasks that wait for something, each with one entry however often it is polled, in the order of what they wait for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// What is waited for, and which entry it is.
type Place = (u64, u64);

#[derive(Debug, Default)]
struct Entries {
    wakers: BTreeMap<Place, Waker>,
    next: u64,
}

/// A list of those who wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters(Arc<Mutex<Entries>>);

/// The entry of one future; it goes with it.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    of: Option<(Waiters, Place)>,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the future with this ticket waits for `at`, until it is woken.
    pub(crate) fn wait(&self, ticket: &mut Ticket, at: u64, waker: &Waker) {
        let mut entries = self.lock();
        let next = entries.next;
        // One that was woken in vain is where it was before.
        let (_, place) = ticket.of.get_or_insert_with(|| (self.clone(), (at, next)));
        entries.next += 1;
        let entry = entries.wakers.entry(*place).or_insert_with(|| waker.clone());
        if !entry.will_wake(waker) {
            entry.clone_from(waker);
        }
    }

    /// The least that is waited for.
    pub(crate) fn first(&self) -> Option<u64> {
        self.lock().wakers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Wakes those who wait for `at` or less.
    pub(crate) fn wake_up_to(&self, at: u64) {
        let mut entries = self.lock();
        if entries.wakers.first_key_value().is_none_or(|((first, _), _)| *first > at) {
            return;
        }
        let later = entries.wakers.split_off(&(at.saturating_add(1), 0));
        let woken = std::mem::replace(&mut entries.wakers, later);
        drop(entries);
        woken.into_values().for_each(Waker::wake);
    }

    /// Wakes all.
    pub(crate) fn wake_all(&self) {
        let woken = std::mem::take(&mut self.lock().wakers);
        woken.into_values().for_each(Waker::wake);
    }

    /// Wakes the one who came first.
    pub(crate) fn wake_one(&self) {
        let first = self.lock().wakers.pop_first();
        if let Some((_, waker)) = first {
            waker.wake();
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().wakers.len()
    }
}

impl Ticket {
    /// Gives the entry up; whether the future was woken and has not waited again since.
    pub(crate) fn end(&mut self) -> bool {
        let Some((waiters, place)) = self.of.take() else { return false };
        waiters.lock().wakers.remove(&place).is_none()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_future_that_is_polled_often_waits_once_and_one_that_is_dropped_no_more() {
        let (waiters, count) = (Waiters::default(), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
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
        assert_eq!(count.0.load(Ordering::Relaxed), 10);
        waiters.wake_one();
        assert!(tickets[10].end() && !tickets[11].end());
        waiters.wake_all();
        assert_eq!(count.0.load(Ordering::Relaxed), 49);
        assert_eq!(waiters.len(), 0);
    }
}
