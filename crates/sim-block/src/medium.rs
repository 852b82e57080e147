//! The content of a simulated disk: the bytes that reads see, the bytes that would survive a power
//! cut, and the writes between the two.
//!
//! - A write becomes visible as a whole, at one moment. The order of these moments is the order of
//!   the writes.
//! - A durable sector never returns to an older write, because each sector stores the order of its
//!   write.

use std::collections::BTreeSet;

use crate::trace::TraceHash;

/// The number of bytes that are written whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// A write that a power cut may undo.
struct Unflushed {
    order: u64,
    /// The time at which the submitter learned of the completion, or [`NOT_SEEN`].
    seen: u64,
    /// The number of the write, by which its completion is reported.
    number: u64,
    offset_bytes: usize,
    data: Box<[u8]>,
}

const NOT_SEEN: u64 = u64::MAX;

/// The content of a simulated disk.
pub(super) struct Medium {
    pub(super) visible: Vec<u8>,
    durable: Vec<u8>,
    /// The order of the write whose data each sector durably has.
    durable_order: Vec<u64>,
    unflushed: Vec<Unflushed>,
    order: u64,
    /// The number of completions that submitters have learned of.
    seen: u64,
    bad: BTreeSet<usize>,
}

impl Medium {
    pub(super) fn new(content: Vec<u8>) -> Self {
        let sectors = content.len() / SECTOR_BYTES;
        Self {
            visible: content.clone(),
            durable: content,
            durable_order: vec![0; sectors],
            unflushed: Vec::new(),
            order: 0,
            seen: 0,
            bad: BTreeSet::new(),
        }
    }

    /// Changes the size. New bytes read as zeroes, and bytes past the end are lost.
    pub(super) fn resize(&mut self, size_bytes: usize) {
        self.visible.resize(size_bytes, 0);
        self.durable.resize(size_bytes, 0);
        self.durable_order.resize(size_bytes / SECTOR_BYTES, 0);
        self.unflushed.retain(|write| write.offset_bytes + write.data.len() <= size_bytes);
        self.bad.retain(|sector| *sector < size_bytes / SECTOR_BYTES);
    }

    /// Makes a write visible, and durable if `durable` is set.
    pub(super) fn write(&mut self, number: u64, offset_bytes: usize, data: &[u8], durable: bool) {
        self.order += 1;
        self.visible[offset_bytes..offset_bytes + data.len()].copy_from_slice(data);
        let first = offset_bytes / SECTOR_BYTES;
        if !self.bad.is_empty() {
            (first..first + data.len() / SECTOR_BYTES).for_each(|sector| {
                self.bad.remove(&sector);
            });
        }
        let write = Unflushed {
            order: self.order,
            seen: NOT_SEEN,
            number,
            offset_bytes,
            data: data.into(),
        };
        if durable {
            self.make_durable(&write, |_| true);
        } else {
            self.unflushed.push(write);
        }
    }

    /// Carries out a write that fails: each sector is old or new, and new sectors wait for a flush,
    /// or are never durable.
    pub(super) fn write_some(
        &mut self,
        number: u64,
        offset_bytes: usize,
        data: &[u8],
        rng: &mut fastrand::Rng,
    ) {
        let (is_whole, is_forgotten) = (rng.bool(), rng.bool());
        for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
            if is_whole || rng.bool() {
                self.write(number, offset_bytes + index * SECTOR_BYTES, sector, false);
                if is_forgotten {
                    self.unflushed.pop();
                }
            }
        }
    }

    fn make_durable(&mut self, write: &Unflushed, mut chosen: impl FnMut(usize) -> bool) {
        for (index, data) in write.data.chunks(SECTOR_BYTES).enumerate() {
            let sector = write.offset_bytes / SECTOR_BYTES + index;
            if write.order > self.durable_order[sector] && chosen(index) {
                self.durable_order[sector] = write.order;
                let at = sector * SECTOR_BYTES;
                self.durable[at..at + SECTOR_BYTES].copy_from_slice(data);
            }
        }
    }

    /// Notes that the submitter learned of a write's completion: a flush that it submits from now
    /// on covers the write.
    pub(super) fn see(&mut self, number: u64) {
        self.seen += 1;
        let seen = self.seen;
        // The write was seen soon after it was made, so it is near the end.
        for write in self.unflushed.iter_mut().rev().filter(|write| write.number == number) {
            write.seen = seen;
        }
    }

    /// Returns the mark of the writes that a flush submitted now covers.
    pub(super) fn flush_mark(&self) -> u64 {
        self.seen
    }

    /// Ends a flush with this mark: the writes that it covers are durable, and others may be.
    pub(super) fn flush(&mut self, mark: u64, rng: &mut fastrand::Rng) {
        let unflushed = std::mem::take(&mut self.unflushed);
        for write in unflushed {
            if write.seen <= mark || rng.bool() {
                self.make_durable(&write, |_| true);
            } else {
                self.unflushed.push(write);
            }
        }
    }

    /// Ends a flush that fails: of the writes that it covers, some are durable, some are as before,
    /// and some will never be durable.
    pub(super) fn fail_flush(&mut self, mark: u64, rng: &mut fastrand::Rng) {
        let unflushed = std::mem::take(&mut self.unflushed);
        for write in unflushed {
            match rng.u8(0..4) {
                0 => self.make_durable(&write, |_| true),
                1 | 2 if write.seen <= mark => {}
                _ => self.unflushed.push(write),
            }
        }
    }

    /// Cuts the power with these writes in flight: each write that was not flushed is lost, kept or
    /// torn. Returns the bytes that survive.
    pub(super) fn cut(
        mut self,
        in_flight: Vec<(usize, Box<[u8]>)>,
        rng: &mut fastrand::Rng,
    ) -> Vec<u8> {
        let mut unflushed = std::mem::take(&mut self.unflushed);
        for (offset_bytes, data) in in_flight {
            self.order += 1;
            let (order, seen, number) = (self.order, NOT_SEEN, 0);
            unflushed.push(Unflushed { order, seen, number, offset_bytes, data });
        }
        // Some cuts lose everything that they may lose, others nothing.
        let kept = *rng.choice(&[0.0, 0.1, 0.5, 0.9, 1.0]).unwrap_or(&0.5);
        let torn = *rng.choice(&[0.0, 0.1, 0.5]).unwrap_or(&0.0);
        for write in unflushed {
            if rng.f64() < torn {
                let sectors = write.data.len() / SECTOR_BYTES;
                let cut = rng.usize(0..=sectors);
                match rng.u8(0..3) {
                    0 => self.make_durable(&write, |index| index < cut),
                    1 => self.make_durable(&write, |index| index >= cut),
                    _ => self.make_durable(&write, |_| rng.bool()),
                }
            } else if rng.f64() < kept {
                self.make_durable(&write, |_| true);
            }
        }
        self.durable
    }

    /// Makes a sector of a range bad.
    pub(super) fn spoil(&mut self, offset_bytes: usize, len: usize, rng: &mut fastrand::Rng) {
        let first = offset_bytes / SECTOR_BYTES;
        self.bad.insert(first + rng.usize(0..len / SECTOR_BYTES));
    }

    /// Whether a range has a bad sector.
    pub(super) fn is_bad(&self, offset_bytes: usize, len: usize) -> bool {
        let first = offset_bytes / SECTOR_BYTES;
        !self.bad.is_empty() && self.bad.range(first..first + len / SECTOR_BYTES).next().is_some()
    }

    /// Flips a bit of a range permanently.
    pub(super) fn flip(&mut self, offset_bytes: usize, len: usize, rng: &mut fastrand::Rng) {
        let (at, bit) = (offset_bytes + rng.usize(0..len), 1 << rng.u8(0..8));
        self.visible[at] ^= bit;
        self.durable[at] ^= bit;
    }

    /// Returns a hash of the bytes that reads see.
    pub(super) fn hash(&self) -> TraceHash {
        let mut hash = TraceHash::default();
        hash.add_bytes(&self.visible);
        hash
    }
}
