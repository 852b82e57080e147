//! Sleeping for completions, on one channel or several, and until a moment has come.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use qpair_block::{Error, IoChannel, Result, WaitOptions};

use super::{LOOK, Thread};

impl Thread<'_> {
    #[inline]
    pub(super) fn wait(&mut self, want: u32, timeout: Option<Duration>) {
        if let [channel] = &mut self.channels[..] {
            channel.wait(
                &mut self.completions,
                WaitOptions {
                    want: want.max(1),
                    linger: if want > 1 { Duration::MAX } else { Duration::ZERO },
                    timeout,
                },
            );
        } else {
            self.wait_for_several(want, timeout);
        }
    }

    pub(super) fn wait_for_several(&mut self, want: u32, timeout: Option<Duration>) {
        self.channels.iter_mut().for_each(|channel| channel.kick());
        let begin = Instant::now();
        loop {
            self.poll();
            let left = timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
            if self.completions.len() >= want as usize || left == Some(Duration::ZERO) {
                return;
            }
            if !self.sleepers.is_empty() {
                let mut fds: Vec<_> = self
                    .sleepers
                    .iter()
                    .map(|fd| rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN))
                    .collect();
                let left = left.unwrap_or(LOOK).min(LOOK);
                let timeout = rustix::event::Timespec::try_from(left).ok();
                let _ = rustix::event::poll(&mut fds, timeout.as_ref());
            }
        }
    }

    pub(super) fn poll(&mut self) {
        for channel in &mut self.channels {
            if channel.in_flight() > 0 {
                channel.poll(&mut self.completions);
            }
        }
    }

    /// Sleeps with nothing in flight.
    pub(super) fn sleep_until(&self, due_ns: u64) -> u64 {
        self.common.sleep_towards(due_ns);
        self.common.now_ns()
    }
}

/// Descriptors to sleep on; none where one channel does its own waiting, or where a channel must be polled.
pub(super) fn sleepers(channels: &mut [Box<dyn IoChannel>]) -> Result<Vec<OwnedFd>> {
    if channels.len() < 2 {
        return Ok(Vec::new());
    }
    let mut fds = Vec::new();
    for channel in channels {
        match channel.completion_fd()? {
            None => return Ok(Vec::new()),
            Some(fd) => fds.push(own(fd)?),
        }
    }
    Ok(fds)
}

fn own(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|cause| Error::os(cause, "a descriptor to sleep on"))
}
