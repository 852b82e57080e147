//! The processor's counter, and a clock that is read by it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the ticks since some moment. Their rate is constant while a machine runs, but not known:
/// use them for shares of time. A call costs some tens of cycles if the processor lets programs
/// read its counter.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: RDTSC reads a counter, and accesses no memory. Linux forbids it only to programs
        // that ask for that (PR_SET_TSC), which this one does not.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// A clock of nanoseconds, for loops that read it at every request: by the processor's counter if
/// the kernel itself uses that as its clock, which takes half of the time of a system clock or
/// less. The rate is measured against the system's once in a process, to some millionths.
#[derive(Clone, Copy, Debug)]
pub struct TickClock {
    begin: Instant,
    begin_ticks: u64,
    /// Nanoseconds in 2^32 ticks; `None` if the counter is not used.
    scale: Option<u64>,
}

impl TickClock {
    /// Starts a clock. The first one of a process takes 10 ms.
    #[must_use]
    pub fn start() -> Self {
        static SCALE: OnceLock<Option<u64>> = OnceLock::new();
        let scale = *SCALE.get_or_init(measured_scale);
        let (begin, begin_ticks) = both();
        Self { begin, begin_ticks, scale }
    }

    /// Returns the nanoseconds since the start.
    #[inline]
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        let Some(scale) = self.scale else { return self.begin.elapsed().as_nanos() as u64 };
        // Another processor's counter may be a few ticks behind.
        let passed = ticks().saturating_sub(self.begin_ticks);
        ((u128::from(passed) * u128::from(scale)) >> 32) as u64
    }

    /// Returns the time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns())
    }
}

/// Returns both clocks at the same moment, as exactly as a few tries give.
fn both() -> (Instant, u64) {
    let tries = (0..8).map(|_| {
        let before = ticks();
        let now = Instant::now();
        (ticks().saturating_sub(before), now, before)
    });
    tries
        .min_by_key(|(took, ..)| *took)
        .map_or((Instant::now(), ticks()), |(took, now, before)| (now, before + took / 2))
}

fn measured_scale() -> Option<u64> {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    // The kernel has then found that the counter never stops, and runs alike on all processors.
    if std::fs::read_to_string(SOURCE).ok()?.trim() != "tsc" {
        return None;
    }
    let (begin, begin_ticks) = both();
    std::thread::sleep(Duration::from_millis(10));
    let (end, end_ticks) = both();
    let passed = u128::from(end_ticks.checked_sub(begin_ticks)?);
    let scale = ((end - begin).as_nanos() << 32).checked_div(passed)?;
    u64::try_from(scale).ok().filter(|scale| *scale > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_goes_as_the_systems_does() {
        let (clock, begin) = (TickClock::start(), Instant::now());
        let mut before_ns = 0;
        while begin.elapsed().as_millis() < 20 {
            let now_ns = clock.elapsed_ns();
            assert!(now_ns >= before_ns);
            before_ns = now_ns;
        }
        // The test may be interrupted between two looks, and so only the least is sure.
        let least = begin.elapsed();
        assert!(clock.elapsed() + Duration::from_micros(100) > least, "{:?}", clock.elapsed());
    }

    #[test]
    fn time_goes_on() {
        let (first, begin) = (ticks(), Instant::now());
        while begin.elapsed().as_micros() < 100 {}
        assert!(ticks() > first);
    }
}
