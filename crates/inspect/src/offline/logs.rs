//! Reads the logs after a checkpoint of a store that is not open.

use std::ops::ControlFlow;

use qpair_format::image::Record as Checkpoint;
use qpair_format::log::{
    LogEnd, LogIdentity, LogMerge, LogPosition, LogReader, MergeEnd, MergeStep, Record,
};
use qpair_format::{Error, ErrorKind, Result};

use super::PageReader;

/// The result of reading all logs to their ends.
pub(crate) struct MergedLogs {
    pub(crate) end: MergeEnd,
    pub(crate) ends: Vec<LogEnd>,
    /// Whether a log ends where the device could not be read. The rest of that log is unknown.
    pub(crate) unreadable: bool,
}

/// Reads the logs that a checkpoint names, and passes the valid commits to `take` in their order.
/// Each comes with the position at which its log begins, and the position at which its record ends.
/// A part that cannot be read ends its log. Returns `None` if `take` stopped the reading.
pub(crate) fn read_logs(
    reader: &mut PageReader,
    checkpoint: &Checkpoint,
    logs: &[Vec<u8>],
    mut take: impl FnMut(&mut PageReader, &LogPosition, u64, &Record<'_>) -> Result<ControlFlow<()>>,
) -> Result<Option<MergedLogs>> {
    let positions = logs.iter().map(|log| LogPosition::decode(log)).collect::<Result<Vec<_>>>()?;
    let store = LogIdentity::new(checkpoint.store_id, 0, 0).store;
    let read_bytes = reader.transfer_bytes() as u32;
    let readers = positions.iter().map(|position| LogReader::new(store, *position, read_bytes));
    let mut merge = LogMerge::new(readers, checkpoint.timestamp + 1);
    let mut unreadable = false;
    loop {
        match merge.advance() {
            MergeStep::Read { log, offset_bytes, len_bytes } => {
                let is_there = reader.is_within(offset_bytes, len_bytes as usize);
                reader.read_ranges(&[(offset_bytes, len_bytes as usize)], |_, bytes| {
                    unreadable |= is_there && bytes.is_none();
                    merge.give(log, bytes.unwrap_or_default());
                    Ok(())
                })?;
            }
            MergeStep::Wait => {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    "the log waits for a record that does not exist",
                ));
            }
            MergeStep::Record => {
                let Some(((log, lsn), record)) = merge.place().zip(merge.record()) else {
                    continue;
                };
                if take(reader, &positions[log], lsn, &record)?.is_break() {
                    return Ok(None);
                }
            }
            MergeStep::End => break,
        }
    }
    let ends = merge.readers().filter_map(LogReader::end).collect();
    Ok(Some(MergedLogs { end: merge.end().unwrap_or_default(), ends, unreadable }))
}
