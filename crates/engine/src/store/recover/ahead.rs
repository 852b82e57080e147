//! Read-ahead of a log during recovery.
//!
//! Invariant: the reads under way are those that the log will need next if it continues as
//! expected: up to the end of its segment, then from the beginning of the next one that is known.
//! If the log needs another read, it gets that one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use qpair_block::{Arena, Completion, Request};
use qpair_format::{Error, Result};

use crate::task::Transfer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u32,
}

/// The segments of a log, and the successor of each, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    segment_bytes: u64,
    read_bytes: u32,
    next: BTreeMap<u64, Option<u64>>,
}

impl Chain {
    /// Creates the chain of a log that begins in this segment and is read in pieces of
    /// `read_bytes`.
    pub(super) fn new(first: u64, segment_bytes: u32, read_bytes: u32) -> Self {
        let next = BTreeMap::from([(first, None)]);
        Self { segment_bytes: segment_bytes.into(), read_bytes, next }
    }

    /// Notes that the segment at `next` comes after the one at `segment`.
    pub(super) fn link(&mut self, segment: u64, next: u64) {
        self.next.insert(segment, Some(next));
        self.next.entry(next).or_insert(None);
    }

    /// Returns the read after this one, if the log continues.
    fn after(&self, extent: Extent) -> Option<Extent> {
        let (&segment, &next) = self.next.range(..=extent.offset_bytes).next_back()?;
        let end = extent.offset_bytes.checked_add(extent.len_bytes.into())?;
        let left = |segment: u64, at: u64| segment.checked_add(self.segment_bytes)?.checked_sub(at);
        let (offset_bytes, left_bytes) = match left(segment, end)? {
            0 => (next?, self.segment_bytes),
            left => (end, left),
        };
        let len_bytes = left_bytes.min(self.read_bytes.into()) as u32;
        Some(Extent { offset_bytes, len_bytes })
    }
}

pub(super) struct Ahead {
    arena: Arc<Arena>,
    device_bytes: u64,
    reads: VecDeque<(Extent, Transfer)>,
}

impl Ahead {
    /// Creates an empty queue. `arena` is for this log alone, and has as many blocks as reads may
    /// be under way.
    pub(super) fn new(arena: Arc<Arena>, device_bytes: u64) -> Self {
        Self { arena, device_bytes, reads: VecDeque::new() }
    }

    /// Starts the read of `extent`, unless it is under way, and the reads after it.
    pub(super) async fn ask(&mut self, extent: Extent, chain: &Chain) -> Result<()> {
        while self.reads.front().is_some_and(|(front, _)| *front != extent) {
            if let Some((_, other)) = self.reads.pop_front() {
                // The read is not needed, but its memory is.
                drop(other.done().await?);
            }
        }
        let mut last = self.reads.back().map(|(last, _)| *last);
        loop {
            let following = match last {
                None => Some(extent),
                Some(last) => chain.after(last),
            };
            let Some(following) = following.filter(|of| self.is_inside(*of)) else { break };
            let Some(buffer) = self.arena.lease() else { break };
            let Extent { offset_bytes, len_bytes } = following;
            let read = Transfer::submit(Request::read(offset_bytes, len_bytes, buffer, 0));
            self.reads.push_back((following, read));
            last = Some(following);
        }
        Ok(())
    }

    /// Waits for the reads under way, and drops their data.
    pub(super) async fn forget(&mut self) -> Result<()> {
        while let Some((_, other)) = self.reads.pop_front() {
            drop(other.done().await?);
        }
        Ok(())
    }

    fn is_inside(&self, extent: Extent) -> bool {
        let end = extent.offset_bytes.checked_add(extent.len_bytes.into());
        end.is_some_and(|end| end <= self.device_bytes)
    }

    /// Waits for the read at the front of the queue. `None` if there is none, since the extent is
    /// past the device's end.
    pub(super) async fn done(&mut self) -> Result<Option<(Extent, Completion)>> {
        let Some((extent, read)) = self.reads.pop_front() else { return Ok(None) };
        let completion = read.done().await?;
        completion.result.map_err(|error| Error::io(error, "reading the log"))?;
        Ok(Some((extent, completion)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_goes_on_in_the_next_segment() {
        let extent = |offset_bytes, len_bytes| Extent { offset_bytes, len_bytes };
        let mut chain = Chain::new(1 << 20, 1 << 16, 40 << 10);
        let first = extent(1 << 20, 40 << 10);
        let second = chain.after(first).unwrap();
        assert_eq!(second, extent((1 << 20) + (40 << 10), 24 << 10));
        assert_eq!(chain.after(second), None);
        chain.link(1 << 20, 5 << 16);
        assert_eq!(chain.after(second), Some(extent(5 << 16, 40 << 10)));
        // Nothing is known about places outside of the segments.
        assert_eq!(chain.after(extent(0, 512)), None);
        assert_eq!(chain.after(extent(7 << 16, 512)), None);
    }
}
