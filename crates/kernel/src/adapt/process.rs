//! Counters of the process and of the machine.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The requests that adaptive channels of this process have completed. The processor time of the
/// kernel's threads is known for the process only; a group's part is that of its requests.
pub(super) static REQUESTS: AtomicU64 = AtomicU64::new(0);
/// The adaptive channels that are open in this process.
pub(super) static CHANNELS: AtomicU32 = AtomicU32::new(0);
/// Whether a group of this process is in a trial.
static TRYING: AtomicBool = AtomicBool::new(false);

/// The right to be in a trial. One group of a process has it at a time, as trials would disturb one
/// another.
#[derive(Debug)]
pub(super) struct Turn;

impl Turn {
    pub(super) fn take() -> Option<Self> {
        // Relaxed: the flag guards no memory.
        (!TRYING.swap(true, Ordering::Relaxed)).then_some(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TRYING.store(false, Ordering::Relaxed);
    }
}

/// A reading of the clocks of processor time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clocks {
    /// The processor time of this process, with kernel threads for its rings, in seconds.
    pub(super) process_s: f64,
    /// The processor time of this thread in seconds.
    pub(super) thread_s: f64,
    /// The processor time of the whole machine in seconds.
    pub(super) machine_s: f64,
    pub(super) requests: u64,
}

impl Clocks {
    pub(super) fn read() -> Self {
        Self {
            process_s: cpu_s(libc::CLOCK_PROCESS_CPUTIME_ID),
            thread_s: cpu_s(libc::CLOCK_THREAD_CPUTIME_ID),
            machine_s: std::fs::read_to_string("/proc/stat").map_or(0.0, |text| busy_s(&text)),
            requests: REQUESTS.load(Ordering::Relaxed),
        }
    }
}

fn cpu_s(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which fills it. If the call fails, the time is 0.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The unit of /proc/stat: USER_HZ is 100 on all architectures that Linux has io_uring on.
const TICKS_PER_S: f64 = 100.0;

/// Returns the time that all processors were busy, from the text of /proc/stat.
fn busy_s(text: &str) -> f64 {
    let ticks = text.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
    // The columns are user, nice, system, idle, iowait, irq, softirq; what follows is in them, or
    // belongs to the hypervisor.
    let busy = [0, 1, 2, 5, 6];
    let ticks = ticks.enumerate().filter(|(column, _)| busy.contains(column));
    ticks.filter_map(|(_, ticks)| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_S
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_clocks() {
        let text = "cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3\n";
        assert!((busy_s(text) - 1.63).abs() < 1e-9);
        assert_eq!((busy_s(""), busy_s("cpu x y")), (0.0, 0.0));
        let before = Clocks::read();
        let mut sum = 0_u64;
        while Clocks::read().thread_s < before.thread_s + 0.01 {
            sum = std::hint::black_box(sum + 1);
        }
        let after = Clocks::read();
        assert!(after.process_s > before.process_s && after.machine_s >= before.machine_s);
    }
}
