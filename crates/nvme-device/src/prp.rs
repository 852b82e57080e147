//! Translates PRP entries into memory (Base §4.1.1). No address is trusted: each is looked up, and
//! entries in the driver's memory are read only once.
//!
//! Every walk ends: each page of a list but the last has at least 511 entries of data after the
//! first one, however it is chained.

use qpair_block::Segment;
use qpair_nvme_wire::{Command, PAGE_BYTES, Range, Status};
use qpair_pci::model::{DmaSpan, DmaTable, Extent, LastHit, SharedTable};

const PAGE: u64 = PAGE_BYTES as u64;
const ENTRY_BYTES: u64 = 8;

/// The size in bytes of the maximum number of ranges of one command.
pub const RANGES_BYTES_MAX: usize = 256 * Range::BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The device reads the driver's memory.
    FromDriver,
    /// The device writes the driver's memory.
    ToDriver,
}

/// The memory that a driver has opened, and the part of it that one command names.
#[derive(Debug, Default)]
pub struct DriverMemory {
    pub(crate) table: SharedTable,
    pub(crate) last: LastHit,
    extents: Vec<Extent>,
}

impl DriverMemory {
    /// Finds the memory of `len` bytes that a command's PRP entries name.
    ///
    /// # Errors
    /// A status, if an entry is wrong, or its memory is not open.
    #[inline]
    pub fn prps(
        &mut self,
        command: &Command,
        len: u32,
        direction: Direction,
    ) -> Result<(), Status> {
        let Self { table, last, extents } = self;
        extents.clear();
        Walk { table, last, extents }.prps(command.prp1(), command.prp2(), len, direction)
    }

    /// Reads the non-empty ranges that a Dataset Management command names. Reads them only once,
    /// because the driver may be changing them.
    ///
    /// # Errors
    /// The errors of [`Self::prps`].
    pub fn ranges<'l>(
        &mut self,
        command: &Command,
        list: &'l mut [u8; RANGES_BYTES_MAX],
    ) -> Result<impl Iterator<Item = Range> + Clone + use<'l>, Status> {
        let len = ((command.cdw(10) & 0xFF) as usize + 1) * Range::BYTES;
        self.prps(command, len as u32, Direction::FromDriver)?;
        let list = &mut list[..len];
        self.span().copy_to(list);
        let (chunks, _) = list.as_chunks::<{ Range::BYTES }>();
        Ok(chunks.iter().map(Range::decode).filter(|range| range.blocks > 0))
    }

    /// Returns the memory found by the last call.
    #[inline]
    #[must_use]
    pub fn span(&self) -> DmaSpan<'_> {
        DmaSpan::new(&self.table, &self.extents)
    }

    /// Returns the memory found by the last call, as parts of the table's mappings.
    pub fn segments(&self) -> impl Iterator<Item = Segment> {
        self.extents.iter().map(|extent| extent.segment())
    }
}

struct Walk<'a> {
    table: &'a DmaTable,
    last: &'a mut LastHit,
    extents: &'a mut Vec<Extent>,
}

impl Walk<'_> {
    #[inline]
    fn prps(&mut self, prp1: u64, prp2: u64, len: u32, direction: Direction) -> Result<(), Status> {
        if !prp1.is_multiple_of(4) {
            return Err(Status::INVALID_PRP_OFFSET);
        }
        let first = len.min((PAGE - prp1 % PAGE) as u32);
        self.push(prp1, first, direction)?;
        match len - first {
            0 => Ok(()),
            rest if u64::from(rest) <= PAGE => self.push_page(prp2, rest, direction),
            rest => self.list(prp2, rest, direction),
        }
    }

    fn list(&mut self, list: u64, len: u32, direction: Direction) -> Result<(), Status> {
        if !list.is_multiple_of(ENTRY_BYTES) {
            return Err(Status::INVALID_PRP_OFFSET);
        }
        let (mut at, mut rest) = (list, len);
        let mut last = LastHit::default();
        loop {
            let room = ((PAGE - at % PAGE) / ENTRY_BYTES) as u32;
            let needed = rest.div_ceil(PAGE_BYTES as u32);
            // If the list is longer than the rest of the page, the page's last entry leads to the
            // next page.
            let chained = needed > room;
            let entries = if chained { room - 1 } else { needed };
            let bytes = (entries + u32::from(chained)) * ENTRY_BYTES as u32;
            let (words, start) = self
                .table
                .find(at, bytes, &mut last)
                .and_then(|extent| self.table.bytes(extent))
                .ok_or(Status::DATA_TRANSFER_ERROR)?;
            for entry in 0..entries as usize {
                let now = rest.min(PAGE_BYTES as u32);
                self.push_page(
                    words.load_u64(start + entry * ENTRY_BYTES as usize),
                    now,
                    direction,
                )?;
                rest -= now;
            }
            if !chained {
                return Ok(());
            }
            at = words.load_u64(start + entries as usize * ENTRY_BYTES as usize);
            if !at.is_multiple_of(PAGE) {
                return Err(Status::INVALID_PRP_OFFSET);
            }
        }
    }

    fn push_page(&mut self, address: u64, len: u32, direction: Direction) -> Result<(), Status> {
        if !address.is_multiple_of(PAGE) {
            return Err(Status::INVALID_PRP_OFFSET);
        }
        self.push(address, len, direction)
    }

    #[inline(always)]
    fn push(&mut self, address: u64, len: u32, direction: Direction) -> Result<(), Status> {
        let found = self.table.find(address, len, self.last).ok_or(Status::DATA_TRANSFER_ERROR)?;
        if direction == Direction::ToDriver && !self.table.is_writable(found) {
            return Err(Status::DATA_TRANSFER_ERROR);
        }
        DmaTable::append(self.extents, found);
        Ok(())
    }
}
