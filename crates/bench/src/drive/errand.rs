//! Long work of clients that is not measured: loading, checking, reading into memory. It shows how far it is, and can
//! be stopped.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use qpair::Result;

use crate::kv::{Kv, KvResult};
use crate::progress::Progress;
use crate::run::{interrupted, watch};

/// What the clients of an errand share with the thread that watches it.
#[derive(Debug, Default)]
pub(crate) struct Errand {
    done: AtomicU64,
    stop: AtomicBool,
    running: AtomicUsize,
    /// Which piece of the work is next.
    next: AtomicUsize,
}

impl Errand {
    /// Adds to what is done.
    ///
    /// # Errors
    /// If the work is to stop.
    pub(crate) fn advance(&self, records: u64) -> KvResult<()> {
        self.done.fetch_add(records, Ordering::Relaxed);
        match self.stop.load(Ordering::Relaxed) {
            true => Err(interrupted().into()),
            false => Ok(()),
        }
    }

    /// Takes the next piece of the work, from 0.
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

/// Runs `work` on so many clients, and answers what each answered; the first error stops the others. `total` is the
/// number of records there are to do, about.
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
