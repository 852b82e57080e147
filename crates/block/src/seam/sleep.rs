//! The sleep of channels that the kernel does not wait for: software devices, and devices that this
//! process drives.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::seam::device::WaitOptions;
use crate::seam::wake::WakeEvent;

/// Sleeps until `completion_fd` or `wake` polls readable, or `timeout` is over. Returns whether
/// `wake` is readable.
///
/// A signal to the process also ends the sleep: callers check their queues and the clock again.
/// With nothing to sleep on, the call returns at once, because it would never return otherwise.
pub fn sleep(
    completion_fd: Option<BorrowedFd<'_>>,
    wake: Option<&WakeEvent>,
    timeout: Option<Duration>,
) -> bool {
    if completion_fd.is_none() && wake.is_none() && timeout.is_none() {
        return false;
    }
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let on = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    match (wake.map(|wake| wake.as_fd()), completion_fd) {
        (Some(wake), Some(completion)) => {
            let mut fds = [on(wake), on(completion)];
            rustix::event::poll(&mut fds, timeout.as_ref()).is_ok() && !fds[0].revents().is_empty()
        }
        (Some(wake), None) => {
            let mut fds = [on(wake)];
            rustix::event::poll(&mut fds, timeout.as_ref()).is_ok() && !fds[0].revents().is_empty()
        }
        (None, Some(completion)) => {
            let _ = rustix::event::poll(&mut [on(completion)], timeout.as_ref());
            false
        }
        (None, None) => {
            let _ = rustix::event::poll(&mut [], timeout.as_ref());
            false
        }
    }
}

/// The clock of one wait: determines when the wait must end, given the completions so far.
#[derive(Clone, Copy, Debug)]
pub struct WaitClock {
    want: usize,
    linger_end: Option<Instant>,
    deadline: Option<Instant>,
}

impl WaitClock {
    /// Starts the clock of a wait on a channel that has `in_flight` requests.
    pub fn start(options: WaitOptions, in_flight: u32) -> Self {
        let now = Instant::now();
        Self {
            want: options.want.min(in_flight).max(1) as usize,
            // If the sum is past the end of time, wait without that limit.
            linger_end: now.checked_add(options.linger),
            deadline: options.timeout.and_then(|timeout| now.checked_add(timeout)),
        }
    }

    /// Returns the latest end of a wait that has taken `taken` completions; `None` means never.
    pub fn end(&self, taken: usize) -> Option<Instant> {
        match (self.linger_end, self.deadline) {
            (Some(linger_end), Some(deadline)) if taken > 0 => Some(linger_end.min(deadline)),
            (Some(linger_end), None) if taken > 0 => Some(linger_end),
            (_, deadline) => deadline,
        }
    }

    /// Whether `taken` completions are as many as are wanted.
    pub fn is_enough(&self, taken: usize) -> bool {
        taken >= self.want
    }

    /// Whether a wait that has taken `taken` completions is over at `now`.
    pub fn is_over(&self, taken: usize, now: Instant) -> bool {
        self.is_enough(taken) || self.end(taken).is_some_and(|end| end <= now)
    }

    /// Returns the wait options for the rest of the wait at `now`, for a channel below that sleeps
    /// in its place, but not beyond `until`.
    pub fn rest(&self, taken: usize, until: Option<Instant>, now: Instant) -> WaitOptions {
        let from_now = |instant: Instant| instant.saturating_duration_since(now);
        WaitOptions {
            want: self.want.saturating_sub(taken).max(1) as u32,
            linger: self.linger_end.map_or(Duration::MAX, from_now),
            timeout: until.map(from_now),
        }
    }
}
