//! Translates commands that read and write blocks into jobs for a device, and the errors of jobs
//! into sense data.

use qpair_block::{ErrorKind, IoError, Op};
use qpair_scsi_wire::command::Range;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::{Command, unmap};

use super::unit::Unit;
use crate::queue::Job;

/// The most bytes of one READ or WRITE.
pub(super) const TRANSFER_BYTES_MAX: u64 = 4 << 20;
/// The most bytes of one WRITE SAME.
pub(super) const WRITE_SAME_BYTES_MAX: u64 = 1 << 31;
/// The most bytes of one UNMAP.
pub(super) const UNMAP_BYTES_MAX: u64 = 1 << 31;
/// The most ranges of one UNMAP.
pub(super) const UNMAP_RANGES_MAX: u32 = 256;

/// The work that a command requires.
#[derive(Debug)]
pub(super) enum Plan {
    /// No work.
    Nothing,
    /// A job that moves data.
    Move(Job),
    /// Jobs without data, done one after the other from the last one of the list on, and the number
    /// of bytes of parameters that were taken.
    Jobs(Vec<Job>, u32),
}

/// Makes the plan of a command. `take` copies the first bytes that the initiator sends, and returns
/// false if it sends fewer.
///
/// # Errors
/// The sense data of an invalid command.
pub(super) fn plan(
    unit: &Unit,
    command: Command,
    take: impl FnOnce(&mut [u8]) -> bool,
) -> Result<Plan, Sense> {
    let durable = |force_unit_access| force_unit_access || !unit.logical.has_write_cache();
    let plain = |op, (offset_bytes, len_bytes): (u64, u64)| Job {
        op,
        durable: false,
        offset_bytes,
        len_bytes: len_bytes as u32,
    };
    let changes = matches!(
        command,
        Command::Write { .. } | Command::WriteSame { .. } | Command::Unmap { .. }
    );
    if changes && unit.logical.facts().read_only {
        return Err(Sense::new(Key::DataProtect, Code::WRITE_PROTECTED));
    }
    match command {
        Command::Read { range, protect: 0, .. } => {
            let bytes = extent(unit, range, TRANSFER_BYTES_MAX)?;
            Ok(if range.blocks == 0 { Plan::Nothing } else { Plan::Move(plain(Op::Read, bytes)) })
        }
        Command::Write { range, force_unit_access, protect: 0 } => {
            let bytes = extent(unit, range, TRANSFER_BYTES_MAX)?;
            let job = Job { durable: durable(force_unit_access), ..plain(Op::Write, bytes) };
            Ok(if range.blocks == 0 { Plan::Nothing } else { Plan::Move(job) })
        }
        Command::SynchronizeCache { range, .. } => {
            extent(unit, range, u64::MAX)?;
            Ok(Plan::Jobs(vec![plain(Op::Flush, (0, 0))], 0))
        }
        Command::WriteSame { range, anchor: false, no_data, protect: 0, .. } => {
            if range.blocks == 0 {
                return Err(Sense::invalid_field(10));
            }
            let bytes = extent(unit, range, WRITE_SAME_BYTES_MAX)?;
            let mut pattern = vec![0; if no_data { 0 } else { unit.block_bytes() as usize }];
            if !pattern.is_empty() && !take(&mut pattern) {
                return Err(Sense::invalid_field(1));
            }
            if pattern.iter().any(|byte| *byte != 0) {
                return Err(Sense::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_LIST));
            }
            Ok(Plan::Jobs(vec![plain(Op::WriteZeroes, bytes)], pattern.len() as u32))
        }
        Command::Unmap { anchor: false, len: 0 } => Ok(Plan::Nothing),
        Command::Unmap { anchor: false, len } => {
            let wrong = |code| Sense::new(Key::IllegalRequest, code);
            let mut list = vec![0; len.into()];
            let ranges = if take(&mut list) { unmap::decode(&list) } else { None };
            let ranges = ranges.ok_or(wrong(Code::PARAMETER_LIST_LENGTH))?;
            if ranges.len() > UNMAP_RANGES_MAX as usize {
                return Err(wrong(Code::INVALID_FIELD_IN_LIST));
            }
            // All of them are looked at before the first is done.
            let (mut jobs, mut all_bytes) = (Vec::with_capacity(ranges.len()), 0);
            for (block, blocks) in ranges.into_iter().rev() {
                let width = qpair_scsi_wire::Width::Sixteen;
                let bytes = extent(unit, Range { block, blocks, width }, UNMAP_BYTES_MAX)?;
                all_bytes += bytes.1;
                if blocks > 0 {
                    jobs.push(plain(Op::Discard, bytes));
                }
            }
            if all_bytes > UNMAP_BYTES_MAX {
                return Err(wrong(Code::INVALID_FIELD_IN_LIST));
            }
            Ok(if jobs.is_empty() { Plan::Nothing } else { Plan::Jobs(jobs, len.into()) })
        }
        // Protection information, anchors.
        _ => Err(Sense::invalid_field(1)),
    }
}

/// Returns the offset and the length of a range in bytes. Fails if the range is not in the unit or
/// has more than `bytes_max`.
fn extent(unit: &Unit, range: Range, bytes_max: u64) -> Result<(u64, u64), Sense> {
    let (all, blocks) = (unit.blocks(), u64::from(range.blocks));
    // No blocks may begin at the end, where there are none.
    if range.block > all || blocks > all - range.block {
        return Err(Sense::new(Key::IllegalRequest, Code::BLOCK_OUT_OF_RANGE));
    }
    let block_bytes = u64::from(unit.block_bytes());
    let len_bytes = blocks * block_bytes;
    if len_bytes > bytes_max {
        return Err(Sense::new(Key::IllegalRequest, Code::INVALID_FIELD_IN_CDB));
    }
    Ok((range.block * block_bytes, len_bytes))
}

/// Returns the sense data of a failed job.
pub(super) fn sense_of(unit: &Unit, job: Job, error: IoError) -> Sense {
    let block = job.offset_bytes / u64::from(unit.block_bytes());
    match error.kind {
        ErrorKind::ReadOnly => Sense::new(Key::DataProtect, Code::WRITE_PROTECTED),
        ErrorKind::NoSpace => Sense::new(Key::DataProtect, Code::SPACE_EXHAUSTED),
        ErrorKind::Unsupported => Sense::new(Key::IllegalRequest, Code::INVALID_OPCODE),
        // The device has become smaller since the command was checked.
        ErrorKind::Invalid => Sense::new(Key::IllegalRequest, Code::BLOCK_OUT_OF_RANGE),
        ErrorKind::Gone => Sense::new(Key::HardwareError, Code::INTERNAL_FAILURE),
        _ => {
            let is_read = job.op == Op::Read;
            let code = if is_read { Code::UNRECOVERED_READ_ERROR } else { Code::WRITE_ERROR };
            let information = (job.op != Op::Flush).then_some(block);
            Sense { information, ..Sense::new(Key::MediumError, code) }
        }
    }
}
