//! The processor time, context switches and counters of a thread.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

use crate::report::CpuReport;

/// Counters that the kernel keeps for a thread, or for all threads of the process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
    pub(crate) faults_major: u64,
    pub(crate) faults_minor: u64,
}

impl Usage {
    pub(crate) fn of_thread() -> Self {
        Self::of(UsageWho::RUSAGE_THREAD)
    }

    pub(crate) fn of_process() -> Self {
        Self::of(UsageWho::RUSAGE_SELF)
    }

    fn of(who: UsageWho) -> Self {
        // This fails only for an unknown `who`.
        let Ok(usage) = getrusage(who) else { return Self::default() };
        let time = |value: nix::sys::time::TimeVal| {
            Duration::new(value.tv_sec().unsigned_abs(), value.tv_usec() as u32 * 1000)
        };
        let count = |value: nix::libc::c_long| value.unsigned_abs();
        Self {
            user: time(usage.user_time()),
            system: time(usage.system_time()),
            voluntary: count(usage.voluntary_context_switches()),
            involuntary: count(usage.involuntary_context_switches()),
            faults_major: count(usage.major_page_faults()),
            faults_minor: count(usage.minor_page_faults()),
        }
    }

    /// Returns the difference to `before`: an earlier state, or the part of another thread.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
            faults_major: self.faults_major.saturating_sub(before.faults_major),
            faults_minor: self.faults_minor.saturating_sub(before.faults_minor),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
            faults_major: self.faults_major + other.faults_major,
            faults_minor: self.faults_minor + other.faults_minor,
        }
    }
}

/// The counters of the calling thread. Virtual machines often have none.
pub(crate) struct Counters {
    instructions: Option<Counter>,
    cycles: Option<Counter>,
    cache: Option<(Counter, Counter)>,
    usage: Usage,
}

impl Counters {
    pub(crate) fn begin() -> Self {
        Self {
            instructions: counter(Hardware::INSTRUCTIONS),
            cycles: counter(Hardware::CPU_CYCLES),
            cache: cache_counters(),
            usage: Usage::of_thread(),
        }
    }

    /// Returns the costs since the counters were started. `system_calls` are those of the channels.
    pub(crate) fn end(&mut self, system_calls: u64) -> CpuReport {
        let usage = Usage::of_thread().since(self.usage);
        let read = |counter: &mut Option<Counter>| counter.as_mut()?.read().ok();
        CpuReport {
            user: usage.user,
            system: usage.system,
            helpers_user: Duration::ZERO,
            helpers_system: Duration::ZERO,
            switches_voluntary: usage.voluntary,
            switches_involuntary: usage.involuntary,
            faults_major: usage.faults_major,
            faults_minor: usage.faults_minor,
            system_calls,
            instructions: read(&mut self.instructions),
            cycles: read(&mut self.cycles),
            cache: self.cache.as_mut().and_then(|(references, misses)| {
                Some((references.read().ok()?, misses.read().ok()?))
            }),
        }
    }
}

/// Begins to count an event of the calling thread.
fn counter(event: Hardware) -> Option<Counter> {
    // Include the kernel's part. Without permission for that, the figure would be wrong, so there
    // is none.
    let mut counter = Builder::new(event).include_kernel().build().ok()?;
    counter.enable().ok()?;
    Some(counter)
}

fn cache_counters() -> Option<(Counter, Counter)> {
    Some((counter(Hardware::CACHE_REFERENCES)?, counter(Hardware::CACHE_MISSES)?))
}

/// Whether instructions and cache misses of a thread can be counted on this machine.
#[must_use]
pub fn counts_cache_misses() -> bool {
    counter(Hardware::INSTRUCTIONS).is_some() && cache_counters().is_some()
}
