//! Long work of clients that is not measured, such as loading, checking and reading into memory. It
//! reports progress and can be stopped.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use qpair::Result;

use super::control::Control;
use crate::kv::System;
use crate::progress::{Progress, interrupted};

/// The state that the clients share with the thread that watches them.
#[derive(Debug)]
pub(crate) struct Job {
    control: Control,
    done: AtomicU64,
    /// The next piece of the work.
    next: AtomicUsize,
}

impl Job {
    /// Adds to the finished records.
    ///
    /// # Errors
    /// An error if the work is to stop.
    pub(crate) fn advance(&self, records: u64) -> Result<()> {
        self.done.fetch_add(records, Ordering::Relaxed);
        if self.control.is_stopped() { Err(interrupted()) } else { Ok(()) }
    }

    /// Takes the next piece of the work and returns its number, from 0.
    pub(crate) fn take(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// Runs `work` on `clients` clients and returns their results; the first error stops the others.
/// `total` is the approximate number of records.
pub(crate) fn run_job<S, F, Fut, T>(
    system: &S,
    clients: usize,
    (phase, total): (&str, u64),
    progress: &dyn Progress,
    work: F,
) -> Result<Vec<T>>
where
    S: System,
    F: Fn(S::Session, Arc<Job>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T>> + 'static,
    T: Send + 'static,
{
    let (control, done, next) = (Control::new(clients), AtomicU64::new(0), AtomicUsize::new(0));
    let job = Arc::new(Job { control, done, next });
    progress.begin(phase, total);
    let clients = {
        let job = job.clone();
        system.start(clients, move |_, session| {
            let (job, work) = (job.clone(), work(session, job.clone()));
            async move { job.control.run(work).await }
        })?
    };
    while !job.control.is_over(progress) {
        progress.at(job.done.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(20));
    }
    job.control.finish(clients, progress)
}

/// Runs short work on one client, and returns its result.
pub(crate) fn once<S, F, Fut, T>(system: &S, work: F) -> Result<T>
where
    S: System,
    F: Fn(S::Session) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T>> + 'static,
    T: Send + 'static,
{
    let results = system.start(1, move |_, session| work(session))?.join()?;
    results.into_iter().next().ok_or_else(interrupted)
}
