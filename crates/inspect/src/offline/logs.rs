//! The logs behind a checkpoint, read past the store.

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
    /// The end of each log.
    pub(crate) ends: Vec<LogEnd>,
    /// Whether a log ends where the device could not be read. The rest of that log is unknown.
    pub(crate) unreadable: bool,
}

/// Reads the logs that a checkpoint names, and hands the commits that count to `take` in their order, each with where its
/// log begins, and where its record ends there. What cannot be read ends its log. Nothing if `take` broke it off.
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
                return Err(Error::new(ErrorKind::Corrupt, "the log waits for nothing"));
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
