//! The channel: passes requests to its threads in batches, and sleeps on their event and on the
//! wake event.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, IoChannel, Request, Result, WaitOptions,
    WakeEvent,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::pool::Pool;
use crate::file::File;
use crate::mode::Mode;
use crate::pace::{Pace, Sleep};
use crate::request::verify;

pub(super) struct Channel {
    pool: Pool,
    file: Arc<File>,
    depth: u32,
    /// The number of requests accepted and not returned: pending, at the threads, done or refused.
    in_flight: u32,
    pending: Vec<Request>,
    refused: Vec<Completion>,
    wake: Option<Arc<WakeEvent>>,
    watched: bool,
    /// The counts of this thread. The pool has those of the other threads.
    statistics: ChannelStatistics,
}

impl Channel {
    pub(super) fn open(file: Arc<File>, mode: &Mode, options: &ChannelOptions) -> Result<Self> {
        let depth = options.depth;
        Ok(Self {
            pool: Pool::new(&file, mode, options)?,
            file,
            depth,
            in_flight: 0,
            pending: Vec::with_capacity(depth as usize),
            refused: Vec::with_capacity(depth as usize),
            wake: options.wake.clone(),
            watched: false,
            statistics: ChannelStatistics::default(),
        })
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        completions.append(&mut self.refused);
        completions.append(&mut self.pool.done().completions);
        self.in_flight -= (completions.len() - before) as u32;
    }

    fn clear_event(&mut self) {
        let _ = rustix::io::read(self.pool.event(), &mut [0; 8]);
        self.statistics.system_calls += 1;
    }

    /// Sleeps once. Returns whether the wake event ended the sleep.
    fn sleep(&mut self, sleep: Sleep) -> bool {
        {
            let mut done = self.pool.done();
            // Checked under the lock: a completion is either seen here or signals the event.
            if done.completions.len() >= sleep.want as usize {
                return false;
            }
            done.wanted = sleep.want;
        }
        let linger = (!sleep.linger.is_zero()).then_some(sleep.linger);
        let timeout = sleep.timeout.into_iter().chain(linger).min();
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [(); 2].map(|()| PollFd::new(self.pool.event(), PollFlags::IN));
        let count = match &self.wake {
            Some(wake) => {
                fds[1] = PollFd::new(wake.as_ref(), PollFlags::IN);
                2
            }
            None => 1,
        };
        self.statistics.system_calls += 1;
        // An interrupted sleep is just shorter: the caller checks the clock.
        let _ = poll(&mut fds[..count], timeout.as_ref());
        let signalled = !fds[0].revents().is_empty();
        let woken = count == 2 && !fds[1].revents().is_empty();
        self.pool.done().wanted = 0;
        if signalled {
            self.clear_event();
        }
        if let (true, Some(wake)) = (woken, &self.wake) {
            wake.clear();
            self.statistics.system_calls += 1;
        }
        woken
    }
}

impl IoChannel for Channel {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.in_flight >= self.depth {
            return Err(request);
        }
        self.in_flight += 1;
        match verify(&request, &self.file.limits, self.file.size_bytes()) {
            Ok(()) => self.pending.push(request),
            Err(error) => {
                self.statistics.count(request.op, request.len_bytes, Err(error));
                self.refused.push(request.complete(Err(error)));
                if self.watched {
                    let _ = rustix::io::write(self.pool.event(), &1u64.to_ne_bytes());
                }
            }
        }
        Ok(())
    }

    fn kick(&mut self) {
        if !self.pending.is_empty() {
            self.pool.push(&mut self.pending);
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.watched {
            // Cleared before the check: a later completion signals again.
            self.clear_event();
        }
        self.look(completions)
    }

    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.kick();
        self.reap(completions);
        completions.len() - before
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let before = completions.len();
        self.kick();
        let mut pace = Pace::new(options, self.wake.is_some());
        loop {
            self.reap(completions);
            let got = (completions.len() - before) as u32;
            let Some(sleep) = pace.next(got, self.in_flight) else { break };
            if self.sleep(sleep) {
                self.reap(completions);
                break;
            }
        }
        completions.len() - before
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn statistics(&self) -> ChannelStatistics {
        let mut sum = self.pool.done().statistics;
        sum.errors += self.statistics.errors;
        sum.system_calls += self.statistics.system_calls;
        sum
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.watched = true;
        self.pool.done().watched = true;
        Ok(Some(self.pool.event().as_fd()))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Accepted requests are executed; dropping the pool waits for them.
        self.kick();
    }
}
