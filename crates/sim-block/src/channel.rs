//! The data plane of a simulated device.
//!
//! Requests stay in the channel until the doorbell rings: a caller that forgets to ring waits
//! forever.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::time::SimClock;
use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, IoChannel, Op, Request, Result, WaitOptions,
    WakeEvent, sleep,
};
use qpair_memory::locks::Mutex;

use crate::disk::Disk;

pub(super) struct SimChannel {
    disk: Arc<Mutex<Disk>>,
    clock: SimClock,
    port: usize,
    free_running: bool,
    depth: u32,
    /// Requests that were not submitted yet; flushes with the mark of the writes that they cover.
    staged: Vec<(Request, u64)>,
    wake: Option<Arc<WakeEvent>>,
    system_calls: u64,
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

impl SimChannel {
    pub(super) fn new(
        disk: Arc<Mutex<Disk>>,
        clock: SimClock,
        free_running: bool,
        options: &ChannelOptions,
    ) -> Self {
        let port = disk.lock().open_port();
        Self {
            disk,
            clock,
            port,
            free_running,
            depth: options.depth,
            staged: Vec::with_capacity(options.depth as usize),
            wake: options.wake.clone(),
            system_calls: 0,
        }
    }

    /// Lets time pass until the next of this channel's requests ends, but not past `until_ns`.
    /// Returns whether one has ended.
    fn skip(&self, until_ns: u64) -> bool {
        let Some(due_ns) = self.disk.lock().next_due_ns(self.port) else { return false };
        self.clock.pass_until(due_ns.min(until_ns));
        due_ns <= until_ns
    }
}

impl IoChannel for SimChannel {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        let flush_mark = match request.op {
            Op::Flush => self.disk.lock().flush_mark(),
            _ => 0,
        };
        self.staged.push((request, flush_mark));
        Ok(())
    }

    fn kick(&mut self) {
        let mut disk = self.disk.lock();
        for (request, flush_mark) in self.staged.drain(..) {
            disk.begin(self.port, request, flush_mark);
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let count = self.disk.lock().take(self.port, completions);
        if count > 0 || !self.free_running {
            return count;
        }
        self.skip(u64::MAX);
        self.disk.lock().take(self.port, completions)
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.kick();
        let in_flight = self.in_flight();
        if in_flight == 0 {
            self.system_calls += 1;
            sleep(None, self.wake.as_deref(), options.timeout);
            return 0;
        }
        let want = options.want.min(in_flight).max(1) as usize;
        let start_ns = self.clock.now_ns();
        let end_ns = |limit| start_ns.saturating_add(nanoseconds(limit));
        let linger_ns = end_ns(options.linger);
        let deadline_ns = options.timeout.map_or(u64::MAX, end_ns);
        let mut taken = self.disk.lock().take(self.port, completions);
        if let Some(wake) = self.wake.as_deref() {
            self.system_calls += 1;
            if sleep(None, Some(wake), Some(Duration::ZERO)) {
                return taken;
            }
        }
        while taken < want {
            let until_ns = if taken > 0 { linger_ns.min(deadline_ns) } else { deadline_ns };
            if !self.skip(until_ns) {
                break;
            }
            taken += self.disk.lock().take(self.port, completions);
        }
        taken
    }

    fn in_flight(&self) -> u32 {
        self.staged.len() as u32 + self.disk.lock().in_flight(self.port)
    }

    fn statistics(&self) -> ChannelStatistics {
        ChannelStatistics {
            system_calls: self.system_calls,
            ..self.disk.lock().statistics(self.port)
        }
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }
}

impl Drop for SimChannel {
    /// Executes the requests in flight, as a device does when a process ends.
    fn drop(&mut self) {
        while self.disk.lock().in_flight(self.port) > 0 {
            let mut ended = Vec::new();
            if self.disk.lock().take(self.port, &mut ended) == 0 && !self.skip(u64::MAX) {
                break;
            }
        }
    }
}
