//! Turns requests into commands: chooses the part of a request for the next command.

use qpair_block::Op;
use qpair_scsi_wire::command::{Cdb, Range};
use qpair_scsi_wire::timestamp::TIMESTAMP_BYTES;
use qpair_scsi_wire::unmap::ONE_RANGE_BYTES;
use qpair_scsi_wire::{Command, Width};

use super::facts::DiskFacts;

/// The size of a bounce buffer in bytes.
pub(crate) const BOUNCE_BYTES: u32 = 128 << 10;
/// The number of bounce buffers of a channel.
pub(crate) const BOUNCES: u16 = 8;
/// The largest logical block in bytes: a WRITE SAME sends one.
const BLOCK_BYTES_MAX: u32 = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) block_shift: u32,
    pub(crate) size_bytes: u64,
    pub(crate) write_cache: bool,
    force_unit_access: bool,
    /// The maximum number of bytes of one command, by its kind; 0: no such command.
    transfer_bytes_max: u32,
    unmap_bytes_max: u32,
    write_same_bytes_max: u32,
}

impl Plan {
    pub(crate) fn new(facts: &DiskFacts, host_bytes_max: u32) -> Self {
        let shift = facts.logical_block_bytes.trailing_zeros();
        // Whole blocks, limited so that 32 bits hold their bytes with room to spare.
        let bytes = |blocks: Option<u32>| {
            let bytes = u64::from(blocks.unwrap_or(0)) << shift;
            (bytes.min(1 << 30) >> shift << shift) as u32
        };
        let transfer = bytes(Some(facts.transfer_blocks_max.unwrap_or(u32::MAX)));
        Self {
            block_shift: shift,
            size_bytes: facts.size_bytes(),
            write_cache: facts.write_cache,
            force_unit_access: facts.force_unit_access,
            transfer_bytes_max: transfer.min(host_bytes_max >> shift << shift),
            unmap_bytes_max: bytes(facts.unmap_blocks_max),
            write_same_bytes_max: bytes(facts.write_same_blocks_max),
        }
    }

    /// Returns the maximum number of bytes of one command of this kind; 0: no such command.
    #[inline]
    pub(crate) fn piece_bytes_max(&self, op: Op) -> u32 {
        match op {
            Op::Read | Op::Write => self.transfer_bytes_max,
            Op::Discard => self.unmap_bytes_max,
            Op::WriteZeroes => self.write_same_bytes_max,
            Op::Flush => u32::MAX,
        }
    }

    /// Whether a write needs a flush after its command to be durable.
    pub(crate) fn needs_flush(&self, op: Op, force_unit_access: bool) -> bool {
        op == Op::Write && force_unit_access && self.write_cache && !self.force_unit_access
    }

    #[inline(always)]
    pub(crate) fn transfer(&self, is_write: bool, at: u64, len: u32, fua: bool) -> Cdb {
        let fua = is_write && fua && self.write_cache && self.force_unit_access;
        Cdb::transfer(is_write, at >> self.block_shift, len >> self.block_shift, fua)
    }

    fn range(&self, at: u64, len: u32) -> Range {
        Range {
            block: at >> self.block_shift,
            blocks: len >> self.block_shift,
            width: Width::Sixteen,
        }
    }

    pub(crate) fn write_zeroes(&self, at: u64, len: u32) -> Cdb {
        let range = self.range(at, len);
        Command::WriteSame { range, unmap: false, anchor: false, no_data: false, protect: 0 }
            .encode()
    }

    pub(crate) fn unmap() -> Cdb {
        Command::Unmap { anchor: false, len: ONE_RANGE_BYTES as u16 }.encode()
    }

    pub(crate) fn timestamp(is_set: bool) -> Cdb {
        let bytes = TIMESTAMP_BYTES as u32;
        match is_set {
            true => Command::SetTimestamp { len: bytes },
            false => Command::ReportTimestamp { allocation: bytes },
        }
        .encode()
    }

    pub(crate) fn flush(&self) -> Cdb {
        // All blocks of the disk. The short form is used if it suffices, because every disk
        // supports it.
        let width = match self.size_bytes >> self.block_shift {
            0..=0xFFFF_FFFF => Width::Ten,
            _ => Width::Sixteen,
        };
        let range = Range { block: 0, blocks: 0, width };
        Command::SynchronizeCache { range, immediate: false }.encode()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    lists_at: u32,
    bounces_at: u32,
    pub(crate) len: usize,
}

impl Layout {
    /// Lays out a block of zeroes, a list for each slot, and bounce buffers.
    pub(crate) fn new(depth: u16) -> Self {
        let lists_at = BLOCK_BYTES_MAX;
        let lists = u32::from(depth) * 32;
        let bounces_at = lists_at + lists.next_multiple_of(4096);
        let len = bounces_at as usize + usize::from(BOUNCES) * BOUNCE_BYTES as usize;
        Self { lists_at, bounces_at, len }
    }

    pub(crate) const ZEROES_AT: u32 = 0;

    pub(crate) fn list(&self, tag: u16) -> u32 {
        self.lists_at + u32::from(tag) * 32
    }

    pub(crate) fn bounce(&self, number: u16) -> u32 {
        self.bounces_at + u32::from(number) * BOUNCE_BYTES
    }
}
