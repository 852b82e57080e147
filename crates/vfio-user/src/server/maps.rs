//! Which memory a client has open.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use qpair_memory::{DmaMemory, Mapping};
use qpair_pci::{BusGuard, Covered, PciDevice};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::codec::{DmaMap, DmaUnmap};

/// Ranges by their first address for the device. They do not overlap.
///
/// Also has what came without a file (a guest's ROMs): the device does not reach it, but its owner will close it.
#[derive(Debug)]
pub(super) struct Maps {
    ranges: BTreeMap<u64, Range>,
    bytes: u64,
    guard: Option<BusGuard>,
    /// What the guard had counted when it was last looked at.
    hits: u64,
}

#[derive(Debug)]
struct Range {
    len: u64,
    is_device_open: bool,
    /// Dropped when the device has forgotten the memory, and not before.
    covered: Option<Covered>,
}

impl Maps {
    pub(super) fn new(guard: Option<BusGuard>) -> Self {
        Self { ranges: BTreeMap::new(), bytes: 0, guard, hits: guard.map_or(0, BusGuard::hits) }
    }

    /// Whether a file behind one of them was cut short.
    pub(super) fn is_cut_short(&mut self) -> bool {
        let hits = self.guard.map_or(0, BusGuard::hits);
        if hits == self.hits {
            return false;
        }
        self.hits = hits;
        self.ranges.values().any(|range| range.covered.as_ref().is_some_and(Covered::is_hit))
    }

    pub(super) fn count(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Opens a range to the device.
    pub(super) fn map(
        &mut self,
        device: &dyn PciDevice,
        map: &DmaMap,
        file: Option<&OwnedFd>,
        count_max: usize,
    ) -> Result<(), Errno> {
        let end = map.iova.checked_add(map.len).ok_or(Errno::INVAL)?;
        if map.len == 0 {
            return Err(Errno::INVAL);
        }
        if self.overlaps(map.iova, end) {
            return Err(Errno::EXIST);
        }
        if self.ranges.len() >= count_max {
            return Err(Errno::NOSPC);
        }
        let mut covered = None;
        if let Some(file) = file {
            let mapping = mapping(map, file)?;
            covered = match self.guard {
                Some(guard) => Some(guard.cover(mapping.clone()).ok_or(Errno::NOSPC)?),
                None => None,
            };
            let memory = DmaMemory::of_mapping(mapping);
            device.map_dma(map.iova, memory).map_err(|error| super::answer::errno_of(&error))?;
        }
        let is_device_open = file.is_some();
        self.ranges.insert(map.iova, Range { len: map.len, is_device_open, covered });
        self.bytes += map.len;
        Ok(())
    }

    /// Closes all ranges that lie in what is named.
    pub(super) fn unmap(&mut self, device: &dyn PciDevice, unmap: &DmaUnmap) -> Result<(), Errno> {
        if unmap.all {
            if unmap.iova != 0 || unmap.len != 0 {
                return Err(Errno::INVAL);
            }
            self.unmap_all(device);
            return Ok(());
        }
        let end = unmap.iova.checked_add(unmap.len).ok_or(Errno::INVAL)?;
        if unmap.len == 0 {
            return Err(Errno::INVAL);
        }
        let before = self.ranges.range(..unmap.iova).next_back();
        let cut = before.is_some_and(|(start, range)| start + range.len > unmap.iova);
        let inside: Vec<u64> =
            self.ranges.range(unmap.iova..end).map(|(start, _)| *start).collect();
        let last = inside.last().and_then(|start| self.ranges.get_key_value(start));
        if cut || last.is_some_and(|(start, range)| start + range.len > end) {
            return Err(Errno::INVAL);
        }
        if inside.is_empty() {
            return Err(Errno::NOENT);
        }
        for start in inside {
            let Some(range) = self.ranges.remove(&start) else { continue };
            self.bytes -= range.len;
            if range.is_device_open {
                device
                    .unmap_dma(start, range.len)
                    .map_err(|error| super::answer::errno_of(&error))?;
            }
        }
        Ok(())
    }

    pub(super) fn unmap_all(&mut self, device: &dyn PciDevice) {
        device.unmap_all();
        self.ranges.clear();
        self.bytes = 0;
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        let before = self.ranges.range(..end).next_back();
        before.is_some_and(|(first, range)| first + range.len > start)
    }
}

/// Maps what a client passed. What is not memory, or ends before the range does, is refused here; if it is cut short later, touching it
/// raises SIGBUS (see `qpair_pci::BusGuard`).
fn mapping(map: &DmaMap, file: &OwnedFd) -> Result<std::sync::Arc<Mapping>, Errno> {
    if !map.readable && !map.writable {
        return Err(Errno::INVAL);
    }
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let end = map.file_offset_bytes.checked_add(map.len).ok_or(Errno::INVAL)?;
    if u64::try_from(stat.st_size).unwrap_or(0) < end {
        return Err(Errno::INVAL);
    }
    let len = usize::try_from(map.len).map_err(|_| Errno::INVAL)?;
    Mapping::of_file(file.as_fd(), map.file_offset_bytes, len, map.writable)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}
