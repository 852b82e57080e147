//! Command descriptor blocks: the commands of an initiator.

mod cdb;
mod decode;
mod encode;
pub mod opcode;
#[cfg(test)]
mod tests;

pub use cdb::{CDB_BYTES_MAX, Cdb};

/// The form of a command: the length of its descriptor block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 6 bytes.
    Six,
    /// 10 bytes.
    Ten,
    /// 12 bytes.
    Twelve,
    /// 16 bytes.
    Sixteen,
}

/// A range of blocks and how it is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first block.
    pub block: u64,
    /// The number of blocks. The count is never 0 for a READ or WRITE (6), whose 0 stands for 256.
    pub blocks: u32,
    /// The form of the command.
    pub width: Width,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense {
        /// Whether sense data is requested in the descriptor form.
        descriptor: bool,
        /// The allocation length: the number of bytes that the initiator has room for.
        allocation: u8,
    },
    /// INQUIRY.
    Inquiry {
        /// A page of vital product data; `None`: standard inquiry data.
        page: Option<u8>,
        /// The allocation length.
        allocation: u16,
    },
    /// MODE SENSE (6) or (10).
    ModeSense {
        /// The form: six or ten.
        width: Width,
        /// Whether block descriptors are left out (DBD).
        no_blocks: bool,
        /// The values to return: current 0, changeable 1, default 2, saved 3 (PC).
        control: u8,
        /// The page; 3Fh: all.
        page: u8,
        /// The subpage; FFh: all.
        subpage: u8,
        /// The allocation length.
        allocation: u16,
    },
    /// MODE SELECT (6) or (10).
    ModeSelect {
        /// The form: six or ten.
        width: Width,
        /// Whether the pages are in the standard's format (PF).
        page_format: bool,
        /// Whether the values are kept over power off (SP).
        save: bool,
        /// The bytes of parameters.
        len: u16,
    },
    /// START STOP UNIT.
    StartStop {
        /// Whether to answer before the action is done.
        immediate: bool,
        /// Whether to start or to stop.
        start: bool,
        /// The power condition; 0 if `start` decides.
        power: u8,
    },
    /// READ CAPACITY (10).
    ReadCapacity10,
    /// READ CAPACITY (16).
    ReadCapacity16 {
        /// The allocation length.
        allocation: u32,
    },
    /// READ.
    Read {
        /// The blocks to read.
        range: Range,
        /// Whether to read from the medium, not from a cache (FUA).
        force_unit_access: bool,
        /// The checks of protection information (RDPROTECT).
        protect: u8,
    },
    /// WRITE.
    Write {
        /// The blocks to write.
        range: Range,
        /// Whether the data must be on the medium before the answer (FUA).
        force_unit_access: bool,
        /// The checks of protection information (WRPROTECT).
        protect: u8,
    },
    /// VERIFY.
    Verify {
        /// The blocks to verify.
        range: Range,
        /// The comparison (BYTCHK). 0: none, the blocks only have to be readable; 1: with the data
        /// that the initiator sends; 3: each block with the one block that the initiator sends.
        compare: u8,
        /// The checks of protection information.
        protect: u8,
    },
    /// SYNCHRONIZE CACHE (10) or (16).
    SynchronizeCache {
        /// The blocks to write to the medium; a count of 0 for all blocks from the first on.
        range: Range,
        /// Whether to answer before the action is done.
        immediate: bool,
    },
    /// WRITE SAME (10) or (16).
    WriteSame {
        /// The blocks to write; a count of 0 for all blocks from the first on.
        range: Range,
        /// Whether to unmap the blocks, if they read as the sent block afterwards.
        unmap: bool,
        /// Whether to anchor the blocks.
        anchor: bool,
        /// Whether no block is sent, and zeroes are written (NDOB).
        no_data: bool,
        /// The checks of protection information.
        protect: u8,
    },
    /// UNMAP.
    Unmap {
        /// Whether to anchor the blocks.
        anchor: bool,
        /// The bytes of the list.
        len: u16,
    },
    /// REPORT LUNS.
    ReportLuns {
        /// The units to list; 0 and 2 for all.
        select: u8,
        /// The allocation length.
        allocation: u32,
    },
    /// REPORT SUPPORTED OPERATION CODES.
    ReportOperations {
        /// Whether to return time-outs (RCTD).
        timeouts: bool,
        /// The commands to report. 0: all; 1: one command without a service action; 2: one with a
        /// service action; 3: one with or without.
        options: u8,
        /// The operation code, if one command is requested.
        opcode: u8,
        /// The service action, if one command is requested.
        action: u16,
        /// The allocation length.
        allocation: u32,
    },
    /// REPORT TIMESTAMP.
    ReportTimestamp {
        /// The allocation length.
        allocation: u32,
    },
    /// SET TIMESTAMP.
    SetTimestamp {
        /// The bytes of parameters.
        len: u32,
    },
    /// LOG SENSE.
    LogSense {
        /// Whether to save the parameters (SP).
        save: bool,
        /// The kind of values to return (PC).
        control: u8,
        /// The page.
        page: u8,
        /// The subpage.
        subpage: u8,
        /// The first parameter.
        parameter: u16,
        /// The allocation length.
        allocation: u16,
    },
}

/// The reason why a command descriptor block cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// The operation code is unknown.
    Opcode,
    /// The block is too short for its operation code, or a field is invalid. The number is the
    /// invalid byte.
    Field(u8),
}

/// Returns the length of a descriptor block with this operation code; `None` if the code does not
/// determine it.
#[must_use]
pub fn cdb_bytes(opcode: u8) -> Option<u8> {
    match opcode >> 5 {
        0 => Some(6),
        1 | 2 => Some(10),
        4 => Some(16),
        5 => Some(12),
        _ => None,
    }
}
