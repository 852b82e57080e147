//! The accesses of commands to a unit's volume.

use qpair_block::{ErrorKind, Op};
use qpair_scsi_unit::{Access, Work};
use qpair_scsi_wire::sense::{Code, Key, Sense};

use super::unit::{Answer, Data, Unit};
use crate::medium::{Extents, MediumResult};

/// The maximum number of bytes of a pattern that are written at once.
const PATTERN_BYTES: usize = 64 << 10;

impl Unit {
    pub(crate) fn carry_out(&self, work: Work, data: &mut Data<'_>) -> Answer {
        let done = match work {
            Work::Move(access) => self.move_data(access, data),
            Work::Each { accesses, taken } => {
                let mut accesses = accesses.into_iter().rev();
                let done = accesses.try_for_each(|access| self.ended(access, self.change(access)));
                done.map(|()| Answer::good(taken as usize))
            }
            Work::Fill { access, block } => {
                let many = block.repeat((PATTERN_BYTES / block.len()).max(1));
                let Access { durable, offset_bytes: at, len_bytes, .. } = access;
                let done = (0..len_bytes as usize).step_by(many.len()).try_for_each(|start| {
                    let len = many.len().min(len_bytes as usize - start);
                    self.volume.write_bytes(at + start as u64, &many[..len], durable)
                });
                self.ended(access, done).map(|()| Answer::good(block.len()))
            }
            Work::Compare { access, data_bytes } => self.compare(access, data_bytes as usize, data),
        };
        done.unwrap_or_else(Answer::check)
    }

    /// Turns the medium's result into sense data.
    fn ended<T>(&self, access: Access, done: std::io::Result<T>) -> Result<T, Sense> {
        done.map_err(|_| self.logical.failure(access.op, access.offset_bytes, ErrorKind::Io))
    }

    /// Reads or writes as many bytes as fit into the memory. Only whole blocks are written.
    fn move_data(&self, access: Access, data: &mut Data<'_>) -> Result<Answer, Sense> {
        let Access { op, durable, offset_bytes: at, len_bytes } = access;
        let (is_write, wanted) = (op == Op::Write, len_bytes as usize);
        if is_write != data.is_out {
            return Ok(Answer::good(0));
        }
        let mut moved = data.len().min(wanted);
        if is_write {
            moved = moved >> self.volume.block_shift << self.volume.block_shift;
        }
        let mut scratch = std::mem::take(data.scratch);
        let done = match is_write {
            true => self.volume.write(at, data.span(moved), durable, &mut scratch),
            false => self.volume.read(at, data.span(moved), &mut scratch),
        };
        *data.scratch = scratch;
        self.ended(access, done)?;
        Ok(Answer { is_overrun: moved < wanted, ..Answer::good(moved) })
    }

    /// Flushes, or makes a range read as zeroes. Discarded blocks read as zeroes too.
    fn change(&self, access: Access) -> MediumResult {
        let Access { op, durable, offset_bytes: at_bytes, len_bytes } = access;
        match op {
            Op::Flush => self.volume.flush(),
            _ => self.volume.zero(Extents { at_bytes, len_bytes: len_bytes.into() }, durable),
        }
    }

    fn compare(&self, access: Access, len: usize, data: &mut Data<'_>) -> Result<Answer, Sense> {
        if !data.is_out || data.len() < len {
            return Err(Sense::invalid_field(1));
        }
        let mut scratch = std::mem::take(data.scratch);
        let mut is_same = Ok(true);
        for start in (0..access.len_bytes).step_by(len) {
            let at = access.offset_bytes + u64::from(start);
            is_same = self.volume.compare(at, data.span(len), &mut scratch);
            if !matches!(is_same, Ok(true)) {
                break;
            }
        }
        *data.scratch = scratch;
        match self.ended(access, is_same)? {
            true => Ok(Answer::good(len)),
            false => Err(Sense::new(Key::Miscompare, Code::MISCOMPARE)),
        }
    }
}
