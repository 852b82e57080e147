//! S4: asynchronous I/O on arrays: outstanding requests, intervals, the cost of a byte, prolonged
//! writes.

pub(super) mod cost;
pub(super) mod interval;
pub(super) mod outstanding;
pub(super) mod section4;
pub(super) mod sync;
pub(super) mod writes;

use crate::papers::prelude::*;

/// Requests in flight of each thread where interfaces are compared with synchronous I/O.
pub(super) const DEPTH_ASYNC: u32 = 64;

/// Returns `io_uring`, or the interface of the experiment if `io_uring` was not measured.
fn io_uring_or<'a>(view: &'a View<'_>, experiment: &str) -> Result<&'a str, String> {
    if view.has("io_uring") { Ok("io_uring") } else { view.main_interface(experiment) }
}
