//! Reading the logs after a checkpoint, in the order of the commits.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use qpair_block::{Arena, ArenaOptions, Completion, Request};
use qpair_format::image::Record as Checkpoint;
use qpair_format::large::Descriptor;
use qpair_format::log::{
    InDoubt, LogIdentity, LogMerge, LogPosition, LogReader, MergeEnd, MergeStep, Operation, Record,
};
use qpair_format::{Error, ErrorKind, Result};

use super::ahead::{Ahead, Chain, Extent};
use super::gather::Kept;
use super::large::LargeValues;
use super::unreadable;
use crate::shared::Shared;
use crate::task::{Transfer, yield_now};
use qpair_members::is_on_log_device;

/// The size of one read, in bytes.
const READ_BYTES: usize = 256 << 10;
/// The maximum number of reads of one log that are in flight.
const READS_AHEAD: u32 = 8;
/// The number of incarnations whose logs a checkpoint record names at most, including the new one.
const INCARNATIONS_MAX: usize = 4;

pub(super) struct Logs {
    positions: Vec<LogPosition>,
    /// The known segments of each log.
    chains: Vec<Chain>,
    arenas: Vec<Arc<Arena>>,
    first_timestamp: u64,
    read_bytes: u32,
}

#[derive(Debug, Default)]
pub(super) struct Analysis {
    pub(super) end: MergeEnd,
    /// The size of all records that count, in bytes.
    pub(super) bytes: u64,
    pub(super) segments: Vec<Extent>,
    /// The parts of the logs that may be in a volatile cache only.
    in_doubt: Vec<InDoubt>,
    /// The large values that the logs put and whose pages were not reused.
    pub(super) large: LargeValues,
    /// The position from which the commits are to be read again; `None` if all were kept.
    pub(super) rest: Option<LogMerge>,
}

impl Analysis {
    /// Claims the logs' segments and the large values, so that their pages are not allocated while
    /// recovery needs them. Returns the logs' runs of pages.
    ///
    /// A large value that was put and replaced while the image was written may have lost its pages
    /// to the image: pages are freed once the commit that replaced the value is durable. Such a
    /// value is dropped.
    ///
    /// # Errors
    /// `Corrupt` if pages of the logs have another use.
    pub(super) fn claim(&mut self, shared: &Shared) -> Result<Vec<(u64, u64)>> {
        let page_size = shared.page_size as u64;
        let mut log_runs: Vec<(u64, u64)> = Vec::new();
        for Extent { offset_bytes, len_bytes } in self.segments.iter().copied() {
            let len_bytes = u64::from(len_bytes);
            match &shared.wal.device {
                Some(log_device) if is_on_log_device(offset_bytes) => {
                    log_device.claim(offset_bytes, len_bytes);
                }
                _ => log_runs.push((offset_bytes / page_size, len_bytes / page_size)),
            }
        }
        log_runs.sort_unstable();
        log_runs.dedup();
        let refused = |first: u64, count: u64| {
            unreadable(format!(
                "the log needs pages {first} to {}, which have another use",
                first.saturating_add(count)
            ))
        };
        for (first, count) in log_runs.iter().copied() {
            if !shared.space.claim_unlinked(first, count) {
                return Err(refused(first, count));
            }
        }
        match self.large.claim(shared) {
            Some(Range { start, end }) => Err(refused(start, end - start)),
            None => Ok(log_runs),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    GoOn,
    /// The position after this commit will be needed again.
    Remember,
}

#[derive(Debug)]
pub(super) struct Scanned {
    end: MergeEnd,
    segments: Vec<Extent>,
    in_doubt: Vec<InDoubt>,
    /// The position that was to be remembered.
    rest: Option<LogMerge>,
}

impl Logs {
    pub(super) fn new(shared: &Shared, checkpoint: &Checkpoint, logs: &[Vec<u8>]) -> Result<Self> {
        let positions =
            logs.iter().map(|log| LogPosition::decode(log)).collect::<Result<Vec<_>>>()?;
        let most = (shared.log_transfer_bytes_max() as usize).min(READ_BYTES);
        let bytes = 1 << most.ilog2();
        let arena = |_: &LogPosition| {
            Arena::new(bytes, READS_AHEAD, ArenaOptions::ordinary_pages()).map_err(|error| {
                Error::new(ErrorKind::NoMemory, format!("mapping memory to read the log: {error}"))
            })
        };
        let read_bytes = bytes as u32;
        Ok(Self {
            chains: positions
                .iter()
                .map(|at| {
                    Chain::new(at.segment_offset_bytes, at.geometry.segment_bytes, read_bytes)
                })
                .collect(),
            arenas: positions.iter().map(arena).collect::<Result<_>>()?,
            positions,
            first_timestamp: checkpoint.timestamp + 1,
            read_bytes,
        })
    }

    /// Whether a new incarnation may begin while these logs stay in use: no part that counts is in
    /// a volatile cache only, except the part that [`Logs::write_again`] writes, and the logs are
    /// of few incarnations.
    pub(super) fn may_stay(&self) -> bool {
        let mut incarnations: Vec<u64> = self.positions.iter().map(|at| at.incarnation).collect();
        incarnations.dedup();
        incarnations.len() < INCARNATIONS_MAX
            && self.positions.iter().all(|position| position.flushed)
    }

    /// Returns the positions of the logs, with the commit `timestamp` as their end.
    pub(super) fn ended_at(&self, timestamp: u64) -> Vec<Vec<u8>> {
        self.positions.iter().map(|position| position.ended_at(timestamp).encode()).collect()
    }

    /// Writes the parts that may be in a volatile cache only again, with the same bytes in the same
    /// places, durably. A flush would suffice after a crash of the process, but must not be retried
    /// after a flush that failed.
    pub(super) async fn write_again(&self, shared: &Shared, found: &Analysis) -> Result<()> {
        let Some(arena) = self.arenas.first() else { return Ok(()) };
        for InDoubt { offset_bytes, len_bytes, .. } in &found.in_doubt {
            for done in (0..*len_bytes).step_by(self.read_bytes as usize) {
                let (at, len) =
                    (offset_bytes + u64::from(done), self.read_bytes.min(len_bytes - done));
                let failed = |error| {
                    let error = Error::io(error, "writing the end of the log again");
                    shared.fail(error.clone());
                    error
                };
                let Some(buffer) = arena.lease() else {
                    return Err(Error::new(ErrorKind::NoMemory, "the log is being read"));
                };
                let read = Transfer::submit(Request::read(at, len, buffer, 0)).done().await?;
                read.result.map_err(failed)?;
                let Some(buffer) = read.buffer else { continue };
                let mut write = Request::write(at, len, buffer, 0);
                write.force_unit_access = true;
                Transfer::submit(write).done().await?.result.map_err(failed)?;
            }
        }
        Ok(())
    }

    fn whole(&self, shared: &Shared) -> LogMerge {
        let store = LogIdentity::new(shared.lifecycle.store_id, 0, 0).store;
        let readers =
            self.positions.iter().map(|position| LogReader::new(store, *position, self.read_bytes));
        LogMerge::new(readers, self.first_timestamp)
    }

    /// Reads all logs, and passes the commits that count to `take`, in order. `take` may wait, and
    /// may request that the position after a commit is remembered.
    pub(super) async fn read(
        &mut self,
        shared: &Shared,
        mut merge: LogMerge,
        mut take: impl AsyncFnMut(&Record<'_>) -> Result<Wish>,
    ) -> Result<Scanned> {
        let mut rest = None;
        let device_bytes = shared.log_end_address();
        let mut ahead: Vec<Ahead> =
            self.arenas.iter().map(|arena| Ahead::new(arena.clone(), device_bytes)).collect();
        let mut asked: VecDeque<usize> = VecDeque::new();
        loop {
            match merge.advance() {
                MergeStep::Read { log, offset_bytes, len_bytes } => {
                    let chain = &mut self.chains[log];
                    if let Some((segment, next)) = merge.link(log) {
                        chain.link(segment, next);
                    }
                    ahead[log].ask(Extent { offset_bytes, len_bytes }, chain).await?;
                    asked.push_back(log);
                    // The requested read runs while the present data is processed, which may take
                    // long.
                    yield_now().await;
                }
                MergeStep::Wait => {
                    let Some(log) = asked.pop_front() else {
                        return Err(Error::new(
                            ErrorKind::Corrupt,
                            "reading the log cannot continue: no read is in flight",
                        ));
                    };
                    match ahead[log].done().await? {
                        Some((extent, Completion { buffer: Some(buffer), .. })) => {
                            merge.give(log, &buffer.as_slice()[..extent.len_bytes as usize]);
                        }
                        // There is no log beyond the device's end.
                        _ => merge.give(log, &[]),
                    }
                }
                MergeStep::Record => {
                    if let Some(record) = merge.record()
                        && take(&record).await? == Wish::Remember
                    {
                        rest = Some(merge.rest());
                    }
                }
                MergeStep::End => break,
            }
        }
        for reads in &mut ahead {
            // These reads are past the end, and their memory is needed when the logs are read
            // again.
            reads.forget().await?;
        }
        let segments = merge.readers().flat_map(|reader| {
            let len_bytes = reader.segment_bytes();
            reader.segments().iter().map(move |at| Extent { offset_bytes: *at, len_bytes })
        });
        Ok(Scanned {
            segments: segments.collect(),
            in_doubt: merge.readers().flat_map(|reader| reader.in_doubt().to_vec()).collect(),
            end: merge.end().unwrap_or_default(),
            rest,
        })
    }

    /// Makes the first pass: finds how far the logs go and which pages they need, and keeps as many
    /// of their changes as fit into `kept`.
    pub(super) async fn analyse(&mut self, shared: &Shared, kept: &mut Kept) -> Result<Analysis> {
        let mut analysis = Analysis::default();
        let found = &mut analysis;
        let scanned = self
            .read(shared, self.whole(shared), async |record| {
                found.bytes += record.bytes() as u64;
                for operation in record.operations() {
                    if let Operation::PutLarge { descriptor, .. } = operation {
                        let descriptor = Descriptor::decode(&descriptor, shared.page_bytes)?;
                        found.large.take_over(shared, descriptor).await?;
                    }
                }
                Ok(if kept.take(record) { Wish::Remember } else { Wish::GoOn })
            })
            .await?;
        // No value has pages where a log segment is now: its pages were freed before the log
        // allocated them.
        let page_size = shared.page_size as u64;
        for segment in &scanned.segments {
            let pages = u64::from(segment.len_bytes) / page_size;
            let first = segment.offset_bytes / page_size;
            analysis.large.remove_overlapped(first..first.saturating_add(pages));
        }
        analysis.end = scanned.end;
        analysis.segments = scanned.segments;
        analysis.in_doubt = scanned.in_doubt;
        analysis.rest = scanned.rest;
        Ok(analysis)
    }
}
