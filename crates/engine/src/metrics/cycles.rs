//! Measures where workers spend their time.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Tasks,
    Evict,
    /// Writes the log, and wakes the tasks whose commits are durable.
    Log,
    Submit,
    Poll,
    /// Handles completions: checks pages that were read, and wakes the tasks that wait for them.
    Complete,
    /// Sleeps until a completion or a message comes, after submitting gathered requests; or waits,
    /// awake, for other workers.
    Wait,
    /// Does anything else: messages, growing, older values.
    Rest,
}

pub(crate) const PARTS: usize = 8;

/// The time of all workers since the store was opened, by the part of their loop, in ticks of the
/// processor's clock. All values are 0 if [`StoreOptions::cycles`](crate::StoreOptions) is off.
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// // Counted if `StoreOptions::cycles` asks for it.
/// let before = store.statistics()?.cycles;
/// table.get(b"k")?;
/// for (part, share) in store.statistics()?.cycles.since(&before).shares() {
///     println!("{part}: {:.0} %", 100.0 * share);
/// }
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCycles {
    /// The number of workers.
    pub workers: usize,
    pub(crate) ticks: [u64; PARTS],
}

impl WorkerCycles {
    const NAMES: [&str; PARTS] =
        ["tasks", "eviction", "log", "submission", "polling", "completion", "waiting", "rest"];

    /// Returns the time that passed since an earlier look.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut passed = *self;
        for (ticks, before) in passed.ticks.iter_mut().zip(before.ticks) {
            *ticks = ticks.wrapping_sub(before);
        }
        passed
    }

    /// Returns each part's name and its share of the time; empty if nothing was counted.
    pub fn shares(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all: u64 = self.ticks.iter().sum();
        let parts = Self::NAMES.into_iter().zip(self.ticks);
        parts.filter(move |_| all > 0).map(move |(name, ticks)| (name, ticks as f64 / all as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all() {
        assert_eq!(WorkerCycles::default().shares().count(), 0);
        let before = WorkerCycles { workers: 1, ticks: [1; PARTS] };
        let mut after = before;
        after.ticks[Part::Tasks as usize] += 30;
        after.ticks[Part::Rest as usize] += 10;
        let shares: Vec<(&str, f64)> = after.since(&before).shares().collect();
        assert_eq!(shares.len(), PARTS);
        assert_eq!((shares[0], shares[7]), (("tasks", 0.75), ("rest", 0.25)));
    }
}
