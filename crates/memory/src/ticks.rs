//! The processor's clock.

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
