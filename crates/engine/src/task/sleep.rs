//! Tasks that wait for a time.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use qpair_format::{Error, ErrorKind, Result};

use super::current;

/// Lets a task of a store wait, without processor time: its worker runs other tasks meanwhile, and
/// sleeps if they wait too. The task continues at the worker's first turn after `duration`, which
/// on an idle worker is some 50 µs later.
///
/// # Errors
/// `Invalid` if awaited outside of a store's workers, which have the timer.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// use std::time::{Duration, Instant};
///
/// let begun = Instant::now();
/// store.spawn(|| qpair_engine::sleep(Duration::from_millis(2))).join()??;
/// assert!(begun.elapsed() >= Duration::from_millis(2));
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn sleep(duration: Duration) -> Result<()> {
    let Some(deadline) = current(|worker| worker.deadline(duration)) else {
        return Err(Error::with_hint(
            ErrorKind::Invalid,
            "a task sleeps by the timer of its worker, but this thread is not a worker of a store",
            "spawn the task with Store::spawn",
        ));
    };
    poll_fn(|context| match deadline.poll(context.waker()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
    Ok(())
}
