//! Long work of clients that is not measured, such as loading, checking and reading into memory. It
//! reports progress and can be stopped.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use qpair::Result;

use crate::kv::{Kv, KvResult};
use crate::progress::Progress;
use crate::workload::run::{interrupted, watch};

/// The state that the clients share with the thread that watches them.
#[derive(Debug, Default)]
pub(crate) struct Errand {
    done: AtomicU64,
    stop: AtomicBool,
    running: AtomicUsize,
    /// The next piece of the work.
    next: AtomicUsize,
}

impl Errand {
    /// Adds to the finished records.
    ///
    /// # Errors
    /// An error if the work is to stop.
    pub(crate) fn advance(&self, records: u64) -> KvResult<()> {
        self.done.fetch_add(records, Ordering::Relaxed);
        match self.stop.load(Ordering::Relaxed) {
            true => Err(interrupted().into()),
            false => Ok(()),
        }
    }

    /// Takes the next piece of the work and returns its number, from 0.
    pub(crate) fn take(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `work` on `clients` clients and returns their results; the first error stops the others.
/// `total` is the approximate number of records.
pub(crate) fn run_errand<K, F, Fut, T>(
    kv: &K,
    clients: usize,
    (phase, total): (&str, u64),
    progress: &dyn Progress,
    work: F,
) -> Result<Vec<T>>
where
    K: Kv,
    F: Fn(K::Session, Arc<Errand>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = KvResult<T>> + 'static,
    T: Send + 'static,
{
    let errand = Arc::new(Errand { running: AtomicUsize::new(clients), ..Errand::default() });
    progress.begin(phase, total);
    let handles = {
        let errand = errand.clone();
        kv.start(clients, move |_, session| {
            let (errand, work) = (errand.clone(), work(session, errand.clone()));
            async move {
                let _running = Running(&errand.running);
                let outcome = work.await;
                if outcome.is_err() {
                    errand.stop.store(true, Ordering::Relaxed);
                }
                outcome
            }
        })?
    };
    let over = || errand.running.load(Ordering::Relaxed) == 0;
    watch(progress, &errand.done, &errand.stop, &over);
    let outcome = handles.join();
    progress.end();
    if progress.stop() {
        return Err(interrupted());
    }
    Ok(outcome?)
}
