//! Commands that read and write blocks: each is checked, and becomes accesses to the storage behind
//! the unit.

use qpair_block::{ErrorKind, Op};
use qpair_scsi_wire::command::Range;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::{Command, Width, unmap};

use crate::unit::{LogicalUnit, Reply, Step};

/// An access to a unit's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The operation. A flush covers the whole unit.
    pub op: Op,
    /// Whether a change must be durable before the access ends.
    pub durable: bool,
    /// The offset of the first byte.
    pub offset_bytes: u64,
    /// The number of bytes.
    pub len_bytes: u32,
}

/// The accesses of a command, which succeeds if they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A read into the initiator's memory, or a write from there.
    Move(Access),
    /// Accesses without data. The caller executes them one after the other, starting with the last
    /// one of the list.
    Each {
        /// The accesses.
        accesses: Vec<Access>,
        /// The number of bytes of parameters that were taken.
        taken: u32,
    },
    /// Writes a block with other bytes than zeroes repeatedly.
    Fill {
        /// The write.
        access: Access,
        /// The block, taken from the initiator.
        block: Vec<u8>,
    },
    /// Compares the data read with `data_bytes` bytes from the initiator, repeatedly.
    Compare {
        /// The read.
        access: Access,
        /// The number of bytes that the initiator has to send.
        data_bytes: u32,
    },
}

impl LogicalUnit {
    /// Begins a command that reads or writes blocks.
    pub(crate) fn begin_blocks(
        &self,
        command: Command,
        blocks: u64,
        take: impl FnOnce(&mut [u8]) -> bool,
    ) -> Step {
        self.plan(command, blocks, take).unwrap_or_else(|sense| Step::Ended(Reply::Check(sense)))
    }

    fn plan(
        &self,
        command: Command,
        blocks: u64,
        take: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<Step, Sense> {
        let facts = self.facts();
        let limits = facts.limits;
        let wrong = |code| Sense::new(Key::IllegalRequest, code);
        let changes = matches!(
            command,
            Command::Write { .. } | Command::WriteSame { .. } | Command::Unmap { .. }
        );
        if changes && facts.read_only {
            return Err(Sense::new(Key::DataProtect, Code::WRITE_PROTECTED));
        }
        let durable = changes && !self.has_write_cache();
        let access = |op, range, bytes_max| -> Result<Access, Sense> {
            let (offset_bytes, len_bytes) = self.extent(range, blocks, bytes_max)?;
            Ok(Access { op, durable, offset_bytes, len_bytes })
        };
        let nothing = Step::Ended(Reply::Good(0));
        Ok(match command {
            Command::Read { range, protect: 0, .. } => {
                let read = access(Op::Read, range, limits.transfer_bytes_max)?;
                if range.blocks == 0 { nothing } else { Step::Work(Work::Move(read)) }
            }
            Command::Write { range, force_unit_access, protect: 0 } => {
                let write = access(Op::Write, range, limits.transfer_bytes_max)?;
                let write = Access { durable: durable || force_unit_access, ..write };
                if range.blocks == 0 { nothing } else { Step::Work(Work::Move(write)) }
            }
            Command::Verify { range, compare, protect: 0 } => {
                let read = access(Op::Read, range, limits.transfer_bytes_max)?;
                let data_bytes = match compare {
                    0 => return Ok(nothing),
                    1 => read.len_bytes,
                    3 => facts.block_bytes,
                    _ => return Err(Sense::invalid_field(1)),
                };
                if range.blocks == 0 {
                    return Ok(nothing);
                }
                Step::Work(Work::Compare { access: read, data_bytes })
            }
            Command::SynchronizeCache { range, .. } => {
                self.extent(range, blocks, u64::MAX)?;
                Step::Work(Work::flush(0))
            }
            Command::WriteSame { range, anchor: false, no_data, protect: 0, .. } => {
                if range.blocks == 0 {
                    return Err(Sense::invalid_field(10));
                }
                let write = access(Op::Write, range, limits.write_same_bytes_max)?;
                let mut block = vec![0; if no_data { 0 } else { facts.block_bytes as usize }];
                if !block.is_empty() && !take(&mut block) {
                    return Err(Sense::invalid_field(1));
                }
                Step::Work(if block.iter().all(|byte| *byte == 0) {
                    let accesses = vec![Access { op: Op::WriteZeroes, ..write }];
                    Work::Each { accesses, taken: block.len() as u32 }
                } else {
                    Work::Fill { access: write, block }
                })
            }
            Command::Unmap { anchor: false, len: 0 } => nothing,
            Command::Unmap { anchor: false, len } => {
                let mut list = vec![0; len.into()];
                let ranges = if take(&mut list) { unmap::decode(&list) } else { None };
                let ranges = ranges.ok_or(wrong(Code::PARAMETER_LIST_LENGTH))?;
                if ranges.len() > limits.unmap_ranges_max as usize {
                    return Err(wrong(Code::INVALID_FIELD_IN_LIST));
                }
                // All ranges are checked before the first is discarded.
                let (mut accesses, mut bytes) = (Vec::with_capacity(ranges.len()), 0);
                for (block, blocks) in ranges.into_iter().rev() {
                    let range = Range { block, blocks, width: Width::Sixteen };
                    let discard = access(Op::Discard, range, limits.unmap_bytes_max)?;
                    bytes += u64::from(discard.len_bytes);
                    if blocks > 0 {
                        accesses.push(discard);
                    }
                }
                if bytes > limits.unmap_bytes_max {
                    return Err(wrong(Code::INVALID_FIELD_IN_LIST));
                }
                Step::Work(Work::Each { accesses, taken: len.into() })
            }
            // Protection information, anchors.
            _ => return Err(Sense::invalid_field(1)),
        })
    }

    /// Returns the offset and the length of a range in bytes. Fails if the range is not in the unit
    /// or has more than `bytes_max`.
    fn extent(&self, range: Range, all: u64, bytes_max: u64) -> Result<(u64, u32), Sense> {
        let blocks = u64::from(range.blocks);
        // A range of no blocks may begin at the end of the unit.
        if range.block > all || blocks > all - range.block {
            return Err(Sense::new(Key::IllegalRequest, Code::BLOCK_OUT_OF_RANGE));
        }
        let block_bytes = u64::from(self.facts().block_bytes);
        let len_bytes = blocks * block_bytes;
        if len_bytes > bytes_max {
            return Err(Sense::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_CDB));
        }
        Ok((range.block * block_bytes, len_bytes as u32))
    }

    /// Returns the sense data of a failed access.
    #[must_use]
    pub fn failure(&self, op: Op, offset_bytes: u64, kind: ErrorKind) -> Sense {
        match kind {
            ErrorKind::ReadOnly => Sense::new(Key::DataProtect, Code::WRITE_PROTECTED),
            ErrorKind::NoSpace => Sense::new(Key::DataProtect, Code::SPACE_EXHAUSTED),
            ErrorKind::Unsupported => Sense::new(Key::IllegalRequest, Code::INVALID_OPCODE),
            // The storage has become smaller since the command was checked.
            ErrorKind::Invalid => Sense::new(Key::IllegalRequest, Code::BLOCK_OUT_OF_RANGE),
            ErrorKind::Gone => Sense::new(Key::HardwareError, Code::INTERNAL_FAILURE),
            _ => {
                let is_read = op == Op::Read;
                let code = if is_read { Code::UNRECOVERED_READ_ERROR } else { Code::WRITE_ERROR };
                let block = offset_bytes / u64::from(self.facts().block_bytes);
                let information = (op != Op::Flush).then_some(block);
                Sense { information, ..Sense::new(Key::MediumError, code) }
            }
        }
    }
}

impl Work {
    /// Returns a flush, for a command that has taken this many bytes of parameters.
    pub(crate) fn flush(taken: u32) -> Self {
        let flush = Access { op: Op::Flush, durable: false, offset_bytes: 0, len_bytes: 0 };
        Self::Each { accesses: vec![flush], taken }
    }
}
