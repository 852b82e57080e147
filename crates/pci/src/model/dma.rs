//! The memory that a driver has opened to a device.
//!
//! A table never changes: opening and closing memory create another one. A thread that works on a
//! command holds one table from its first look-up of an address to its last byte, so the memory
//! that it found stays mapped meanwhile.

use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Mapping, Result, Segment};
use qpair_memory::{DmaMemory, SharedBytes};

const PAGE_BYTES: u64 = 4096;
const REGIONS_MAX: usize = 4096;

/// The open memory: disjoint ranges, sorted.
#[derive(Clone, Debug, Default)]
pub struct DmaTable {
    regions: Vec<Region>,
}

#[derive(Clone, Debug)]
struct Region {
    iova: u64,
    len: u64,
    memory: DmaMemory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    region: u32,
    len: u32,
    offset: u64,
}

impl Extent {
    #[inline]
    #[must_use]
    pub fn len_bytes(self) -> usize {
        self.len as usize
    }

    /// Returns the extent as a part of the table's mappings ([`DmaTable::mappings`]).
    #[inline]
    #[must_use]
    pub fn segment(self) -> Segment {
        Segment { region: self.region, offset_bytes: self.offset, len_bytes: self.len }
    }
}

/// The region that was found last, which is the right one for most commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastHit(u32);

impl DmaTable {
    /// Returns this table with one more range.
    ///
    /// # Errors
    /// `Invalid` for a range that does not consist of pages, `Exists` if it overlaps open memory,
    /// `Limit` if there are too many ranges.
    pub fn with(&self, iova: u64, memory: DmaMemory) -> Result<Self> {
        let len = memory.bytes().len() as u64;
        let range = format!("{len} bytes of memory at {iova:#x} cannot be opened to a device");
        if len == 0 || !iova.is_multiple_of(PAGE_BYTES) || iova.checked_add(len).is_none() {
            return Err(Error::new(ErrorKind::Invalid, range)
                .hint("ranges begin at a multiple of 4096 and end before 2^64"));
        }
        if self.regions.len() >= REGIONS_MAX {
            return Err(Error::new(ErrorKind::Limit, range)
                .hint(format!("at most {REGIONS_MAX} ranges can be open")));
        }
        let at = self.regions.partition_point(|region| region.iova < iova);
        let meets_next = self.regions.get(at).is_some_and(|next| next.iova < iova + len);
        let before = at.checked_sub(1).and_then(|at| self.regions.get(at));
        if meets_next || before.is_some_and(|before| before.iova + before.len > iova) {
            return Err(Error::new(
                ErrorKind::Exists,
                format!("{range}: they overlap what is open"),
            ));
        }
        let mut regions = self.regions.clone();
        regions.insert(at, Region { iova, len, memory });
        Ok(Self { regions })
    }

    /// Returns this table without the ranges that lie inside a given one.
    ///
    /// # Errors
    /// `Invalid` if a range is only partly inside, `NotFound` if none is inside.
    pub fn without(&self, iova: u64, len: u64) -> Result<Self> {
        let range = || format!("closing {len} bytes of memory at {iova:#x} for a device");
        let last = iova.saturating_add(len.saturating_sub(1));
        let meets = |region: &Region| {
            len > 0 && region.iova <= last && region.iova + (region.len - 1) >= iova
        };
        let inside =
            |region: &Region| region.iova >= iova && region.iova + (region.len - 1) <= last;
        if self.regions.iter().any(|region| meets(region) && !inside(region)) {
            return Err(Error::new(ErrorKind::Invalid, range())
                .hint("what was opened together is closed together"));
        }
        let regions: Vec<_> =
            self.regions.iter().filter(|region| !meets(region)).cloned().collect();
        if regions.len() == self.regions.len() {
            return Err(Error::new(ErrorKind::NotFound, range()));
        }
        Ok(Self { regions })
    }

    /// Finds `len` bytes at `iova` that lie in one range.
    #[inline(always)]
    pub fn find(&self, iova: u64, len: u32, last: &mut LastHit) -> Option<Extent> {
        if let Some(region) = self.regions.get(last.0 as usize) {
            let offset = iova.wrapping_sub(region.iova);
            if offset < region.len && u64::from(len) <= region.len - offset {
                return Some(Extent { region: last.0, len, offset });
            }
        }
        self.search(iova, len, last)
    }

    #[cold]
    fn search(&self, iova: u64, len: u32, last: &mut LastHit) -> Option<Extent> {
        let at = self.regions.partition_point(|region| region.iova <= iova).checked_sub(1)?;
        let region = self.regions.get(at)?;
        let offset = iova - region.iova;
        if offset >= region.len || u64::from(len) > region.len - offset {
            return None;
        }
        *last = LastHit(at as u32);
        Some(Extent { region: at as u32, len, offset })
    }

    /// Whether all of `len` bytes at `iova` are open, in one range or in adjacent ones: behind an
    /// IOMMU each page of a driver may be a range of its own. With `is_written`, the device must
    /// also be allowed to write them.
    #[must_use]
    pub fn covers(&self, iova: u64, len: u64, is_written: bool) -> bool {
        let Some(end) = iova.checked_add(len) else { return false };
        let mut at = iova;
        let first = self.regions.partition_point(|region| region.iova + (region.len - 1) < iova);
        for region in self.regions.get(first..).unwrap_or_default() {
            let is_open = region.iova <= at && (!is_written || region.memory.bytes().is_writable());
            if at >= end || !is_open {
                break;
            }
            at = region.iova + region.len;
        }
        at >= end
    }

    /// Copies bytes to the driver's memory at `iova`, in one range or in adjacent ones. Returns
    /// false if the device may not write all of it; then nothing is copied.
    #[must_use]
    pub fn copy_from(&self, iova: u64, bytes: &[u8]) -> bool {
        if !self.covers(iova, bytes.len() as u64, true) {
            return false;
        }
        let (mut at, mut rest) = (iova, bytes);
        while !rest.is_empty() {
            let in_page = (PAGE_BYTES - at % PAGE_BYTES) as usize;
            let (now, later) = rest.split_at(in_page.min(rest.len()));
            let found = self.find(at, now.len() as u32, &mut LastHit::default());
            let Some((memory, offset)) = found.and_then(|found| self.bytes(found)) else {
                return false;
            };
            memory.copy_from(offset, now);
            at += now.len() as u64;
            rest = later;
        }
        true
    }

    /// Returns the bytes around an extent, and the extent's offset in them.
    #[inline(always)]
    pub fn bytes(&self, extent: Extent) -> Option<(SharedBytes<'_>, usize)> {
        let region = self.regions.get(extent.region as usize)?;
        Some((region.memory.bytes(), extent.offset as usize))
    }

    #[inline(always)]
    pub fn is_writable(&self, extent: Extent) -> bool {
        self.bytes(extent).is_some_and(|(bytes, _)| bytes.is_writable())
    }

    /// Returns the memory that contains an extent, and the extent's offset in it.
    #[must_use]
    pub fn memory(&self, extent: Extent) -> Option<(DmaMemory, usize)> {
        let region = self.regions.get(extent.region as usize)?;
        Some((region.memory.clone(), extent.offset as usize))
    }

    /// Returns the open mappings, in the order by which segments name them ([`Extent::segment`]);
    /// `None` if some of the memory belongs to this process.
    #[must_use]
    pub fn mappings(&self) -> Option<Vec<Arc<Mapping>>> {
        self.regions.iter().map(|region| region.memory.mapping().cloned()).collect()
    }

    pub fn truncate(list: &mut Vec<Extent>, len: usize) {
        let mut rest = len;
        list.retain_mut(|extent| {
            extent.len = extent.len.min(u32::try_from(rest).unwrap_or(u32::MAX));
            rest -= extent.len_bytes();
            extent.len > 0
        });
    }

    /// Cuts a list after `len` bytes, and returns the rest.
    pub fn split_off(list: &mut Vec<Extent>, len: usize) -> Vec<Extent> {
        let (mut rest, mut behind) = (len, Vec::new());
        for extent in list.iter() {
            let before = u32::try_from(rest).unwrap_or(u32::MAX).min(extent.len);
            rest -= before as usize;
            if before < extent.len {
                let offset = extent.offset + u64::from(before);
                behind.push(Extent { offset, len: extent.len - before, ..*extent });
            }
        }
        Self::truncate(list, len);
        behind
    }

    /// Appends an extent to a list, or extends the last one by it.
    #[inline]
    pub fn append(list: &mut Vec<Extent>, next: Extent) {
        if let Some(last) = list.last_mut()
            && last.region == next.region
            && last.offset + u64::from(last.len) == next.offset
        {
            last.len += next.len;
            return;
        }
        list.push(next);
    }
}

/// The memory of a command, piece by piece.
#[derive(Clone, Copy)]
pub struct DmaSpan<'a> {
    table: &'a DmaTable,
    extents: &'a [Extent],
}

/// A piece: bytes, and the offset and length of the piece in them.
pub type Piece<'a> = (SharedBytes<'a>, usize, usize);

impl<'a> DmaSpan<'a> {
    #[inline]
    #[must_use]
    pub fn new(table: &'a DmaTable, extents: &'a [Extent]) -> Self {
        Self { table, extents }
    }

    #[inline]
    pub fn pieces(self) -> impl Iterator<Item = Piece<'a>> {
        self.extents.iter().filter_map(move |extent| {
            let (bytes, offset) = self.table.bytes(*extent)?;
            Some((bytes, offset, extent.len_bytes()))
        })
    }

    pub fn len_bytes(self) -> usize {
        self.extents.iter().map(|extent| extent.len_bytes()).sum()
    }

    /// Copies all of the memory to `into`, which must have its length.
    pub fn copy_to(self, into: &mut [u8]) {
        let mut rest = into;
        for (bytes, offset, len) in self.pieces() {
            let (now, later) = rest.split_at_mut(len.min(rest.len()));
            bytes.copy_to(offset, now);
            rest = later;
        }
    }

    /// Copies `from` to the memory, up to the end of the shorter one.
    pub fn copy_from(self, from: &[u8]) {
        let mut rest = from;
        for (bytes, offset, len) in self.pieces() {
            let (now, later) = rest.split_at(len.min(rest.len()));
            bytes.copy_from(offset, now);
            rest = later;
        }
    }
}

pub type SharedTable = Arc<DmaTable>;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn memory(len: usize) -> DmaMemory {
        DmaMemory::of_mapping(Mapping::new_file(len).unwrap().0)
    }

    #[test]
    fn finds_what_is_open_and_nothing_else() {
        let table = DmaTable::default()
            .with(0x10000, memory(8192))
            .and_then(|table| table.with(0x4000, memory(4096)))
            .and_then(|table| table.with(0x12000, memory(4096)))
            .unwrap();
        let mut last = LastHit::default();
        let mut at = |iova, len| table.find(iova, len, &mut last).map(|found| found.offset);
        assert_eq!(at(0x10000, 8192), Some(0));
        assert_eq!(at(0x11fff, 1), Some(8191));
        assert_eq!(at(0x11fff, 2), None, "runs into the next range, whose memory is another one");
        assert_eq!(at(0x4000, 4096), Some(0));
        assert_eq!(at(0x4000, 4097), None);
        assert_eq!(at(0x3fff, 1), None);
        assert_eq!(at(0x5000, 1), None);
        assert_eq!(at(0x12000, 4096), Some(0));
        assert_eq!(at(u64::MAX, 1), None);
        assert_eq!(at(0, 0), None);
    }

    #[test]
    fn adjacent_ranges_are_covered_and_written_together() {
        let (_, file) = Mapping::new_file(4096).unwrap();
        let read_only = Mapping::of_memory_file(file.as_fd(), 0, 4096, false).unwrap();
        let table = [0x10000, 0x11000, 0x13000, 0x14000]
            .into_iter()
            .try_fold(DmaTable::default(), |table, iova| table.with(iova, memory(4096)))
            .and_then(|table| table.with(0x15000, DmaMemory::of_mapping(read_only)))
            .unwrap();
        assert!(table.covers(0x10000, 8192, true) && table.covers(0x10fff, 2, true));
        assert!(table.covers(0x14800, 4096, false) && !table.covers(0x14800, 4096, true));
        for (iova, len) in [(0xffff, 2), (0x11fff, 2), (0x12000, 1), (0x15fff, 2), (u64::MAX, 2)] {
            assert!(!table.covers(iova, len, false), "{len} at {iova:#x}");
        }
        let bytes: Vec<u8> = (0..6000).map(|at| (at % 251) as u8).collect();
        assert!(table.copy_from(0x10400, &bytes));
        assert!(!table.copy_from(0x11fff, &[1, 2]), "into a gap");
        let mut extents = Vec::new();
        for (iova, len) in [(0x10400, 0xc00), (0x11000, 6000 - 0xc00)] {
            extents.extend(table.find(iova, len, &mut LastHit::default()));
        }
        let mut read = vec![0; bytes.len()];
        DmaSpan::new(&table, &extents).copy_to(&mut read);
        assert_eq!(read, bytes);
    }

    #[test]
    fn overlaps_and_odd_ranges_are_refused() {
        let table = DmaTable::default().with(0x10000, memory(8192)).unwrap();
        for iova in [0xf000, 0x10000, 0x11000] {
            let error = table.with(iova, memory(8192)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exists, "{iova:#x}");
        }
        for iova in [0x10008, u64::MAX - 4095] {
            assert_eq!(table.with(iova, memory(8192)).unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert!(table.with(0xe000, memory(8192)).is_ok());
        assert!(table.with(0x12000, memory(8192)).is_ok());
    }

    #[test]
    fn closing_takes_whole_ranges() {
        let table = DmaTable::default()
            .with(0x10000, memory(8192))
            .and_then(|table| table.with(0x20000, memory(8192)))
            .unwrap();
        let kind = |iova, len| table.without(iova, len).map(|_| ()).unwrap_err().kind();
        assert_eq!(kind(0x10000, 4096), ErrorKind::Invalid);
        assert_eq!(kind(0x11000, 0x1_0000), ErrorKind::Invalid);
        assert_eq!(kind(0x30000, 4096), ErrorKind::NotFound);
        assert_eq!(kind(0x10000, 0), ErrorKind::NotFound);
        assert_eq!(table.without(0x10000, 8192).unwrap().regions.len(), 1);
        assert_eq!(table.without(0, u64::MAX).unwrap().regions.len(), 0);
    }
}
