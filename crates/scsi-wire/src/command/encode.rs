//! Encodes commands to bytes.

use super::*;
use qpair_wire::put;

impl Command {
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

pub(super) fn put_range(b: &mut [u8; CDB_BYTES_MAX], range: Range, codes: [u8; 4], flags: u8) {
    let Range { block, blocks, width } = range;
    b[0] = codes[width as usize];
    b[1] = flags;
    // The form depends on the code: a command that does not have the form gets the next longer one.
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
