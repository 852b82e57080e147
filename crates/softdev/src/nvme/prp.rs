//! From PRP entries to memory (Base §4.1.1). Nothing here trusts an address: each is looked up, and what a driver wrote is read once.
//!
//! A walk ends: each page of a list but the last holds at least 511 entries of data after the first one, however its chain is laid.

use qpair_nvme_wire::{PAGE_BYTES, Status};

use qpair_pci::model::{DmaTable, Extent, LastHit};

const PAGE: u64 = PAGE_BYTES as u64;
const ENTRY_BYTES: u64 = 8;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The device reads the driver's memory.
    FromDriver,
    /// The device writes the driver's memory.
    ToDriver,
}

/// A look at a driver's memory for one command.
pub(crate) struct Walk<'a> {
    pub(crate) table: &'a DmaTable,
    pub(crate) last: &'a mut LastHit,
    /// What was found: emptied first.
    pub(crate) extents: &'a mut Vec<Extent>,
}

impl Walk<'_> {
    /// Finds the memory of `len` bytes that two PRP entries name.
    #[inline]
    pub(crate) fn prps(
        &mut self,
        prp1: u64,
        prp2: u64,
        len: u32,
        direction: Direction,
    ) -> Result<(), Status> {
        self.extents.clear();
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
            // The last entry of a page that is too short leads to the next page.
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
