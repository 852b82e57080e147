//! Counts merges of sparse leaves that run in the background, and waits for them.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use crate::sync::{Ticket, Waiters};

#[derive(Debug, Default)]
pub(crate) struct Merging {
    begun: AtomicU64,
    ended: AtomicU64,
    waiters: Waiters,
}

/// A guard that counts as a merge under way until it is dropped.
pub(crate) struct UnderWay(Arc<Merging>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let ended = self.0.ended.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.waiters.wake_up_to(ended);
    }
}

impl Merging {
    pub(crate) fn begin(self: &Arc<Self>) -> UnderWay {
        self.begun.fetch_add(1, Ordering::SeqCst);
        UnderWay(self.clone())
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.ended.load(Ordering::SeqCst) != self.begun.load(Ordering::SeqCst)
    }

    /// Waits until as many merges have ended as are under way now.
    pub(crate) async fn wait(&self) {
        let begun = self.begun.load(Ordering::SeqCst);
        let mut ticket = Ticket::default();
        let is_over = || self.ended.load(Ordering::SeqCst) >= begun;
        poll_fn(|context| {
            if is_over() {
                return Poll::Ready(());
            }
            self.waiters.wait(&mut ticket, begun, context.waker());
            // The last merge may have ended in between.
            if is_over() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
