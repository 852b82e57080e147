//! The process that a handle belongs to, and waiting without the interpreter.
//!
//! Invariants:
//! - a fork uses no handle of its parent: each call compares the number of forks first, and
//!   nothing of the engine is dropped there, since other threads of the parent may have held its
//!   locks at the fork;
//! - a thread waits only in [`wait`], detached from the interpreter.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use qpair::{Error, ErrorKind, Result};

/// The number of forks between the first process and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// The number of threads in [`wait`].
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// How long the end of the interpreter waits for other threads to return from the engine.
const RETURN_TIMEOUT: Duration = Duration::from_secs(2);

/// The process in which a handle was made.
#[derive(Clone, Copy)]
pub(crate) struct Process(usize);

impl Process {
    pub(crate) fn here() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_here() { Ok(()) } else { Err(forked()) }
    }
}

#[cold]
fn forked() -> Error {
    Error::with_hint(
        ErrorKind::Invalid,
        "this process is a fork of the one that opened the store, and cannot use it",
        "open stores after the fork, in the process that uses them; multiprocessing does so with the start method 'spawn'",
    )
}

/// Runs `run` detached from the interpreter, so that other threads run Python meanwhile.
pub(crate) fn wait<T: Send>(py: Python<'_>, run: impl FnOnce() -> T + Send) -> T {
    struct Returned;
    impl Drop for Returned {
        fn drop(&mut self) {
            WAITING.fetch_sub(1, Ordering::Release);
        }
    }
    WAITING.fetch_add(1, Ordering::Relaxed);
    // Counted until the thread is attached again.
    let _returned = Returned;
    py.detach(run)
}

/// Marks all handles of this process as its parent's. Registered with `os.register_at_fork`.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    WAITING.store(0, Ordering::Relaxed);
}

/// Waits until other threads have returned from the engine, whose stores are closed: a thread that
/// returns to an interpreter that has ended is killed in the middle of its call.
#[pyfunction]
pub(crate) fn wait_for_threads(py: Python<'_>) {
    let begun = Instant::now();
    while WAITING.load(Ordering::Acquire) > 0 && begun.elapsed() < RETURN_TIMEOUT {
        py.detach(|| std::thread::sleep(Duration::from_millis(1)));
    }
}
