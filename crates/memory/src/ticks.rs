//! The processor's clock.

/// Ticks since some moment, at a rate that stays the same while a machine runs: for shares of time,
/// not for its length. It costs some tens of cycles where the processor tells it to programs.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: RDTSC reads a counter, and touches no memory. Linux forbids it to programs that
        // ask for that (PR_SET_TSC), which this one does not.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::ticks;

    #[test]
    fn time_goes_on() {
        let (first, begin) = (ticks(), std::time::Instant::now());
        while begin.elapsed().as_micros() < 100 {}
        assert!(ticks() > first);
    }
}
