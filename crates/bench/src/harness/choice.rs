//! Chooses how many of a run's clients make requests, while the run warms up.
//!
//! The fewest clients begin. Each level has twice as many, up to all of them, and one slice of the
//! warm-up; then the levels come once more, from the most to the fewest, so that a system that
//! becomes faster by itself favours none. The clients above the chosen number end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The share of the best throughput with which a smaller number of clients is preferred.
const GOOD_ENOUGH: f64 = 0.97;

/// The sleep of a client that is not admitted, before it asks again.
const ASKS_AGAIN: Duration = Duration::from_millis(2);

/// The number of clients that make requests.
pub(super) struct Choice {
    /// The clients with a lower number make requests.
    admitted: AtomicUsize,
    is_made: AtomicBool,
}

impl Choice {
    pub(super) fn new(clients: usize) -> Self {
        Self { admitted: AtomicUsize::new(clients), is_made: AtomicBool::new(true) }
    }

    /// Admits this many clients, for now.
    pub(super) fn admit(&self, clients: usize) {
        self.is_made.store(false, Ordering::Relaxed);
        self.admitted.store(clients, Ordering::Relaxed);
    }

    /// Admits this many clients, and ends the others.
    pub(super) fn make(&self, clients: usize) {
        self.admitted.store(clients, Ordering::Relaxed);
        self.is_made.store(true, Ordering::Relaxed);
    }

    pub(super) fn admitted(&self) -> usize {
        self.admitted.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn admits(&self, number: usize) -> bool {
        number < self.admitted.load(Ordering::Relaxed)
    }

    /// Waits until a client is admitted. Returns `false` if it never will be, or the run ends.
    #[cold]
    pub(super) async fn wait(&self, number: usize, is_over: impl Fn() -> bool) -> bool {
        while !self.admits(number) {
            // The choice is made last, and read first.
            if (self.is_made.load(Ordering::Relaxed) && !self.admits(number)) || is_over() {
                return false;
            }
            if qpair::task::sleep(ASKS_AGAIN).await.is_err() {
                // The client has a thread of its own.
                std::thread::sleep(ASKS_AGAIN);
            }
        }
        true
    }
}

/// Returns the numbers of clients that are tried, in ascending order, for `threads` threads.
pub(super) fn levels(clients: usize, threads: usize) -> Vec<usize> {
    let mut levels: Vec<usize> =
        std::iter::successors(Some(threads.max(1)), |level| level.checked_mul(2))
            .take_while(|level| *level < clients)
            .collect();
    levels.push(clients);
    levels
}

/// Returns the smallest level that is nearly as good as the best; `done` has what each one did in
/// equal times.
pub(super) fn best(levels: &[usize], done: &[u64]) -> Option<usize> {
    let enough = done.iter().max().map(|most| *most as f64 * GOOD_ENOUGH)?;
    let tried = levels.iter().zip(done);
    tried.filter(|(_, done)| **done as f64 >= enough).map(|(level, _)| *level).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_double_from_one_client_a_thread_to_all() {
        assert_eq!(levels(256, 2), [2, 4, 8, 16, 32, 64, 128, 256]);
        assert_eq!(levels(200, 2), [2, 4, 8, 16, 32, 64, 128, 200]);
        assert_eq!(levels(1, 2), [1]);
        assert_eq!(levels(3, 0), [1, 2, 3]);
    }

    #[test]
    fn the_fewest_clients_win_that_are_nearly_as_good() {
        assert_eq!(best(&[2, 4, 8], &[500, 980, 1000]), Some(4));
        assert_eq!(best(&[2, 4, 8], &[500, 900, 1000]), Some(8));
        assert_eq!(best(&[2, 4, 8], &[1000, 900, 400]), Some(2));
        assert_eq!(best(&[2, 4], &[0, 0]), Some(2));
        assert_eq!(best(&[], &[]), None);
    }

    #[test]
    fn clients_wait_until_they_are_admitted_or_the_choice_is_made() {
        let choice = Choice::new(4);
        assert!(choice.admits(3) && !choice.admits(4));
        choice.admit(2);
        std::thread::scope(|scope| {
            let waits = |number| {
                let choice = &choice;
                scope.spawn(move || {
                    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                    let mut wait = std::pin::pin!(choice.wait(number, || false));
                    loop {
                        if let std::task::Poll::Ready(admitted) = wait.as_mut().poll(&mut context) {
                            return admitted;
                        }
                    }
                })
            };
            let (third, fourth) = (waits(2), waits(3));
            choice.admit(3);
            assert!(third.join().unwrap());
            choice.make(3);
            assert!(!fourth.join().unwrap());
        });
        assert_eq!(choice.admitted(), 3);
    }
}
