//! Whether this process was started without a standard output.
//!
//! The standard library opens `/dev/null` in the place of a standard file that is closed, before `main` runs. From then on every write succeeds,
//! and what it wrote is lost. So the kernel is asked before that.

use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Run by the loader before the standard library begins.
#[used]
// SAFETY: the section holds pointers to functions without results, and `note` is one; it needs nothing of the standard library's runtime.
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note;

extern "C" fn note() {
    let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
    WAS_CLOSED.store(is_closed, Ordering::Relaxed);
}

/// Whether standard output was closed when this process began: what is written there is lost.
#[must_use]
pub fn standard_output_was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}
