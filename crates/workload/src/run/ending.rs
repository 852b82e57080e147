//! Jobs that wait for others, and jobs that end others.

use qpair_block::locks::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, PoisonError};
use std::time::Duration;

use crate::job::{EndsWith, Job};

/// The state by which the jobs of a run notice each other's ends.
pub(super) struct Ending<'a> {
    jobs: &'a [Job],
    /// For each job, whether it must end, or must not begin.
    ends: Vec<AtomicBool>,
    /// For each job, whether it is over.
    over: Mutex<Vec<bool>>,
    changed: Condvar,
}

impl<'a> Ending<'a> {
    pub(super) fn new(jobs: &'a [Job]) -> Self {
        Self {
            jobs,
            ends: jobs.iter().map(|_| AtomicBool::new(false)).collect(),
            over: Mutex::new(vec![false; jobs.len()]),
            changed: Condvar::new(),
        }
    }

    /// Returns the flag that is set when the job is to end.
    pub(super) fn of(&self, at: usize) -> &AtomicBool {
        &self.ends[at]
    }

    pub(super) fn end(&self, at: usize) {
        self.ends[at].store(true, Ordering::Relaxed);
    }

    /// Marks a job as over, which lets other jobs begin or makes them end.
    pub(super) fn is_over(&self, at: usize, failed: bool) {
        let job = &self.jobs[at];
        let all = (failed && job.error_ends_all).then_some(EndsWith::All);
        if let Some(which) = all.or(job.ends) {
            for (other, end) in self.jobs.iter().zip(&self.ends) {
                let too = match which {
                    EndsWith::Group => other.group == job.group,
                    EndsWith::Stage => other.stage == job.stage,
                    EndsWith::All => true,
                };
                if too {
                    end.store(true, Ordering::Relaxed);
                }
            }
        }
        self.over.lock()[at] = true;
        self.changed.notify_all();
    }

    /// Waits until the jobs that a job depends on are over, or until the job must not begin at all.
    pub(super) fn wait(&self, at: usize, stopped: impl Fn() -> bool, look: Duration) {
        let Some(name) = &self.jobs[at].wait_for else { return };
        let mut over = self.over.lock();
        let waits = |over: &[bool]| (0..at).any(|one| self.jobs[one].name == *name && !over[one]);
        while waits(&over) && !stopped() {
            over = self.changed.wait_timeout(over, look).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
