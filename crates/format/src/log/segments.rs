//! The free segments of a log device.
//!
//! Invariant: a segment is allocated at most once until it is given back, and never if it overlaps
//! a claim, which is a log that recovery still reads. Low segments are allocated first, so that a
//! file stays as small as possible.

use std::ops::Range;

/// The segments of a device that holds only logs, in order.
#[derive(Debug)]
pub struct Segments {
    /// The address of the first segment on the device in bytes.
    start_bytes: u64,
    segment_bytes: u64,
    /// Whether each segment is allocated, up to the highest one that ever was.
    taken: Vec<bool>,
    used: u64,
    /// The ranges of the device with logs of an earlier incarnation, whose segments may have had
    /// another size.
    claims: Vec<Range<u64>>,
}

impl Segments {
    /// Creates the segments of a device; all are free.
    pub fn new(start_bytes: u64, segment_bytes: u64) -> Self {
        Self { start_bytes, segment_bytes, taken: Vec::new(), used: 0, claims: Vec::new() }
    }

    pub fn count(&self, device_bytes: u64) -> u64 {
        device_bytes.saturating_sub(self.start_bytes) / self.segment_bytes
    }

    /// Returns the end of the segment that begins at `offset_bytes`.
    pub fn end_bytes(&self, offset_bytes: u64) -> u64 {
        offset_bytes + self.segment_bytes
    }

    /// Returns the offset of the first free segment on the device. It may lie past the present end
    /// of the device.
    pub fn first_free(&self) -> u64 {
        let mut index = 0;
        loop {
            let offset_bytes = self.start_bytes + index as u64 * self.segment_bytes;
            let end_bytes = self.end_bytes(offset_bytes);
            let is_claimed =
                self.claims.iter().any(|of| of.start < end_bytes && offset_bytes < of.end);
            if !is_claimed && !self.taken.get(index).copied().unwrap_or(false) {
                return offset_bytes;
            }
            index += 1;
        }
    }

    fn index(&self, offset_bytes: u64) -> usize {
        ((offset_bytes - self.start_bytes) / self.segment_bytes) as usize
    }

    pub fn take(&mut self, offset_bytes: u64) {
        let index = self.index(offset_bytes);
        if self.taken.len() <= index {
            self.taken.resize(index + 1, false);
        }
        self.used += u64::from(!std::mem::replace(&mut self.taken[index], true));
    }

    pub fn give(&mut self, offset_bytes: u64) {
        let index = self.index(offset_bytes);
        if let Some(taken) = self.taken.get_mut(index) {
            self.used -= u64::from(std::mem::replace(taken, false));
        }
    }

    /// Allocates nothing in this range until [`Segments::release_claims`].
    pub fn claim(&mut self, range: Range<u64>) {
        self.claims.push(range);
    }

    /// Releases the logs of the earlier incarnation, which are no longer needed.
    pub fn release_claims(&mut self) {
        self.claims.clear();
    }

    pub fn used(&self) -> u64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(segments: &mut Segments) -> u64 {
        let free = segments.first_free();
        segments.take(free);
        free
    }

    #[test]
    fn low_ones_first_and_each_once() {
        let mut segments = Segments::new(100, 10);
        assert_eq!((segments.count(99), segments.count(129), segments.count(130)), (0, 2, 3));
        assert_eq!([100, 110, 120], std::array::from_fn(|_| take(&mut segments)));
        segments.give(110);
        segments.give(110);
        assert_eq!(segments.used(), 2);
        assert_eq!((take(&mut segments), take(&mut segments)), (110, 130));
    }

    #[test]
    fn what_is_claimed_is_not_handed_out() {
        let mut segments = Segments::new(100, 10);
        // Claims may have segments of another size.
        segments.claim(95..101);
        segments.claim(125..131);
        assert_eq!((take(&mut segments), take(&mut segments)), (110, 140));
        segments.release_claims();
        assert_eq!((take(&mut segments), take(&mut segments)), (100, 120));
    }
}
