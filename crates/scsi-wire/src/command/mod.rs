//! Command descriptor blocks: the commands of an initiator.

use std::fmt;

use crate::bytes::{put, u8_at, u16_at, u32_at, u64_at};

/// Operation codes.
pub mod opcode {
    #![expect(missing_docs, reason = "named as the standards name them")]
    pub const TEST_UNIT_READY: u8 = 0x00;
    pub const REQUEST_SENSE: u8 = 0x03;
    pub const READ_6: u8 = 0x08;
    pub const WRITE_6: u8 = 0x0A;
    pub const INQUIRY: u8 = 0x12;
    pub const MODE_SELECT_6: u8 = 0x15;
    pub const MODE_SENSE_6: u8 = 0x1A;
    pub const START_STOP_UNIT: u8 = 0x1B;
    pub const READ_CAPACITY_10: u8 = 0x25;
    pub const READ_10: u8 = 0x28;
    pub const WRITE_10: u8 = 0x2A;
    pub const VERIFY_10: u8 = 0x2F;
    pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    pub const WRITE_SAME_10: u8 = 0x41;
    pub const UNMAP: u8 = 0x42;
    pub const LOG_SENSE: u8 = 0x4D;
    pub const MODE_SELECT_10: u8 = 0x55;
    pub const MODE_SENSE_10: u8 = 0x5A;
    pub const READ_16: u8 = 0x88;
    pub const WRITE_16: u8 = 0x8A;
    pub const VERIFY_16: u8 = 0x8F;
    pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    pub const WRITE_SAME_16: u8 = 0x93;
    pub const SERVICE_ACTION_IN_16: u8 = 0x9E;
    pub const REPORT_LUNS: u8 = 0xA0;
    pub const MAINTENANCE_IN: u8 = 0xA3;
    pub const MAINTENANCE_OUT: u8 = 0xA4;
    pub const READ_12: u8 = 0xA8;
    pub const WRITE_12: u8 = 0xAA;
    pub const VERIFY_12: u8 = 0xAF;
    /// Service action of [`SERVICE_ACTION_IN_16`]: READ CAPACITY (16).
    pub const ACTION_READ_CAPACITY_16: u8 = 0x10;
    /// Service action of [`MAINTENANCE_IN`]: REPORT SUPPORTED OPERATION CODES.
    pub const ACTION_REPORT_OPERATIONS: u8 = 0x0C;
    /// Service action of [`MAINTENANCE_IN`]: REPORT TIMESTAMP; and of [`MAINTENANCE_OUT`]: SET
    /// TIMESTAMP.
    pub const ACTION_TIMESTAMP: u8 = 0x0F;
}

/// The maximum length of a command descriptor block here, bytes.
pub const CDB_BYTES_MAX: usize = 16;

/// A command descriptor block.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Cdb {
    bytes: [u8; CDB_BYTES_MAX],
    len: u8,
}

impl Cdb {
    /// Makes a descriptor block of bytes; `None` for no bytes, or more than 16.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut cdb = Self { bytes: [0; CDB_BYTES_MAX], len: bytes.len() as u8 };
        let place = cdb.bytes.get_mut(..bytes.len()).filter(|place| !place.is_empty())?;
        place.copy_from_slice(bytes);
        Some(cdb)
    }

    /// Makes a READ (16) or WRITE (16) directly, as these are the most frequent commands.
    #[inline(always)]
    #[must_use]
    pub fn transfer(is_write: bool, block: u64, blocks: u32, force_unit_access: bool) -> Self {
        let code = if is_write { opcode::WRITE_16 } else { opcode::READ_16 };
        let mut bytes = [0; CDB_BYTES_MAX];
        bytes[0] = code;
        bytes[1] = u8::from(force_unit_access) << 3;
        bytes[2..10].copy_from_slice(&block.to_be_bytes());
        bytes[10..14].copy_from_slice(&blocks.to_be_bytes());
        Self { bytes, len: 16 }
    }

    /// Returns the bytes of the block.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns all 16 bytes; those past the end of the block are zero.
    #[inline(always)]
    #[must_use]
    pub fn padded(&self) -> &[u8; CDB_BYTES_MAX] {
        &self.bytes
    }

    /// Returns the number of bytes.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Whether the block has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cdb")?;
        self.bytes().iter().try_for_each(|byte| write!(f, " {byte:02x}"))
    }
}

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
    /// The number of blocks. Never 0 for a READ or WRITE (6), whose 0 stands for 256.
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
        /// The allocation length: bytes that the initiator has room for.
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
        /// The power condition; 0: as `start` says.
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
        /// The comparison (BYTCHK). 0: only that the blocks can be read; 1: with the data that the
        /// initiator sends; 3: each with one block that it sends.
        compare: u8,
        /// The checks of protection information.
        protect: u8,
    },
    /// SYNCHRONIZE CACHE (10) or (16).
    SynchronizeCache {
        /// The blocks to write to the medium; a count of 0: all from there on.
        range: Range,
        /// Whether to answer before the action is done.
        immediate: bool,
    },
    /// WRITE SAME (10) or (16).
    WriteSame {
        /// The blocks to write; a count of 0: all from there on.
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
        /// The units to list: 0, 2: all.
        select: u8,
        /// The allocation length.
        allocation: u32,
    },
    /// REPORT SUPPORTED OPERATION CODES.
    ReportOperations {
        /// Whether to return time-outs (RCTD).
        timeouts: bool,
        /// The commands to report. 0: all; 1: one without, 2: one with a service action, 3: one
        /// with or without.
        options: u8,
        /// The operation code, if one command is asked for.
        opcode: u8,
        /// The service action, if one command is asked for.
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
    /// The block is too short for its operation code, or a field is invalid: its byte.
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

impl Command {
    /// Decodes a descriptor block.
    ///
    /// # Errors
    /// The part that cannot be decoded, for the sense data.
    pub fn decode(cdb: &[u8]) -> Result<Self, Undecodable> {
        let code = *cdb.first().ok_or(Undecodable::Opcode)?;
        let len = cdb_bytes(code).ok_or(Undecodable::Opcode)?;
        if cdb.len() < usize::from(len) {
            return Err(Undecodable::Field(cdb.len() as u8));
        }
        Self::decode_whole(code, cdb)
    }

    fn decode_whole(code: u8, cdb: &[u8]) -> Result<Self, Undecodable> {
        let bit = |at: usize, bit: u8| u8_at(cdb, at) >> bit & 1 != 0;
        let range = range_of(code, cdb);
        let protect = u8_at(cdb, 1) >> 5;
        Ok(match code {
            opcode::TEST_UNIT_READY => Self::TestUnitReady,
            opcode::REQUEST_SENSE => {
                Self::RequestSense { descriptor: bit(1, 0), allocation: u8_at(cdb, 4) }
            }
            opcode::INQUIRY => {
                let page = u8_at(cdb, 2);
                if u8_at(cdb, 1) & 0xFE != 0 {
                    return Err(Undecodable::Field(1));
                }
                if !bit(1, 0) && page != 0 {
                    return Err(Undecodable::Field(2));
                }
                Self::Inquiry { page: bit(1, 0).then_some(page), allocation: u16_at(cdb, 3) }
            }
            opcode::MODE_SENSE_6 | opcode::MODE_SENSE_10 => {
                let is_ten = code == opcode::MODE_SENSE_10;
                Self::ModeSense {
                    width: if is_ten { Width::Ten } else { Width::Six },
                    no_blocks: bit(1, 3),
                    control: u8_at(cdb, 2) >> 6,
                    page: u8_at(cdb, 2) & 0x3F,
                    subpage: u8_at(cdb, 3),
                    allocation: if is_ten { u16_at(cdb, 7) } else { u8_at(cdb, 4).into() },
                }
            }
            opcode::MODE_SELECT_6 | opcode::MODE_SELECT_10 => {
                let is_ten = code == opcode::MODE_SELECT_10;
                Self::ModeSelect {
                    width: if is_ten { Width::Ten } else { Width::Six },
                    page_format: bit(1, 4),
                    save: bit(1, 0),
                    len: if is_ten { u16_at(cdb, 7) } else { u8_at(cdb, 4).into() },
                }
            }
            opcode::START_STOP_UNIT => Self::StartStop {
                immediate: bit(1, 0),
                start: bit(4, 0),
                power: u8_at(cdb, 4) >> 4,
            },
            opcode::READ_CAPACITY_10 => Self::ReadCapacity10,
            opcode::SERVICE_ACTION_IN_16 => match u8_at(cdb, 1) & 0x1F {
                opcode::ACTION_READ_CAPACITY_16 => {
                    Self::ReadCapacity16 { allocation: u32_at(cdb, 10) }
                }
                _ => return Err(Undecodable::Field(1)),
            },
            opcode::READ_6 => Self::Read { range, force_unit_access: false, protect: 0 },
            opcode::WRITE_6 => Self::Write { range, force_unit_access: false, protect: 0 },
            opcode::READ_10 | opcode::READ_12 | opcode::READ_16 => {
                Self::Read { range, force_unit_access: bit(1, 3), protect }
            }
            opcode::WRITE_10 | opcode::WRITE_12 | opcode::WRITE_16 => {
                Self::Write { range, force_unit_access: bit(1, 3), protect }
            }
            opcode::VERIFY_10 | opcode::VERIFY_12 | opcode::VERIFY_16 => {
                Self::Verify { range, compare: u8_at(cdb, 1) >> 1 & 3, protect }
            }
            opcode::SYNCHRONIZE_CACHE_10 | opcode::SYNCHRONIZE_CACHE_16 => {
                Self::SynchronizeCache { range, immediate: bit(1, 1) }
            }
            opcode::WRITE_SAME_10 | opcode::WRITE_SAME_16 => Self::WriteSame {
                range,
                unmap: bit(1, 3),
                anchor: bit(1, 4),
                no_data: code == opcode::WRITE_SAME_16 && bit(1, 0),
                protect,
            },
            opcode::UNMAP => Self::Unmap { anchor: bit(1, 0), len: u16_at(cdb, 7) },
            opcode::REPORT_LUNS => {
                Self::ReportLuns { select: u8_at(cdb, 2), allocation: u32_at(cdb, 6) }
            }
            opcode::MAINTENANCE_IN => match u8_at(cdb, 1) & 0x1F {
                opcode::ACTION_REPORT_OPERATIONS => Self::ReportOperations {
                    timeouts: bit(2, 7),
                    options: u8_at(cdb, 2) & 7,
                    opcode: u8_at(cdb, 3),
                    action: u16_at(cdb, 4),
                    allocation: u32_at(cdb, 6),
                },
                opcode::ACTION_TIMESTAMP => Self::ReportTimestamp { allocation: u32_at(cdb, 6) },
                _ => return Err(Undecodable::Field(1)),
            },
            opcode::MAINTENANCE_OUT => match u8_at(cdb, 1) & 0x1F {
                opcode::ACTION_TIMESTAMP => Self::SetTimestamp { len: u32_at(cdb, 6) },
                _ => return Err(Undecodable::Field(1)),
            },
            opcode::LOG_SENSE => Self::LogSense {
                save: bit(1, 0),
                control: u8_at(cdb, 2) >> 6,
                page: u8_at(cdb, 2) & 0x3F,
                subpage: u8_at(cdb, 3),
                parameter: u16_at(cdb, 5),
                allocation: u16_at(cdb, 7),
            },
            _ => return Err(Undecodable::Opcode),
        })
    }

    /// Encodes the descriptor block. Fields that are too large for the form are truncated.
    #[must_use]
    pub fn encode(&self) -> Cdb {
        let mut b = [0; CDB_BYTES_MAX];
        let bit = |is: bool, bit: u8| u8::from(is) << bit;
        match *self {
            Self::TestUnitReady => b[0] = opcode::TEST_UNIT_READY,
            Self::RequestSense { descriptor, allocation } => {
                b[0] = opcode::REQUEST_SENSE;
                b[1] = bit(descriptor, 0);
                b[4] = allocation;
            }
            Self::Inquiry { page, allocation } => {
                b[0] = opcode::INQUIRY;
                b[1] = bit(page.is_some(), 0);
                b[2] = page.unwrap_or(0);
                put(&mut b, 3, &allocation.to_be_bytes());
            }
            Self::ModeSense { width, no_blocks, control, page, subpage, allocation } => {
                b[1] = bit(no_blocks, 3);
                b[2] = control << 6 | page & 0x3F;
                b[3] = subpage;
                put_mode_len(
                    &mut b,
                    width,
                    allocation,
                    opcode::MODE_SENSE_6,
                    opcode::MODE_SENSE_10,
                );
            }
            Self::ModeSelect { width, page_format, save, len } => {
                b[1] = bit(page_format, 4) | bit(save, 0);
                put_mode_len(&mut b, width, len, opcode::MODE_SELECT_6, opcode::MODE_SELECT_10);
            }
            Self::StartStop { immediate, start, power } => {
                b[0] = opcode::START_STOP_UNIT;
                b[1] = bit(immediate, 0);
                b[4] = bit(start, 0) | power << 4;
            }
            Self::ReadCapacity10 => b[0] = opcode::READ_CAPACITY_10,
            Self::ReadCapacity16 { allocation } => {
                b[0] = opcode::SERVICE_ACTION_IN_16;
                b[1] = opcode::ACTION_READ_CAPACITY_16;
                put(&mut b, 10, &allocation.to_be_bytes());
            }
            Self::Read { range, force_unit_access, protect } => {
                let codes = [opcode::READ_6, opcode::READ_10, opcode::READ_12, opcode::READ_16];
                put_range(&mut b, range, codes, protect << 5 | bit(force_unit_access, 3));
            }
            Self::Write { range, force_unit_access, protect } => {
                let codes = [opcode::WRITE_6, opcode::WRITE_10, opcode::WRITE_12, opcode::WRITE_16];
                put_range(&mut b, range, codes, protect << 5 | bit(force_unit_access, 3));
            }
            Self::Verify { range, compare, protect } => {
                let ten = opcode::VERIFY_10;
                let codes = [ten, ten, opcode::VERIFY_12, opcode::VERIFY_16];
                put_range(&mut b, range, codes, protect << 5 | (compare & 3) << 1);
            }
            Self::SynchronizeCache { range, immediate } => {
                let (ten, sixteen) = (opcode::SYNCHRONIZE_CACHE_10, opcode::SYNCHRONIZE_CACHE_16);
                put_range(&mut b, range, [ten, ten, sixteen, sixteen], bit(immediate, 1));
            }
            Self::WriteSame { range, unmap, anchor, no_data, protect } => {
                let (ten, sixteen) = (opcode::WRITE_SAME_10, opcode::WRITE_SAME_16);
                let flags = bit(unmap, 3) | bit(anchor, 4) | bit(no_data, 0) | protect << 5;
                put_range(&mut b, range, [ten, ten, sixteen, sixteen], flags);
            }
            Self::Unmap { anchor, len } => {
                b[0] = opcode::UNMAP;
                b[1] = bit(anchor, 0);
                put(&mut b, 7, &len.to_be_bytes());
            }
            Self::ReportLuns { select, allocation } => {
                b[0] = opcode::REPORT_LUNS;
                b[2] = select;
                put(&mut b, 6, &allocation.to_be_bytes());
            }
            Self::ReportOperations { timeouts, options, opcode, action, allocation } => {
                b[0] = opcode::MAINTENANCE_IN;
                b[1] = opcode::ACTION_REPORT_OPERATIONS;
                b[2] = bit(timeouts, 7) | options & 7;
                b[3] = opcode;
                put(&mut b, 4, &action.to_be_bytes());
                put(&mut b, 6, &allocation.to_be_bytes());
            }
            Self::ReportTimestamp { allocation: bytes } | Self::SetTimestamp { len: bytes } => {
                let is_set = matches!(self, Self::SetTimestamp { .. });
                b[0] = if is_set { opcode::MAINTENANCE_OUT } else { opcode::MAINTENANCE_IN };
                b[1] = opcode::ACTION_TIMESTAMP;
                put(&mut b, 6, &bytes.to_be_bytes());
            }
            Self::LogSense { save, control, page, subpage, parameter, allocation } => {
                b[0] = opcode::LOG_SENSE;
                b[1] = bit(save, 0);
                b[2] = control << 6 | page & 0x3F;
                b[3] = subpage;
                put(&mut b, 5, &parameter.to_be_bytes());
                put(&mut b, 7, &allocation.to_be_bytes());
            }
        }
        Cdb { bytes: b, len: cdb_bytes(b[0]).unwrap_or(CDB_BYTES_MAX as u8) }
    }
}

/// Returns the range of a command by its operation code.
fn range_of(code: u8, cdb: &[u8]) -> Range {
    match code >> 5 {
        0 => {
            let block = u32_at(cdb, 0) & 0x1F_FFFF;
            let blocks = match u8_at(cdb, 4) {
                0 => 256,
                blocks => blocks.into(),
            };
            Range { block: block.into(), blocks, width: Width::Six }
        }
        1 | 2 => {
            Range { block: u32_at(cdb, 2).into(), blocks: u16_at(cdb, 7).into(), width: Width::Ten }
        }
        5 => Range { block: u32_at(cdb, 2).into(), blocks: u32_at(cdb, 6), width: Width::Twelve },
        _ => Range { block: u64_at(cdb, 2), blocks: u32_at(cdb, 10), width: Width::Sixteen },
    }
}

fn put_range(b: &mut [u8; CDB_BYTES_MAX], range: Range, codes: [u8; 4], flags: u8) {
    let Range { block, blocks, width } = range;
    b[0] = codes[width as usize];
    b[1] = flags;
    // By the code: where a command has no such form it is the next longer one.
    match b[0] >> 5 {
        0 => {
            put(b, 1, &(block as u32 & 0x1F_FFFF).to_be_bytes()[1..]);
            b[4] = blocks as u8;
        }
        1 | 2 => {
            put(b, 2, &(block as u32).to_be_bytes());
            put(b, 7, &(blocks as u16).to_be_bytes());
        }
        5 => {
            put(b, 2, &(block as u32).to_be_bytes());
            put(b, 6, &blocks.to_be_bytes());
        }
        _ => {
            put(b, 2, &block.to_be_bytes());
            put(b, 10, &blocks.to_be_bytes());
        }
    }
}

fn put_mode_len(b: &mut [u8; CDB_BYTES_MAX], width: Width, len: u16, six: u8, ten: u8) {
    if width == Width::Six {
        b[0] = six;
        b[4] = len.min(255) as u8;
    } else {
        b[0] = ten;
        put(b, 7, &len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(width: Width, block: u64, blocks: u32) -> Range {
        Range { block, blocks, width }
    }

    #[test]
    fn commands_survive_their_bytes() {
        for width in [Width::Six, Width::Ten, Width::Twelve, Width::Sixteen] {
            let range = range(width, 0x12345, 200);
            let fua = width != Width::Six;
            for command in [
                Command::Read { range, force_unit_access: fua, protect: 0 },
                Command::Write { range, force_unit_access: fua, protect: 0 },
            ] {
                assert_eq!(Command::decode(command.encode().bytes()), Ok(command), "{command:?}");
            }
        }
        let sixteen = range(Width::Sixteen, 1 << 40, 1 << 20);
        for command in [
            Command::TestUnitReady,
            Command::RequestSense { descriptor: true, allocation: 252 },
            Command::Inquiry { page: Some(0x83), allocation: 1024 },
            Command::Inquiry { page: None, allocation: 36 },
            Command::ModeSense {
                width: Width::Ten,
                no_blocks: true,
                control: 2,
                page: 8,
                subpage: 1,
                allocation: 512,
            },
            Command::ModeSelect { width: Width::Six, page_format: true, save: false, len: 24 },
            Command::StartStop { immediate: true, start: true, power: 3 },
            Command::ReadCapacity10,
            Command::ReadCapacity16 { allocation: 32 },
            Command::Verify { range: sixteen, compare: 1, protect: 0 },
            Command::SynchronizeCache { range: sixteen, immediate: true },
            Command::WriteSame {
                range: sixteen,
                unmap: true,
                anchor: false,
                no_data: true,
                protect: 0,
            },
            Command::Unmap { anchor: false, len: 24 },
            Command::ReportLuns { select: 2, allocation: 4096 },
            Command::ReportOperations {
                timeouts: true,
                options: 3,
                opcode: 0x93,
                action: 7,
                allocation: 99,
            },
            Command::ReportTimestamp { allocation: 12 },
            Command::SetTimestamp { len: 12 },
            Command::LogSense {
                save: false,
                control: 1,
                page: 0x2F,
                subpage: 0,
                parameter: 3,
                allocation: 64,
            },
        ] {
            assert_eq!(Command::decode(command.encode().bytes()), Ok(command), "{command:?}");
        }
    }

    #[test]
    fn bytes_are_where_the_standards_have_them() {
        let read = Command::Read {
            range: range(Width::Ten, 0x0102_0304, 0x0506),
            force_unit_access: true,
            protect: 1,
        };
        assert_eq!(read.encode().bytes(), [0x28, 0x28, 1, 2, 3, 4, 0, 5, 6, 0]);
        let (report, set) =
            (Command::ReportTimestamp { allocation: 12 }, Command::SetTimestamp { len: 12 });
        assert_eq!(report.encode().bytes(), [0xA3, 0x0F, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0]);
        assert_eq!(set.encode().bytes(), [0xA4, 0x0F, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0]);
        assert_eq!(
            Cdb::transfer(true, 0x0102_0304_0506_0708, 9, true),
            Command::Write {
                range: range(Width::Sixteen, 0x0102_0304_0506_0708, 9),
                force_unit_access: true,
                protect: 0
            }
            .encode()
        );
        // READ (6) of 256 blocks.
        let six = Command::decode(&[0x08, 0xFF, 0xFF, 0xFF, 0, 0]);
        let range = range(Width::Six, 0x1F_FFFF, 256);
        assert_eq!(six, Ok(Command::Read { range, force_unit_access: false, protect: 0 }));
    }

    #[test]
    fn what_makes_no_sense_says_where() {
        assert_eq!(Command::decode(&[]), Err(Undecodable::Opcode));
        assert_eq!(Command::decode(&[0xFF; 16]), Err(Undecodable::Opcode));
        assert_eq!(Command::decode(&[0x28, 0, 0]), Err(Undecodable::Field(3)));
        assert_eq!(Command::decode(&[0x12, 0, 1, 0, 0, 0]), Err(Undecodable::Field(2)));
        assert_eq!(Command::decode(&[0x9E; 16]), Err(Undecodable::Field(1)));
        assert_eq!(Cdb::of(&[0; 17]), None);
        assert_eq!(Cdb::of(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_what_encodes_alike(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(command) = Command::decode(&bytes) {
                prop_assert_eq!(Command::decode(command.encode().bytes()), Ok(command));
            }
        }
    }
}
