//! The channel without threads (`threads=0`): the submitter makes the calls itself, one after the
//! other.
//!
//! Invariants:
//! - `submit` only queues a request. `kick` and `poll` make the calls for all queued requests,
//!   `wait` for as many as are wanted. These functions therefore block here as long as the device
//!   needs, although elsewhere `kick` and `poll` never block.
//! - After `kick` no calls are left to make: all requests in flight are in `done`.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, IoChannel, Request, Result, WaitOptions,
    WakeEvent,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::call::{Pieces, perform};
use crate::file::File;
use crate::mode::Mode;
use crate::request::verify;

pub(super) struct Channel {
    file: Arc<File>,
    depth: usize,
    pending: Vec<Request>,
    /// The completions not yet returned, including those of refused requests.
    done: Vec<Completion>,
    pieces: Pieces,
    wake: Option<Arc<WakeEvent>>,
    statistics: ChannelStatistics,
}

impl Channel {
    pub(super) fn open(file: Arc<File>, mode: &Mode, options: &ChannelOptions) -> Self {
        let depth = options.depth as usize;
        Self {
            pieces: Pieces::new(mode, &file, &options.arenas),
            file,
            depth,
            pending: Vec::with_capacity(depth),
            done: Vec::with_capacity(depth),
            wake: options.wake.clone(),
            statistics: ChannelStatistics::default(),
        }
    }

    /// Makes the calls for the first `count` pending requests, or for all if there are fewer.
    #[inline]
    fn perform(&mut self, count: usize, completions: &mut Vec<Completion>) {
        let count = count.min(self.pending.len());
        for request in self.pending.drain(..count) {
            let (op, len_bytes) = (request.op, request.len_bytes);
            let (completion, calls) = perform(&self.file, request, &mut self.pieces);
            self.statistics.system_calls += calls;
            self.statistics.count(op, len_bytes, completion.result);
            completions.push(completion);
        }
    }

    /// Sleeps until the wake event or the time-out. Without either, does not sleep.
    fn sleep(&mut self, options: WaitOptions) {
        let started = Instant::now();
        let mut fds = [];
        let mut with_wake;
        let fds: &mut [PollFd] = match &self.wake {
            Some(wake) => {
                with_wake = [PollFd::new(wake.as_ref(), PollFlags::IN)];
                &mut with_wake
            }
            None if options.timeout.is_none() => return,
            None => &mut fds,
        };
        loop {
            let left = options.timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            self.statistics.system_calls += 1;
            match poll(fds, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(1..) => {
                    self.statistics.system_calls += 1;
                    return self.wake.iter().for_each(|wake| wake.clear());
                }
                _ => return,
            }
        }
    }
}

impl IoChannel for Channel {
    #[inline]
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.pending.len() + self.done.len() >= self.depth {
            return Err(request);
        }
        match verify(&request, &self.file.limits, self.file.size_bytes()) {
            Ok(()) => self.pending.push(request),
            Err(error) => {
                self.statistics.count(request.op, request.len_bytes, Err(error));
                self.done.push(request.complete(Err(error)));
            }
        }
        Ok(())
    }

    #[inline]
    fn kick(&mut self) {
        if !self.pending.is_empty() {
            let mut done = std::mem::take(&mut self.done);
            self.perform(usize::MAX, &mut done);
            self.done = done;
        }
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        completions.append(&mut self.done);
        self.perform(usize::MAX, completions);
        completions.len() - before
    }

    #[inline]
    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let before = completions.len();
        completions.append(&mut self.done);
        let got = completions.len() - before;
        // Lingering gains nothing, because this thread itself does the work. All wanted requests
        // beyond one are executed too.
        self.perform((options.want.max(1) as usize).saturating_sub(got), completions);
        if completions.len() == before {
            self.sleep(options);
        }
        completions.len() - before
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        (self.pending.len() + self.done.len()) as u32
    }

    fn statistics(&self) -> ChannelStatistics {
        self.statistics
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        // After a kick, all requests are done.
        Ok(None)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Accepted requests are executed.
        let mut discarded = Vec::new();
        self.perform(usize::MAX, &mut discarded);
    }
}
