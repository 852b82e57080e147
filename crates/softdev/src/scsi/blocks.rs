//! Commands that read and write blocks.

use qpair_scsi_wire::command::Range;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::{Command, unmap};

use super::unit::{Answer, Data, Unit};
use crate::medium::Extents;

/// Bytes of one READ, WRITE or VERIFY, at most.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 4 << 20;
/// Bytes of one WRITE SAME, at most.
pub(crate) const WRITE_SAME_BYTES_MAX: u64 = 64 << 20;
/// Bytes of one UNMAP, at most.
pub(crate) const UNMAP_BYTES_MAX: u64 = 512 << 20;
/// Ranges of one UNMAP, at most.
pub(crate) const UNMAP_RANGES_MAX: u32 = 256;
/// Bytes that a pattern is written by.
const PATTERN_BYTES: usize = 64 << 10;

impl Unit {
    pub(crate) fn execute_blocks(&self, command: Command, data: &mut Data<'_>) -> Answer {
        let done = match command {
            Command::Read { range, protect: 0, .. } => self.read(range, data),
            Command::Write { range, force_unit_access, protect: 0 } => {
                self.write(range, force_unit_access, data)
            }
            Command::Verify { range, compare, protect: 0 } => self.verify(range, compare, data),
            Command::SynchronizeCache { range, .. } => self.synchronize(range),
            Command::WriteSame { range, anchor: false, no_data, protect: 0, .. } => {
                self.write_same(range, no_data, data)
            }
            Command::Unmap { anchor: false, len } => self.unmap(len.into(), data),
            // Protection information, anchors.
            _ => Err(Sense::invalid_field(1)),
        };
        done.unwrap_or_else(Answer::check)
    }

    /// Returns the place of a block range on the medium. Fails if the range is out of bounds or has
    /// more than `bytes_max` bytes.
    fn extents(&self, range: Range, bytes_max: u64) -> Result<Extents, Sense> {
        let blocks = u64::from(range.blocks);
        // No blocks may begin at the end, where there are none.
        let inside = match blocks {
            0 => {
                (range.block <= self.volume.blocks).then_some(Extents { at_bytes: 0, len_bytes: 0 })
            }
            _ => self.volume.range(range.block, blocks),
        };
        let extents = inside.ok_or(Sense::new(Key::IllegalRequest, Code::BLOCK_OUT_OF_RANGE))?;
        if extents.len_bytes > bytes_max {
            return Err(Sense::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_CDB));
        }
        Ok(extents)
    }

    fn durable(&self, force_unit_access: bool) -> bool {
        force_unit_access || !self.logical.has_write_cache()
    }

    fn read(&self, range: Range, data: &mut Data<'_>) -> Result<Answer, Sense> {
        let extents = self.extents(range, TRANSFER_BYTES_MAX)?;
        let wanted = extents.len_bytes as usize;
        if wanted == 0 || data.is_out {
            return Ok(Answer::good(0));
        }
        // Only whole blocks come from the medium.
        let moved = data.len().min(wanted);
        let scratch = std::mem::take(data.scratch);
        let mut kept = scratch;
        let done = self.volume.read(extents.at_bytes, data.span(moved), &mut kept);
        *data.scratch = kept;
        done.map_err(|_| failed(Code::UNRECOVERED_READ_ERROR, range.block))?;
        Ok(Answer { is_overrun: moved < wanted, ..Answer::good(moved) })
    }

    fn write(&self, range: Range, fua: bool, data: &mut Data<'_>) -> Result<Answer, Sense> {
        let extents = self.extents(range, TRANSFER_BYTES_MAX)?;
        let wanted = extents.len_bytes as usize;
        if wanted == 0 || !data.is_out {
            return Ok(Answer::good(0));
        }
        let moved = (data.len().min(wanted) >> self.volume.block_shift) << self.volume.block_shift;
        let mut scratch = std::mem::take(data.scratch);
        let durable = self.durable(fua);
        let done = self.volume.write(extents.at_bytes, data.span(moved), durable, &mut scratch);
        *data.scratch = scratch;
        done.map_err(|_| failed(Code::WRITE_ERROR, range.block))?;
        Ok(Answer { is_overrun: moved < wanted, ..Answer::good(moved) })
    }

    fn verify(&self, range: Range, compare: u8, data: &mut Data<'_>) -> Result<Answer, Sense> {
        let extents = self.extents(range, TRANSFER_BYTES_MAX)?;
        let wanted = match compare {
            0 => return Ok(Answer::good(0)),
            1 => extents.len_bytes as usize,
            3 => self.logical.facts().block_bytes as usize,
            _ => return Err(Sense::invalid_field(1)),
        };
        if extents.len_bytes == 0 {
            return Ok(Answer::good(0));
        }
        if !data.is_out || data.len() < wanted {
            return Err(Sense::invalid_field(1));
        }
        let mut scratch = std::mem::take(data.scratch);
        let starts = (0..extents.len_bytes).step_by(wanted);
        let mut is_same = Ok(true);
        for start in starts {
            let at = extents.at_bytes + start;
            is_same = self.volume.compare(at, data.span(wanted), &mut scratch);
            if !matches!(is_same, Ok(true)) {
                break;
            }
        }
        *data.scratch = scratch;
        match is_same {
            Ok(true) => Ok(Answer::good(wanted)),
            Ok(false) => Err(Sense::new(Key::Miscompare, Code::MISCOMPARE)),
            Err(_) => Err(failed(Code::UNRECOVERED_READ_ERROR, range.block)),
        }
    }

    fn synchronize(&self, range: Range) -> Result<Answer, Sense> {
        let whole = self.volume.blocks << self.volume.block_shift;
        self.extents(range, whole)?;
        self.volume.flush().map_err(|_| failed(Code::WRITE_ERROR, range.block))?;
        Ok(Answer::good(0))
    }

    fn write_same(
        &self,
        range: Range,
        no_data: bool,
        data: &mut Data<'_>,
    ) -> Result<Answer, Sense> {
        if range.blocks == 0 {
            return Err(Sense::invalid_field(10));
        }
        let extents = self.extents(range, WRITE_SAME_BYTES_MAX)?;
        let block = self.logical.facts().block_bytes as usize;
        let pattern = match no_data {
            true => None,
            false => Some(data.take(block).ok_or(Sense::invalid_field(1))?),
        };
        let pattern = pattern.filter(|bytes| bytes.iter().any(|byte| *byte != 0));
        let durable = self.durable(false);
        let done = match pattern {
            // What is all zeroes is unmapped, whether it was asked for or not: it reads as zeroes.
            None => self.volume.zero(extents, durable),
            Some(bytes) => {
                let many = bytes.repeat((PATTERN_BYTES / block).max(1));
                (0..extents.len_bytes).step_by(many.len()).try_for_each(|start| {
                    let len = many.len().min((extents.len_bytes - start) as usize);
                    self.volume.write_bytes(extents.at_bytes + start, &many[..len], durable)
                })
            }
        };
        done.map_err(|_| failed(Code::WRITE_ERROR, range.block))?;
        Ok(Answer::good(if no_data { 0 } else { block }))
    }

    fn unmap(&self, len: usize, data: &mut Data<'_>) -> Result<Answer, Sense> {
        if len == 0 {
            return Ok(Answer::good(0));
        }
        let wrong_length = Sense::new(Key::IllegalRequest, Code::PARAMETER_LIST_LENGTH);
        let list = data.take(len).ok_or(wrong_length)?;
        let ranges = unmap::decode(&list).ok_or(wrong_length)?;
        let wrong_field = Sense::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_LIST);
        if ranges.len() > UNMAP_RANGES_MAX as usize {
            return Err(wrong_field);
        }
        // All of them are looked at before the first is done.
        let mut all = Vec::with_capacity(ranges.len());
        let mut bytes = 0u64;
        for (block, blocks) in ranges {
            let width = qpair_scsi_wire::Width::Sixteen;
            let extents = self.extents(Range { block, blocks, width }, UNMAP_BYTES_MAX)?;
            bytes += extents.len_bytes;
            all.push(extents);
        }
        if bytes > UNMAP_BYTES_MAX {
            return Err(wrong_field);
        }
        let durable = self.durable(false);
        for extents in all.into_iter().filter(|extents| extents.len_bytes > 0) {
            self.volume.zero(extents, durable).map_err(|_| failed(Code::WRITE_ERROR, 0))?;
        }
        Ok(Answer::good(len))
    }
}

/// The medium did not do it.
fn failed(code: Code, block: u64) -> Sense {
    Sense { information: Some(block), ..Sense::new(Key::MediumError, code) }
}
