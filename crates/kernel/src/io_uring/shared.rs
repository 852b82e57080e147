//! Submission threads that several rings of the process share.
//!
//! Invariant: while a ring shares a thread it holds the [`SharedThread`], whose own ring keeps the thread alive. With the last
//! of them the thread ends.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use io_uring::IoUring;
use qpair_block::Result;

use super::set_up::set_up_thread;
use crate::mode::SubmissionThread;

/// A submission thread, and the ring it was started for: nothing is ever submitted to that one.
pub(crate) struct SharedThread {
    ring: IoUring,
}

/// Those in use. A process has few: one for each processor and idle time asked for.
static IN_USE: Mutex<Vec<(SubmissionThread, Weak<SharedThread>)>> = Mutex::new(Vec::new());

impl SharedThread {
    /// The process's thread with this processor and idle time.
    pub(super) fn get(thread: SubmissionThread) -> Result<Arc<Self>> {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|(_, held)| held.strong_count() > 0);
        let known = in_use.iter().find(|(known, _)| *known == thread);
        if let Some(shared) = known.and_then(|(_, held)| held.upgrade()) {
            return Ok(shared);
        }
        let shared = Arc::new(Self { ring: set_up_thread(thread)? });
        in_use.push((thread, Arc::downgrade(&shared)));
        Ok(shared)
    }

    /// The descriptor that other rings attach to, good while `self` lives.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}
