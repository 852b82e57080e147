//! Ways of sharing a device between threads that papers compare with a channel for each.
//!
//! - [`IoThreadDevice`]: one thread owns the channels, and the others hand it their requests.
//! - [`OneLockDevice`]: all threads use the same channels, under one lock.
//!
//! People name them `iothread:DEVICE` and `onelock:DEVICE`; [`share`] opens both.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod io_thread;
mod one_lock;

use std::sync::Arc;

use qpair_block::{BlockDevice, Result, SharedWay};

pub use io_thread::IoThreadDevice;
pub use one_lock::OneLockDevice;

/// Makes the device that shares `inner` in the way `way`.
///
/// # Errors
/// The operating system's, where the thread can't be started.
pub fn share(way: SharedWay, inner: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
    Ok(match way {
        SharedWay::IoThread => Arc::new(IoThreadDevice::new(inner)?),
        SharedWay::OneLock => Arc::new(OneLockDevice::new(inner)),
    })
}
