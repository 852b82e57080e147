//! Reading the logs behind a checkpoint, in the order of the commits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use qpair_block::{Arena, ArenaOptions, Completion};

use super::ahead::{Ahead, Chain, Extent};
use super::gather::Kept;
use crate::checkpoint::Record as Checkpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{
    LogIdentity, LogMerge, LogPosition, LogReader, MergeEnd, MergeStep, Operation, Record,
};
use crate::overflow::Descriptor;
use crate::shared::Shared;

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;
/// Reads of one log that are under way at most.
const READS_AHEAD: u32 = 8;

/// The logs that a checkpoint's image names.
pub(super) struct Logs {
    positions: Vec<LogPosition>,
    /// What is known of the logs' segments.
    chains: Vec<Chain>,
    /// Memory of each log's reads.
    arenas: Vec<Arc<Arena>>,
    first_stamp: u64,
    read_bytes: u32,
}

/// What the first pass over the logs found.
#[derive(Debug, Default)]
pub(super) struct Analysis {
    pub(super) end: MergeEnd,
    /// Bytes of records that count.
    pub(super) bytes: u64,
    /// Segments that the logs lie in, by log: byte offsets.
    pub(super) segments: Vec<u64>,
    /// Runs of pages of large values that the log's commits put and that no later one took over.
    pub(super) large: BTreeMap<u64, Descriptor>,
    /// From where on the commits are to be read again; none: all were kept.
    pub(super) rest: Option<LogMerge>,
}

/// What is to be done about a commit beside going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    GoOn,
    /// The place behind it will be needed again.
    Remember,
}

/// What a pass over the logs found.
#[derive(Debug)]
pub(super) struct Scanned {
    end: MergeEnd,
    /// Segments that the logs lie in: byte offsets.
    segments: Vec<u64>,
    /// Where the logs stood when that was to be remembered.
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
            first_stamp: checkpoint.stamp + 1,
            read_bytes,
        })
    }

    /// Bytes of a segment.
    pub(super) fn segment_bytes(&self) -> u64 {
        self.positions.first().map_or(0, |position| u64::from(position.geometry.segment_bytes))
    }

    /// The logs from their places on.
    fn whole(&self, shared: &Shared) -> LogMerge {
        let store = LogIdentity::new(shared.store_id, 0, 0).store;
        let readers =
            self.positions.iter().map(|position| LogReader::new(store, *position, self.read_bytes));
        LogMerge::new(readers, self.first_stamp)
    }

    /// Reads all logs, and hands the commits that count to `take`, in order. `take` may wait, and may wish that the place
    /// behind a commit is remembered.
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
                }
                MergeStep::Wait => {
                    let Some(log) = asked.pop_front() else {
                        return Err(Error::new(ErrorKind::Corrupt, "the log waits for nothing"));
                    };
                    match ahead[log].done().await? {
                        Some((extent, Completion { buffer: Some(buffer), .. })) => {
                            merge.give(log, &buffer.as_slice()[..extent.len_bytes as usize]);
                        }
                        // Past the device's end there is no log.
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
            // Past the end; their memory is needed when the logs are read again.
            reads.forget().await?;
        }
        let segments = merge.readers().flat_map(|reader| reader.segments().to_vec()).collect();
        Ok(Scanned { end: merge.end().unwrap_or_default(), segments, rest })
    }

    /// The first pass: how far the logs go, which pages they need, and as many of their changes as fit into `kept`.
    pub(super) async fn analyse(&mut self, shared: &Shared, kept: &mut Kept) -> Result<Analysis> {
        let mut analysis = Analysis::default();
        let found = &mut analysis;
        let scanned = self
            .read(shared, self.whole(shared), async |record| {
                found.bytes += record.bytes() as u64;
                for operation in record.operations() {
                    if let Operation::PutLarge { descriptor, .. } = operation {
                        let descriptor = Descriptor::decode(&descriptor, shared.page_size)?;
                        take_over(&mut found.large, descriptor);
                    }
                }
                Ok(if kept.take(record) { Wish::Remember } else { Wish::GoOn })
            })
            .await?;
        // Where the log is now, no value is any more: its pages became free, and then the log's.
        let pages = self.segment_bytes() / shared.page_size as u64;
        for segment in &scanned.segments {
            remove_overlapped(&mut analysis.large, segment / shared.page_size as u64, pages);
        }
        analysis.end = scanned.end;
        analysis.segments = scanned.segments;
        analysis.rest = scanned.rest;
        Ok(analysis)
    }
}

/// Notes a run of pages; earlier ones that it overlaps were given back before it was written.
fn take_over(large: &mut BTreeMap<u64, Descriptor>, descriptor: Descriptor) {
    remove_overlapped(large, descriptor.page_id, u64::from(descriptor.pages));
    large.insert(descriptor.page_id, descriptor);
}

/// Forgets the values that had any of these pages.
fn remove_overlapped(large: &mut BTreeMap<u64, Descriptor>, first: u64, pages: u64) {
    let overlapped: Vec<u64> = large
        .range(..first.saturating_add(pages))
        .rev()
        .take_while(|(_, other)| other.page_id.saturating_add(other.pages.into()) > first)
        .map(|(start, _)| *start)
        .collect();
    for start in overlapped {
        large.remove(&start);
    }
}
