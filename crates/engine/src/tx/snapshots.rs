//! Snapshots in use, so that what they need is kept.
//!
//! What always holds: a snapshot is entered in its slot under the slot's lock, and reads `applied` there. A search
//! for the oldest reads `applied` first and takes the locks then. So a snapshot that it did not see is not older than
//! its answer.

use std::collections::VecDeque;

/// Snapshots of one worker, or of the threads that are none: timestamp and how many use it, in ascending order.
#[derive(Default)]
pub(crate) struct Snapshots {
    active: VecDeque<(u64, u32)>,
}

impl Snapshots {
    /// Enters a snapshot that was taken just now.
    pub(crate) fn enter(&mut self, timestamp: u64) {
        match self.active.back_mut() {
            Some((last, count)) if *last == timestamp => *count += 1,
            _ => self.active.push_back((timestamp, 1)),
        }
    }

    /// Ends the use of a snapshot.
    pub(crate) fn leave(&mut self, timestamp: u64) {
        if let Ok(index) = self.active.binary_search_by_key(&timestamp, |(timestamp, _)| *timestamp)
        {
            self.active[index].1 -= 1;
            if self.active[index].1 == 0 {
                self.active.remove(index);
            }
        }
    }

    /// Those at or above `from`, in order.
    pub(crate) fn timestamps(&self, from: u64) -> impl Iterator<Item = u64> {
        self.active
            .iter()
            .map(|(timestamp, _)| *timestamp)
            .filter(move |timestamp| *timestamp >= from)
    }

    /// The oldest that is at or above `from`.
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

    /// Snapshots that come at the end and leave anywhere, against a list.
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
