//! All workers, and where queues are.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use qpair_block::{Error, ErrorKind, Result};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

use crate::unit::{Start, Stopped};
use crate::worker::{QueueId, Worker};

/// Where a queue is.
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

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Queues that it serves.
    pub queues: u32,
    /// Its thread, as the kernel numbers it.
    pub tid: u32,
    /// How long it slept.
    pub idle_ns: u64,
    /// How long it did not.
    pub busy_ns: u64,
    /// Its queues never go idle.
    pub poll: bool,
}

/// The workers of a target.
#[derive(Debug)]
pub(crate) struct Workers {
    all: Vec<One>,
    next_id: AtomicU64,
}

impl Workers {
    pub(crate) fn start(count: usize, poll: bool) -> Result<Self> {
        if count == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a target without workers"));
        }
        let start = |number: usize| {
            let worker = Worker::start(&format!("qpair-target-{number}"), poll)?;
            Ok(One { worker, queues: AtomicU32::new(0) })
        };
        let all = (0..count).map(start).collect::<Result<_>>()?;
        Ok(Self { all, next_id: AtomicU64::new(0) })
    }

    /// Whether their queues never go idle.
    pub(crate) fn poll(&self) -> bool {
        self.all.iter().any(|one| one.worker.times().poll)
    }

    /// Puts a queue on the worker with the fewest.
    ///
    /// # Errors
    /// What starting it says.
    pub(crate) fn add(&self, start: Start) -> Result<Placed> {
        let load = |(_, one): &(usize, &One)| one.queues.load(Ordering::Relaxed);
        let (worker, one) = self
            .all
            .iter()
            .enumerate()
            .min_by_key(load)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "a target without workers"))?;
        let id = QueueId(self.next_id.fetch_add(1, Ordering::Relaxed));
        one.worker.add(id, start)?;
        one.queues.fetch_add(1, Ordering::Relaxed);
        Ok(Placed { worker, id })
    }

    /// Takes a queue back, when all that it had under way has come back.
    pub(crate) fn remove(&self, placed: Placed) -> Option<Stopped> {
        let one = self.all.get(placed.worker)?;
        one.queues.fetch_sub(1, Ordering::Relaxed);
        one.worker.remove(placed.id)
    }

    /// Keeps each to one processor: the first to the first of them, and so on in turns.
    ///
    /// # Errors
    /// `Invalid` for a processor that is not there, or that this process may not use.
    pub(crate) fn pin(&self, cpus: &[usize]) -> Result<()> {
        for (number, (one, cpu)) in self.all.iter().zip(cpus.iter().cycle()).enumerate() {
            let context = format!("worker {number} on processor {cpu}");
            let wrong = || {
                Error::new(ErrorKind::Invalid, context.clone())
                    .hint("name only processors that this process may use: nproc, taskset -p")
            };
            if *cpu >= CpuSet::MAX_CPU {
                return Err(wrong());
            }
            let mut set = CpuSet::new();
            set.set(*cpu);
            // It tells its thread's number as soon as it runs.
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

    /// What the workers do.
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
