//! The descriptor that a channel of a polled device returns as its `completion_fd`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::seam::device::ChannelStatistics;
use crate::seam::error::{Error, Result};

/// An event that polls readable while requests are in flight, for polled devices, which do not
/// announce their completions.
///
/// The event is created when a caller first asks for the descriptor, so that other callers make no
/// system call for it. It stays readable after the last completion, until a poll finds nothing
/// ([`IoChannel::completion_fd`](crate::IoChannel::completion_fd)). A thread that polls for
/// completions therefore sets it once, and not for each request.
#[derive(Debug, Default)]
pub struct CompletionEvent {
    event: Option<OwnedFd>,
    is_signalled: bool,
}

impl CompletionEvent {
    /// Returns the descriptor, with `in_flight` requests in flight.
    ///
    /// # Errors
    /// `Limit` if the process has no descriptors left, or another error of eventfd(2).
    pub fn descriptor(&mut self, in_flight: u32) -> Result<BorrowedFd<'_>> {
        let event = match self.event.take() {
            Some(event) => event,
            None => {
                self.is_signalled = in_flight > 0;
                let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
                eventfd(self.is_signalled.into(), flags)
                    .map_err(|e| Error::os(e.into(), "creating an eventfd"))?
            }
        };
        let event: &OwnedFd = self.event.insert(event);
        Ok(event.as_fd())
    }

    /// Makes the descriptor readable if requests are in flight, and counts the system calls for
    /// that.
    #[inline]
    pub fn tell(&mut self, in_flight: u32, statistics: &mut ChannelStatistics) {
        if let Some(event) = self.event.as_ref().filter(|_| in_flight > 0 && !self.is_signalled) {
            self.is_signalled = true;
            statistics.system_calls += 1;
            // A failure would not matter: the count is far from its limit.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// Notes that a poll found nothing. If nothing is in flight, the descriptor becomes unreadable.
    #[inline]
    pub fn settle(&mut self, in_flight: u32, statistics: &mut ChannelStatistics) {
        if let Some(event) = self.event.as_ref().filter(|_| in_flight == 0 && self.is_signalled) {
            self.is_signalled = false;
            statistics.system_calls += 1;
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
    }
}
