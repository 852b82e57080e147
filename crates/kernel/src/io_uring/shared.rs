//! Submission threads that several rings of the process share.
//!
//! Invariant: a ring that shares a thread holds the [`SharedThread`], whose own ring keeps the
//! thread alive. The thread ends when the last of these rings is dropped.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Weak};

use io_uring::IoUring;
use qpair_block::Result;
use qpair_block::locks::Mutex;

use super::set_up::set_up_thread;
use crate::mode::SubmissionThread;

/// A submission thread, and the ring for which it was started. Nothing is submitted to that ring.
pub(crate) struct SharedThread {
    ring: IoUring,
}

/// The shared threads in use. A process has few: one for each pair of processor and idle time.
static IN_USE: Mutex<Vec<(SubmissionThread, Weak<SharedThread>)>> = Mutex::new(Vec::new());

impl SharedThread {
    pub(super) fn get(thread: SubmissionThread) -> Result<Arc<Self>> {
        let mut in_use = IN_USE.lock();
        in_use.retain(|(_, held)| held.strong_count() > 0);
        let known = in_use.iter().find(|(known, _)| *known == thread);
        if let Some(shared) = known.and_then(|(_, held)| held.upgrade()) {
            return Ok(shared);
        }
        let shared = Arc::new(Self { ring: set_up_thread(thread)? });
        in_use.push((thread, Arc::downgrade(&shared)));
        Ok(shared)
    }

    /// Returns the descriptor that other rings attach to, valid while `self` lives.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}
