//! The snapshots in use, so that the versions that they need are kept.
//!
//! Invariant: a snapshot is entered in its slot under the slot's lock, and reads `applied` under
//! this lock. A search for the oldest snapshot first reads `applied` and then takes the locks. So a
//! snapshot that the search missed is not older than the result of the search.

use std::collections::VecDeque;

/// The snapshots of one worker, or of the threads other than workers: the timestamp and the number
/// of users of each, in ascending order.
#[derive(Default)]
pub(crate) struct Snapshots {
    active: VecDeque<(u64, u32)>,
}

impl Snapshots {
    /// Adds a use of the newest snapshot.
    pub(crate) fn enter(&mut self, timestamp: u64) {
        match self.active.back_mut() {
            Some((last, count)) if *last == timestamp => *count += 1,
            _ => self.active.push_back((timestamp, 1)),
        }
    }

    /// Ends a use of a snapshot.
    pub(crate) fn leave(&mut self, timestamp: u64) {
        if let Ok(index) = self.active.binary_search_by_key(&timestamp, |(timestamp, _)| *timestamp)
        {
            self.active[index].1 -= 1;
            if self.active[index].1 == 0 {
                self.active.remove(index);
            }
        }
    }

    /// Returns the timestamps in use at or above `from`, in order.
    pub(crate) fn timestamps(&self, from: u64) -> impl Iterator<Item = u64> {
        self.active
            .iter()
            .map(|(timestamp, _)| *timestamp)
            .filter(move |timestamp| *timestamp >= from)
    }

    /// Returns the oldest timestamp in use at or above `from`.
    pub(crate) fn oldest(&self, from: u64) -> Option<u64> {
        self.timestamps(from).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_oldest_in_use() {
        let mut snapshots = Snapshots::default();
        assert_eq!(snapshots.oldest(0), None);
        for timestamp in [5, 5, 7, 9] {
            snapshots.enter(timestamp);
        }
        assert_eq!(snapshots.oldest(0), Some(5));
        assert_eq!(snapshots.oldest(6), Some(7));
        snapshots.leave(7);
        snapshots.leave(5);
        assert_eq!(snapshots.oldest(0), Some(5));
        snapshots.leave(5);
        assert_eq!(snapshots.oldest(0), Some(9));
        snapshots.leave(9);
        assert_eq!(snapshots.oldest(0), None);
    }

    /// Compares with a sorted list: snapshots are added at the end and removed anywhere.
    #[test]
    fn as_a_sorted_list() {
        let mut random = fastrand::Rng::with_seed(3);
        let (mut snapshots, mut model) = (Snapshots::default(), Vec::<u64>::new());
        let mut now = 0;
        for step in 0..1_000_000 {
            if random.usize(0..40) > model.len() {
                now += random.u64(0..3);
                snapshots.enter(now);
                model.push(now);
            } else if !model.is_empty() {
                let at = match step / 1000 % 3 {
                    0 => 0,
                    1 => model.len() - 1,
                    _ => random.usize(0..model.len()),
                };
                snapshots.leave(model.remove(at));
            }
            let from = now.saturating_sub(random.u64(0..60));
            let expected = model.iter().copied().find(|timestamp| *timestamp >= from);
            assert_eq!(snapshots.oldest(from), expected);
        }
    }
}
