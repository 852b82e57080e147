//! Detects that this process was started without a standard output.
//!
//! The standard library opens `/dev/null` in place of a closed standard file before `main` runs.
//! From then on every write succeeds, and its data is lost. This module therefore asks the kernel
//! before that.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// A function that the loader runs before the standard library begins.
#[used]
// SAFETY: the section holds pointers to functions without results, such as `note`, which needs
// nothing of the standard library's runtime.
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note;

extern "C" fn note() {
    let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
    WAS_CLOSED.store(is_closed, Ordering::Relaxed);
}

/// Whether standard output was closed when this process began: data written to it is lost.
#[must_use]
pub fn standard_output_was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}
