//! The memory that a client has open.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use qpair_memory::{DmaMemory, Mapping, mappings_cut};
use qpair_pci::PciDevice;
use rustix::io::Errno;

use crate::codec::{DmaMap, DmaUnmap};

/// Ranges by their first address for the device. They do not overlap.
///
/// Also has ranges without a file (a guest's ROMs). The device cannot access them, but the client
/// will close them.
#[derive(Debug)]
pub(super) struct Maps {
    ranges: BTreeMap<u64, Range>,
    bytes: u64,
    /// The number of mappings that had been cut short at the last check.
    cut: u64,
}

#[derive(Debug)]
struct Range {
    len: u64,
    /// The memory that is open to the device, if the range has a file.
    mapping: Option<Arc<Mapping>>,
}

impl Maps {
    pub(super) fn new() -> Self {
        Self { ranges: BTreeMap::new(), bytes: 0, cut: mappings_cut() }
    }

    pub(super) fn is_cut_short(&mut self) -> bool {
        let cut = mappings_cut();
        if cut == self.cut {
            return false;
        }
        self.cut = cut;
        self.ranges.values().any(|range| range.mapping.as_ref().is_some_and(|it| it.is_cut()))
    }

    pub(super) fn count(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

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
        let mapping = file.map(|file| mapping(map, file)).transpose()?;
        if let Some(mapping) = &mapping {
            let memory = DmaMemory::of_mapping(mapping.clone());
            device.map_dma(map.iova, memory).map_err(|error| super::answer::errno_of(&error))?;
        }
        self.ranges.insert(map.iova, Range { len: map.len, mapping });
        self.bytes += map.len;
        Ok(())
    }

    /// Closes all ranges that lie inside the named one.
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
            if range.mapping.is_some() {
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

/// Maps a file from a client. A file that is not memory, or is shorter than the range, is refused
/// here. If it is cut short later, the mapping is replaced ([`Mapping::is_cut`]).
fn mapping(map: &DmaMap, file: &OwnedFd) -> Result<Arc<Mapping>, Errno> {
    if !map.readable && !map.writable {
        return Err(Errno::INVAL);
    }
    let len = usize::try_from(map.len).map_err(|_| Errno::INVAL)?;
    Mapping::of_memory_file(file.as_fd(), map.file_offset_bytes, len, map.writable).map_err(
        |error| match error.kind() {
            std::io::ErrorKind::OutOfMemory => Errno::NOSPC,
            _ => Errno::from_io_error(&error).unwrap_or(Errno::INVAL),
        },
    )
}
