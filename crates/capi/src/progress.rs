//! The function of the caller that long calls report to.

use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;

/// A function that a long call reports to, on the thread of the call: `done` of about `all` pages
/// or records are done. A result other than 0 stops the call, which then returns
/// `QPAIR_INTERRUPTED`.
pub type qpair_progress =
    Option<unsafe extern "C" fn(context: *mut c_void, done: u64, all: u64) -> c_int>;

/// Returns a callback of the library that calls C's.
///
/// # Safety
/// `progress` follows rule 3 of the crate, for as long as the result is used.
pub(crate) unsafe fn reporting(
    progress: qpair_progress,
    context: *mut c_void,
) -> impl Fn(u64, u64) -> ControlFlow<()> {
    move |done, all| {
        let Some(progress) = progress else { return ControlFlow::Continue(()) };
        // SAFETY: rule 3, by the caller.
        match unsafe { progress(context, done, all) } {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}
