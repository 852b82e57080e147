//! The workers of a target, and the queues' places on them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use qpair_block::{Error, ErrorKind, Result};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

use crate::stream::SocketWay;
use crate::unit::{Start, Stopped};
use crate::worker::{QueueId, Worker};

/// The place of a queue: its worker, and its number there.
#[derive(Debug)]
pub(crate) struct Placed {
    worker: usize,
    id: QueueId,
}

#[derive(Debug)]
struct One {
    worker: Worker,
    queues: AtomicU32,
}

/// The load and the times of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerInfo {
    /// The number of queues that the worker serves.
    pub queues: u32,
    /// The kernel's number of the worker's thread, as from gettid(2).
    pub tid: u32,
    /// Nanoseconds that the worker has slept.
    pub idle_ns: u64,
    /// Nanoseconds that the worker has been awake.
    pub busy_ns: u64,
    /// Whether the worker polls: its queues never go idle.
    pub poll: bool,
}

/// The workers of a target.
#[derive(Debug)]
pub(crate) struct Workers {
    all: Vec<One>,
    next_id: AtomicU64,
    /// The way of the sockets of servers.
    pub(crate) sockets: SocketWay,
}

impl Workers {
    pub(crate) fn start(count: usize, poll: bool, sockets: SocketWay) -> Result<Self> {
        if count == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a target needs at least one worker"));
        }
        let start = |number: usize| {
            let worker = Worker::start(&format!("qpair-target-{number}"), poll)?;
            Ok(One { worker, queues: AtomicU32::new(0) })
        };
        let all = (0..count).map(start).collect::<Result<_>>()?;
        Ok(Self { all, next_id: AtomicU64::new(0), sockets })
    }

    /// Whether the workers poll: their queues never go idle.
    pub(crate) fn poll(&self) -> bool {
        self.all.iter().any(|one| one.worker.times().poll)
    }

    /// Starts a queue on the worker that has the fewest.
    ///
    /// # Errors
    /// The error of `start`.
    pub(crate) fn add(&self, start: Start) -> Result<Placed> {
        let load = |(_, one): &(usize, &One)| one.queues.load(Ordering::Relaxed);
        let (worker, one) =
            self.all.iter().enumerate().min_by_key(load).ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "a target needs at least one worker")
            })?;
        let id = QueueId(self.next_id.fetch_add(1, Ordering::Relaxed));
        one.worker.add(id, start)?;
        one.queues.fetch_add(1, Ordering::Relaxed);
        Ok(Placed { worker, id })
    }

    /// Removes a queue after all its requests under way have ended.
    pub(crate) fn remove(&self, placed: Placed) -> Option<Stopped> {
        let one = self.all.get(placed.worker)?;
        one.queues.fetch_sub(1, Ordering::Relaxed);
        one.worker.remove(placed.id)
    }

    /// Pins each worker to one processor: the first worker to the first of `cpus`, the next to the
    /// next, and from the first again after the last.
    ///
    /// # Errors
    /// `Invalid` for a processor that does not exist, or that this process may not use.
    pub(crate) fn pin(&self, cpus: &[usize]) -> Result<()> {
        for (number, (one, cpu)) in self.all.iter().zip(cpus.iter().cycle()).enumerate() {
            let context = format!("binding worker {number} to processor {cpu}");
            let wrong = || {
                Error::new(ErrorKind::Invalid, context.clone())
                    .hint("name only processors that this process may use: nproc, taskset -p")
            };
            if *cpu >= CpuSet::MAX_CPU {
                return Err(wrong());
            }
            let mut set = CpuSet::new();
            set.set(*cpu);
            // The worker stores its thread id as soon as it runs.
            let tid = loop {
                let tid = one.worker.times().tid.load(Ordering::Acquire);
                match Pid::from_raw(tid as i32) {
                    Some(tid) => break tid,
                    None => std::thread::yield_now(),
                }
            };
            sched_setaffinity(Some(tid), &set).map_err(|errno| wrong().caused_by(errno))?;
        }
        Ok(())
    }

    /// Returns the load and the times of each worker.
    pub(crate) fn infos(&self) -> Vec<WorkerInfo> {
        let info = |one: &One| {
            let times = one.worker.times();
            let idle_ns = times.idle_ns.load(Ordering::Relaxed);
            let all_ns = u64::try_from(times.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            WorkerInfo {
                queues: one.queues.load(Ordering::Relaxed),
                tid: times.tid.load(Ordering::Relaxed),
                idle_ns,
                busy_ns: all_ns.saturating_sub(idle_ns),
                poll: times.poll,
            }
        };
        self.all.iter().map(info).collect()
    }
}
