//! Counts the commits for whose records there is room in the logs, and which have not appended them
//! yet. Only after such a commit has ended is it known what a checkpoint can free on a full log
//! device.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::sync::Waiters;

/// The number of expected records, and the tasks that wait for one to end.
#[derive(Debug, Default)]
pub(crate) struct ExpectedRecords {
    count: AtomicU32,
    /// Whether a task waits. A commit that ends reads only this flag if no task does.
    awaited: AtomicBool,
    waiters: Waiters,
}

impl ExpectedRecords {
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        // SeqCst, with `wait`: either this sees that a task waits, or that task sees the count.
        self.count.fetch_sub(1, Ordering::SeqCst);
        if self.awaited.load(Ordering::SeqCst) && self.awaited.swap(false, Ordering::SeqCst) {
            self.waiters.wake_all();
        }
    }

    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Waits until one of the commits has ended, or there is none.
    pub(crate) async fn wait(&self) {
        let over = || {
            self.awaited.store(true, Ordering::SeqCst);
            !self.is_any()
        };
        self.waiters.woken(over).await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;
    use crate::sync::Wakes;

    /// A waiter is polled once, when a commit ends, however long that takes. It returns even if
    /// other commits are still expected.
    #[test]
    fn who_waits_is_woken_once_and_by_an_end() {
        let expected = ExpectedRecords::default();
        expected.begin();
        expected.begin();
        let (wakes, waker) = Wakes::counted();
        let mut context = Context::from_waker(&waker);
        let mut waiting = pin!(expected.wait());
        for _ in 0..100 {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        expected.begin();
        assert_eq!(wakes.count(), 0);
        expected.end();
        assert_eq!(wakes.count(), 1);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
        expected.end();
        expected.end();
        assert_eq!(wakes.count(), 1);
        assert!(pin!(expected.wait()).poll(&mut context).is_ready());
    }
}
