//! Decodes commands from bytes.

use super::*;
use qpair_wire::be::{u16_at, u32_at, u64_at};
use qpair_wire::u8_at;

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
