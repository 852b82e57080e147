//! Chooses the addresses at which devices see memory.
//!
//! - Allocated ranges lie inside the range that the IOMMU can translate, and never overlap.
//! - Address 0 and the addresses of interrupts (from 0xfee00000) are never allocated: a command
//!   that names one by accident accesses no memory.

use std::collections::BTreeMap;

/// The alignment of every allocation, so that the IOMMU can use large pages. It is also the gap
/// between allocations, so that an access past an end hits no memory.
const GRID: u64 = 2 << 20;
/// The addresses to which devices send interrupt messages on x86.
const INTERRUPTS: (u64, u64) = (0xFEE0_0000, 0xFEF0_0000);
/// The preferred start of allocations: lower addresses are easily confused with other values.
const PREFERRED_START: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct IovaSpace {
    /// Start and end of each free range: aligned to the grid, and not adjacent.
    free: BTreeMap<u64, u64>,
}

impl IovaSpace {
    /// Creates the space from the first and last address of each range that the IOMMU can
    /// translate. `None` if the IOMMU does not report ranges.
    pub(super) fn new(ranges: Option<&[(u64, u64)]>) -> Self {
        // The range of an IOMMU with 39 bits, the smallest one known.
        let ranges = ranges.unwrap_or(&[(0, (1 << 39) - 1)]);
        let mut free = BTreeMap::new();
        for &(first, last) in ranges {
            let end = last.saturating_add(1);
            for (start, end) in
                [(first.max(GRID), end.min(INTERRUPTS.0)), (first.max(INTERRUPTS.1), end)]
            {
                let start = start.checked_next_multiple_of(GRID).unwrap_or(u64::MAX);
                let end = end / GRID * GRID;
                if start < end {
                    free.insert(start, end);
                }
            }
        }
        Self { free }
    }

    /// Allocates `len` bytes. Returns `None` if no free range is large enough.
    pub(super) fn take(&mut self, len: u64) -> Option<u64> {
        let wanted = with_gap(len)?;
        let fits = |start: u64, end: u64| end - start >= wanted;
        let above = self.free.iter().find_map(|(&from, &end)| {
            let start = from.max(PREFERRED_START);
            (start < end && fits(start, end)).then_some((from, end, start))
        });
        let (from, end, start) = above.or_else(|| {
            let found = self.free.iter().find(|(from, end)| fits(**from, **end));
            found.map(|(&from, &end)| (from, end, from))
        })?;
        self.free.remove(&from);
        if from < start {
            self.free.insert(from, start);
        }
        if start + wanted < end {
            self.free.insert(start + wanted, end);
        }
        Some(start)
    }

    pub(super) fn give_back(&mut self, iova: u64, len: u64) {
        let Some(wanted) = with_gap(len) else { return };
        let (mut start, mut end) = (iova, iova + wanted);
        if let Some(next_end) = self.free.remove(&end) {
            end = next_end;
        }
        let before = self.free.range(..start).next_back().map(|(&from, &end)| (from, end));
        if let Some((from, _)) = before.filter(|(_, end)| *end == start) {
            self.free.remove(&from);
            start = from;
        }
        self.free.insert(start, end);
    }
}

fn with_gap(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(GRID)?.checked_add(GRID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_from_the_ranges_alone() {
        // The ranges of intel-iommu.
        let mut space = IovaSpace::new(Some(&[(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)]));
        assert_eq!(space.take(4096), Some(1 << 32));
        assert_eq!(space.take(4 << 20), Some((1 << 32) + 2 * GRID));
        assert_eq!(space.take(1 << 39), None);
        assert_eq!(space.take(u64::MAX), None);
        let most = (1 << 39) - (1 << 32) - 6 * GRID;
        assert!(space.take(most).is_some());
        // Higher addresses are used up, so the lowest ones after address 0 are allocated.
        assert_eq!(space.take(1 << 20), Some(GRID));
        assert!(space.free.keys().all(|start| *start < INTERRUPTS.0 || *start >= INTERRUPTS.1));
    }

    #[test]
    fn ranges_around_interrupts_and_at_the_end_of_all() {
        let space = IovaSpace::new(Some(&[(0, u64::MAX)]));
        let ranges: Vec<_> = space.free.into_iter().collect();
        assert_eq!(ranges[0], (GRID, INTERRUPTS.0));
        // The grid begins again after the interrupts.
        assert_eq!(ranges[1].0, 0xff00_0000);
        assert_eq!(ranges.len(), 2);
        assert!(IovaSpace::new(Some(&[(0, 4095), (u64::MAX, u64::MAX)])).free.is_empty());
        assert!(IovaSpace::new(None).take(1 << 30).is_some());
    }

    #[test]
    fn what_comes_back_is_whole_again() {
        let mut space = IovaSpace::new(Some(&[(1 << 32, (1 << 34) - 1)]));
        let before = space.free.clone();
        let mut random = 7u64;
        let mut taken = Vec::new();
        for _ in 0..2000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let len = (random >> 33) % (64 << 20) + 1;
            if random >> 63 == 0 || taken.is_empty() {
                let Some(iova) = space.take(len) else { continue };
                let end = iova + len;
                assert!(taken.iter().all(|(other, bytes)| end <= *other || iova >= other + bytes));
                assert!(iova >= 1 << 32 && end <= 1 << 34);
                taken.push((iova, len));
            } else {
                let (iova, len) = taken.swap_remove((random >> 33) as usize % taken.len());
                space.give_back(iova, len);
            }
        }
        taken.iter().for_each(|(iova, len)| space.give_back(*iova, *len));
        assert_eq!(space.free, before);
    }
}
