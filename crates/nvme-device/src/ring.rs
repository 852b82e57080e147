//! The memory of a queue: entries of equal size at an address of the driver, contiguous for the
//! device.

use qpair_memory::{DmaMemory, SharedBytes};

use qpair_pci::model::{DmaTable, LastHit};

const PAGE_BYTES: u64 = 4096;

/// A queue's memory. It is looked up when memory is opened or closed, not on each access.
#[derive(Debug)]
pub(crate) struct Ring {
    iova: u64,
    entries: u32,
    entry_bytes: usize,
    /// The segments in order, one for each range of the driver's memory that the queue lies in.
    /// Empty if a part of it is not open.
    segments: Vec<Segment>,
}

#[derive(Debug)]
struct Segment {
    first: u32,
    entries: u32,
    memory: DmaMemory,
    offset: usize,
}

impl Ring {
    /// Describes a queue of `entries` of `entry_bytes` (a power of two up to a page) at `iova`, a
    /// multiple of 4096.
    pub(crate) fn new(iova: u64, entries: u32, entry_bytes: usize) -> Self {
        Self { iova, entries, entry_bytes, segments: Vec::new() }
    }

    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Finds the queue's memory in `table`, and drops the earlier memory. Returns false if some of
    /// it is not open: then none of it is accessed.
    pub(crate) fn resolve(&mut self, table: &DmaTable) -> bool {
        self.segments.clear();
        let bytes = u64::from(self.entries) * self.entry_bytes as u64;
        let (mut extents, mut last, mut at) = (Vec::new(), LastHit::default(), 0);
        while at < bytes {
            let len = (bytes - at).min(PAGE_BYTES);
            let address = self.iova.checked_add(at);
            match address.and_then(|address| table.find(address, len as u32, &mut last)) {
                Some(found) => DmaTable::append(&mut extents, found),
                None => return false,
            }
            at += len;
        }
        let mut first = 0;
        for extent in extents {
            let entries = (extent.len_bytes() / self.entry_bytes) as u32;
            if let Some((memory, offset)) = table.memory(extent) {
                self.segments.push(Segment { first, entries, memory, offset });
            }
            first += entries;
        }
        true
    }

    /// Returns the memory that holds an entry, and the offset of the entry in it. `None` if the
    /// memory is not open.
    #[inline(always)]
    pub(crate) fn entry(&self, index: u32) -> Option<(SharedBytes<'_>, usize)> {
        let mut segment = self.segments.first()?;
        if index >= segment.entries {
            segment = self.segments.iter().rev().find(|segment| segment.first <= index)?;
        }
        let at = segment.offset + (index - segment.first) as usize * self.entry_bytes;
        Some((segment.memory.bytes(), at))
    }
}

#[cfg(test)]
mod tests {
    use qpair_memory::Mapping;

    use super::*;

    #[test]
    fn entries_in_several_ranges() {
        let memory = || DmaMemory::of_mapping(Mapping::new_file(4096).unwrap().0);
        let table = DmaTable::default()
            .with(0x10000, memory())
            .and_then(|table| table.with(0x11000, memory()))
            .unwrap();
        let mut ring = Ring::new(0x10000, 100, 64);
        assert!(ring.entry(0).is_none());
        assert!(ring.resolve(&table));
        for index in 0..100 {
            let (bytes, at) = ring.entry(index).unwrap();
            bytes.store_u32(at, index);
        }
        let page = |iova, offset| {
            let extent = table.find(iova, 4096, &mut LastHit::default()).unwrap();
            table.bytes(extent).unwrap().0.load_u32(offset)
        };
        assert_eq!(
            (page(0x10000, 63 * 64), page(0x11000, 0), page(0x11000, 35 * 64)),
            (63, 64, 99)
        );
        assert!(!ring.resolve(&table.without(0x11000, 4096).unwrap()));
        assert!(ring.entry(0).is_none());
        assert!(!Ring::new(u64::MAX - 4095, 100, 64).resolve(&table));
    }
}
