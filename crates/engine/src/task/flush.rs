//! Flushes the device, one flush at a time.

use std::sync::atomic::Ordering;

use qpair_block::Request;
use qpair_format::{Error, ErrorKind, Result};

use super::handle::spawn_here;
use super::transfer::Transfer;
use super::worker::current;
use crate::shared::Shared;

/// Makes all completed writes durable. There is one flush at a time, because a flush that fails may
/// lose writes that another one, in flight at the same time, reports as durable. The next flush
/// serves every caller that comes while one is under way.
///
/// # Errors
/// Returns the error of the flush that failed, now or earlier. It is final for the store.
pub(crate) async fn flush(shared: &Shared) -> Result<()> {
    let Some(own) = current(|worker| worker.shared_arc()) else {
        return Err(Error::new(ErrorKind::Invalid, "flush must run on a worker"));
    };
    // The flush runs to its end even if its caller is dropped: no other flush may begin before
    // that.
    let begun = own.flushes.begun.load(Ordering::SeqCst);
    spawn_here(shared, move || async move { flush_alone(&own, begun).await }).await?
}

/// Flushes, unless a flush that began after the one numbered `after` has succeeded.
async fn flush_alone(shared: &Shared, after: u64) -> Result<()> {
    let _alone = shared.flushes.alone.enter().await;
    if let Some(failure) = shared.lifecycle.failure() {
        return Err(failure.clone());
    }
    if shared.flushes.ended.load(Ordering::SeqCst) > after {
        return Ok(());
    }
    let number = shared.flushes.begun.fetch_add(1, Ordering::SeqCst) + 1;
    let completion = Transfer::submit(Request::flush(0)).done().await?;
    completion.result.map_err(|error| {
        let error = Error::io(error, "flushing the store");
        shared.fail(error.clone());
        error
    })?;
    shared.flushes.ended.store(number, Ordering::SeqCst);
    Ok(())
}
