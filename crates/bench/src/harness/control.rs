//! Requests to stop, and the clients that are running.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use qpair::Result;

use crate::kv::Clients;
use crate::progress::{Progress, interrupted};

#[derive(Debug)]
pub(super) struct Control {
    running: AtomicUsize,
    stop: AtomicBool,
}

/// Marks a client as ended when dropped, whether it succeeded or failed.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Control {
    pub(super) fn new(clients: usize) -> Self {
        Self { running: AtomicUsize::new(clients), stop: AtomicBool::new(false) }
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether all clients have ended, or should end early.
    pub(super) fn is_over(&self, progress: &dyn Progress) -> bool {
        progress.stop() || self.is_stopped() || self.running.load(Ordering::Relaxed) == 0
    }

    /// Runs a client. Its error stops all clients.
    pub(super) async fn run<T>(&self, client: impl Future<Output = Result<T>>) -> Result<T> {
        let _running = Running(&self.running);
        let outcome = client.await;
        if outcome.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// Stops the clients, waits for them, and ends the phase.
    pub(super) fn finish<T>(&self, clients: Clients<T>, progress: &dyn Progress) -> Result<Vec<T>> {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = clients.join();
        progress.end();
        if progress.stop() { Err(interrupted()) } else { Ok(outcome?) }
    }
}
