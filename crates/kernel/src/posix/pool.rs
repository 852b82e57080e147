//! The threads of a channel, and the two queues between the channel and its threads.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use qpair_block::locks::Mutex;
use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, Error, ErrorKind, Request, Result,
};
use rustix::event::{EventfdFlags, eventfd};

use super::call::{Pieces, perform};
use crate::file::File;
use crate::mode::Mode;

/// The stack size of a thread in bytes. A thread does little except call the kernel.
const STACK_BYTES: usize = 128 << 10;

struct Jobs {
    requests: VecDeque<Request>,
    closed: bool,
}

pub(super) struct Done {
    pub(super) completions: Vec<Completion>,
    /// The number of completions that the sleeping channel waits for; 0 if it does not sleep.
    pub(super) wanted: u32,
    /// Whether to signal the event for every completion.
    pub(super) watched: bool,
    pub(super) statistics: ChannelStatistics,
}

struct Shared {
    file: Arc<File>,
    jobs: Mutex<Jobs>,
    work: Condvar,
    done: Mutex<Done>,
    /// Signalled when the channel should check `done`.
    event: OwnedFd,
}

/// The threads. Dropping the pool lets them complete their requests, and ends them.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts the number of threads that the mode says, but no more than can be busy at once.
    pub(super) fn new(file: &Arc<File>, mode: &Mode, options: &ChannelOptions) -> Result<Self> {
        let depth = options.depth;
        let threads = depth.min(mode.threads.into());
        let failed = |cause: std::io::Error, what: &str| {
            Error::new(ErrorKind::Limit, what).caused_by(cause).hint("raise ulimit -n or ulimit -u")
        };
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|cause| failed(cause.into(), "creating an event for completions"))?;
        let capacity = depth as usize;
        let shared = Arc::new(Shared {
            file: file.clone(),
            jobs: Mutex::new(Jobs { requests: VecDeque::with_capacity(capacity), closed: false }),
            work: Condvar::new(),
            done: Mutex::new(Done {
                completions: Vec::with_capacity(capacity),
                wanted: 0,
                watched: false,
                statistics: ChannelStatistics::default(),
            }),
            event,
        });
        let mut pool = Self { shared, threads: Vec::with_capacity(threads as usize) };
        for _ in 0..threads {
            let shared = pool.shared.clone();
            let pieces = Pieces::new(mode, file, &options.arenas);
            let thread = std::thread::Builder::new()
                .name("qpair-posix".into())
                .stack_size(STACK_BYTES)
                .spawn(move || shared.work(pieces))
                .map_err(|cause| Error::thread(cause, "opening a channel for synchronous calls"))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Gives `requests` to the threads and empties the vector.
    pub(super) fn push(&self, requests: &mut Vec<Request>) {
        let count = requests.len();
        self.shared.jobs.lock().requests.extend(requests.drain(..));
        if count > 1 {
            self.shared.work.notify_all();
        } else {
            self.shared.work.notify_one();
        }
    }

    pub(super) fn done(&self) -> MutexGuard<'_, Done> {
        self.shared.done.lock()
    }

    /// Returns the event that becomes readable when there are `wanted` completions.
    pub(super) fn event(&self) -> &OwnedFd {
        &self.shared.event
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.jobs.lock().closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self, mut pieces: Pieces) {
        while let Some(request) = self.next() {
            let (op, len_bytes) = (request.op, request.len_bytes);
            let (completion, calls) = perform(&self.file, request, &mut pieces);
            let mut done = self.done.lock();
            done.statistics.count(op, len_bytes, completion.result);
            done.statistics.system_calls += calls;
            done.completions.push(completion);
            let enough = done.wanted > 0 && done.completions.len() >= done.wanted as usize;
            if enough || done.watched {
                done.wanted = 0;
                done.statistics.system_calls += 1;
                drop(done);
                let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
            }
        }
    }

    /// Returns the next request, or `None` once no more will come.
    fn next(&self) -> Option<Request> {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some(request) = jobs.requests.pop_front() {
                return Some(request);
            }
            if jobs.closed {
                return None;
            }
            jobs = self.work.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
