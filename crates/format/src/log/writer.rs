//! The writing end of one worker's log: records go in, planned writes come out.
//!
//! Invariant: a block is planned once. A chunk is planned after its segment's header or together
//! with it, and that header names a next segment that this log already owns. Timestamps rise.

use std::collections::VecDeque;

use super::buffer::{Blocks, WriteBuffer};
use super::chunk::{CHUNK_HEADER_BYTES, ChunkHeader};
use super::position::{LogGeometry, LogIdentity, LogPosition};
use super::record::RecordBuilder;
use super::segment::SegmentHeader;
use crate::error::{Error, ErrorKind, Result};

/// The capacity in bytes above which the memory for waiting records is freed when nothing waits.
const PENDING_KEPT_MAX: usize = 1 << 20;
/// The end of a segment that is smaller than this fraction of it is left unused, so that a chunk
/// need not be cut.
const UNUSED_PART: u32 = 8;

/// A write that the device must execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedWrite {
    /// The address on the device in bytes.
    pub offset_bytes: u64,
    /// The size in bytes; a multiple of the block.
    pub len_bytes: u32,
    /// The position up to which the log is durable once this write and all earlier ones are.
    pub end_lsn: u64,
    /// The greatest timestamp of a record that ends before `end_lsn`; 0 if there is none.
    pub greatest_timestamp: u64,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    offset_bytes: u64,
    sequence: u64,
}

#[derive(Debug)]
struct InFlight {
    end_lsn: u64,
    greatest_timestamp: u64,
    durable: bool,
}

#[derive(Debug)]
pub struct LogWriter {
    identity: LogIdentity,
    geometry: LogGeometry,
    /// The appended bytes. Those from `taken` on are not in a chunk yet.
    pending: Vec<u8>,
    /// The number of bytes of `pending` that are in chunks.
    taken: usize,
    /// The position of the next chunk's payload in the byte stream.
    lsn: u64,
    /// The end of the last record that is completely in chunks.
    boundary_lsn: u64,
    /// The ends and timestamps of the records that are not completely in chunks.
    ends: VecDeque<(u64, u64)>,
    appended_timestamp: u64,
    /// The commit whose parts were appended last, if its last part is still to come.
    in_parts: Option<u64>,
    chunked_timestamp: u64,
    /// The segments that hold chunks, in order; the last one is being filled.
    segments: VecDeque<Segment>,
    current: Segment,
    /// The segments to continue in. The header of the current segment names the first one.
    upcoming: VecDeque<u64>,
    /// The offset of the next chunk in the current segment; 0 if the segment's header is not
    /// planned yet.
    at: u32,
    chunk_sequence: u64,
    in_flight: VecDeque<InFlight>,
    durable_lsn: u64,
    durable_timestamp: u64,
    /// The timestamp up to which all commits in all logs are durable, as far as this log was told.
    all_durable_timestamp: u64,
    /// Whether completed writes are durable. If so, chunks state how far the log is durable; if
    /// not, they state nothing, because power loss may take any of it.
    flushed: bool,
}

impl LogWriter {
    /// Creates a log that begins in the segment at `current` and continues in the one at `next`
    /// (byte offsets). The error is `Invalid` if the sizes are not valid.
    #[inline]
    pub fn new(
        identity: LogIdentity,
        geometry: LogGeometry,
        current: u64,
        next: u64,
    ) -> Result<Self> {
        if let Some(fault) = geometry.fault() {
            return Err(Error::new(ErrorKind::Invalid, fault));
        }
        let current = Segment { offset_bytes: current, sequence: 0 };
        Ok(Self {
            identity,
            geometry,
            pending: Vec::new(),
            taken: 0,
            lsn: 0,
            boundary_lsn: 0,
            ends: VecDeque::new(),
            appended_timestamp: 0,
            in_parts: None,
            chunked_timestamp: 0,
            segments: VecDeque::from([current]),
            current,
            upcoming: VecDeque::from([next]),
            at: 0,
            chunk_sequence: 0,
            in_flight: VecDeque::new(),
            durable_lsn: 0,
            durable_timestamp: 0,
            all_durable_timestamp: 0,
            flushed: true,
        })
    }

    /// Sets whether a write counts as done only once it is durable. The default is true.
    #[inline]
    pub fn flushed(mut self, flushed: bool) -> Self {
        self.flushed = flushed;
        self
    }

    /// Returns the durable position or timestamp that the log records for its reader; 0 if the log
    /// makes no claim.
    fn claim(&self, durable: u64) -> u64 {
        if self.flushed { durable } else { 0 }
    }

    /// Appends the record that `encode` makes, and returns its end in the log's byte stream.
    /// Timestamps must rise along a log. A record whose timestamp does not rise, or that is too
    /// long, is refused as `Invalid`.
    #[inline]
    pub fn append(
        &mut self,
        timestamp: u64,
        encode: impl FnOnce(&mut RecordBuilder<'_>),
    ) -> Result<u64> {
        let end = self.append_record(timestamp, encode)?;
        self.ends.push_back((end, timestamp));
        (self.appended_timestamp, self.in_parts) = (timestamp, None);
        Ok(end)
    }

    /// Appends a part of a commit's record, like [`append`](Self::append). The commit's other parts
    /// must be the next records of the log, and [`append`](Self::append) must append the last one:
    /// without it the commit does not count.
    pub fn append_part(
        &mut self,
        timestamp: u64,
        encode: impl FnOnce(&mut RecordBuilder<'_>),
    ) -> Result<u64> {
        let end = self.append_record(timestamp, |record| {
            record.continues();
            encode(record);
        })?;
        // A chunk states the greatest timestamp of a whole commit.
        self.ends.push_back((end, self.appended_timestamp));
        self.in_parts = Some(timestamp);
        Ok(end)
    }

    fn append_record(
        &mut self,
        timestamp: u64,
        encode: impl FnOnce(&mut RecordBuilder<'_>),
    ) -> Result<u64> {
        if timestamp <= self.appended_timestamp || self.in_parts.is_some_and(|of| of != timestamp) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "commit timestamp {timestamp} cannot follow {} in log {}",
                    self.in_parts.unwrap_or(self.appended_timestamp),
                    self.identity.log
                ),
            ));
        }
        self.make_room();
        let mut builder = RecordBuilder::new(&mut self.pending, timestamp);
        encode(&mut builder);
        builder.finish()?;
        Ok(self.end_lsn())
    }

    /// Removes the bytes of `pending` that are in chunks, if moving the others costs less than
    /// those bytes take.
    fn make_room(&mut self) {
        if self.taken == self.pending.len() {
            self.pending.clear();
            self.pending.shrink_to(PENDING_KEPT_MAX);
        } else if self.taken >= self.pending.len() / 2 {
            self.pending.drain(..self.taken);
        } else {
            return;
        }
        self.taken = 0;
    }

    /// Returns the number of appended bytes that are in no chunk.
    #[inline]
    pub fn pending_bytes(&self) -> usize {
        self.pending.len() - self.taken
    }

    /// Returns the end of the log's byte stream, after everything that was ever appended.
    #[inline]
    pub fn end_lsn(&self) -> u64 {
        self.lsn + self.pending_bytes() as u64
    }

    /// Returns the last bytes of the log's byte stream, of which none may be in a chunk yet.
    #[inline]
    pub fn tail(&self, bytes: u64) -> &[u8] {
        let begin = self.pending.len().saturating_sub(bytes as usize);
        &self.pending[begin..]
    }

    /// Returns the timestamp of the last appended record; 0 if there is none.
    #[cfg(test)]
    #[inline]
    pub fn appended_timestamp(&self) -> u64 {
        self.appended_timestamp
    }

    /// Whether the log needs another segment. Without one it stops soon, or has stopped.
    #[inline]
    pub fn needs_segment(&self) -> bool {
        let left = self.left_bytes();
        self.upcoming.len() < 2
            && (left < self.geometry.segment_bytes / 2 || self.pending_bytes() > left as usize)
    }

    /// Returns a lower bound of the number of bytes for which there is room without another
    /// segment.
    #[inline]
    pub fn room_bytes(&self) -> usize {
        // The last segment is only named.
        let whole = self.upcoming.len().saturating_sub(1) as u64;
        let room = whole * self.geometry.room_bytes() + u64::from(self.left_bytes()) / 2;
        // Waiting records may go into a write before the commit's, which does not fill its last
        // block.
        let pending = match self.pending_bytes() {
            0 => 0,
            pending => pending + self.geometry.block_bytes as usize,
        };
        (room as usize).saturating_sub(pending)
    }

    /// Takes back segments that were given and are not yet used: those beyond the first two that
    /// are not needed for `keep_bytes` more bytes.
    #[inline]
    pub fn take_surplus(&mut self, keep_bytes: usize) -> Vec<u64> {
        let mut surplus = Vec::new();
        while self.upcoming.len() > 2
            && let Some(last) = self.upcoming.pop_back()
        {
            if self.room_bytes() < keep_bytes.max(1) {
                self.upcoming.push_back(last);
                break;
            }
            surplus.push(last);
        }
        surplus
    }

    /// Gives the log a segment to continue in, by its byte offset.
    #[inline]
    pub fn give_segment(&mut self, offset_bytes: u64) {
        self.upcoming.push_back(offset_bytes);
    }

    /// Returns the position at which a reader must start to see everything that is appended from
    /// now on.
    #[inline]
    pub fn position(&self) -> LogPosition {
        LogPosition {
            incarnation: self.identity.incarnation,
            segment_offset_bytes: self.current.offset_bytes,
            segment_sequence: self.current.sequence,
            chunk_sequence: self.chunk_sequence,
            lsn: self.lsn,
            at_bytes: self.at.max(self.geometry.block_bytes),
            geometry: self.geometry,
            log: self.identity.log,
            flushed: self.flushed,
            timestamp_max: None,
        }
    }

    /// Returns the offsets of all segments that belong to the log: those with chunks, and those to
    /// continue in.
    #[inline]
    pub fn segments(&self) -> impl Iterator<Item = u64> + '_ {
        let used = self.segments.iter().map(|segment| segment.offset_bytes);
        used.chain(self.upcoming.iter().copied())
    }

    /// Gives back the segments that end before a position of this log: a reader that starts there
    /// does not need them. Returns their offsets.
    #[inline]
    pub fn discard_before(&mut self, position: &LogPosition) -> Vec<u64> {
        let mut offsets = Vec::new();
        if position.incarnation != self.identity.incarnation || position.log != self.identity.log {
            return offsets;
        }
        while let Some(first) = self.segments.front()
            && first.sequence < position.segment_sequence.min(self.current.sequence)
        {
            offsets.push(first.offset_bytes);
            self.segments.pop_front();
        }
        offsets
    }

    fn left_bytes(&self) -> u32 {
        self.geometry.segment_bytes - self.at
    }

    /// Plans the next write and puts its bytes into `buffer`, which has room for two blocks or
    /// more. `None` if nothing waits, or the log needs a segment first.
    #[inline]
    pub fn next_write(&mut self, buffer: &mut (impl WriteBuffer + ?Sized)) -> Option<PlannedWrite> {
        let geometry = self.geometry;
        let block = geometry.block_bytes as usize;
        // A segment has room for at least two chunks: if the first is damaged, the second shows
        // that it existed.
        let half = (self.geometry.segment_bytes as usize / 2).max(2 * block);
        let capacity = buffer.capacity_bytes().min(half) / block * block;
        debug_assert!(capacity >= 2 * block, "a segment's header and its first chunk go together");
        let pending = self.pending_bytes();
        if pending == 0 || capacity < 2 * block {
            return None;
        }
        let content = (CHUNK_HEADER_BYTES + pending) as u64;
        let wanted = (geometry.blocks_of(content) as usize).min(capacity);
        let left = self.left_bytes();
        if wanted > left as usize && left < self.geometry.segment_bytes / UNUSED_PART {
            self.begin_segment()?;
        }
        let offset_bytes = self.current.offset_bytes + u64::from(self.at);
        let header_bytes = if self.at == 0 { block } else { 0 };
        let wanted = (header_bytes + wanted).min(capacity).min(self.left_bytes() as usize);
        let mut buffer = Blocks::new(buffer, geometry);
        if header_bytes > 0 {
            self.put_segment_header(&mut buffer)?;
        }
        let room = geometry.content_of((wanted - header_bytes) as u32) as usize;
        let begin = geometry.content_of(header_bytes as u32) as usize;
        let used = self.put_chunk(&mut buffer, begin, pending.min(room - CHUNK_HEADER_BYTES));
        let len = geometry.blocks_of(used as u64) as usize;
        buffer.put_zeroes(used, geometry.content_of(len as u32) as usize);
        self.at += len as u32;
        let planned = PlannedWrite {
            offset_bytes,
            len_bytes: len as u32,
            end_lsn: self.lsn,
            greatest_timestamp: self.chunked_timestamp,
        };
        self.in_flight.push_back(InFlight {
            end_lsn: planned.end_lsn,
            greatest_timestamp: planned.greatest_timestamp,
            durable: false,
        });
        Some(planned)
    }

    /// Continues in the next segment, if there is one after it to be named in its header.
    fn begin_segment(&mut self) -> Option<()> {
        if self.upcoming.len() < 2 {
            return None;
        }
        let offset_bytes = self.upcoming.pop_front()?;
        self.current = Segment { offset_bytes, sequence: self.current.sequence + 1 };
        self.segments.push_back(self.current);
        self.at = 0;
        Some(())
    }

    fn put_segment_header(&self, buffer: &mut Blocks<'_, impl WriteBuffer + ?Sized>) -> Option<()> {
        let header = SegmentHeader {
            identity: self.identity,
            sequence: self.current.sequence,
            first_chunk: self.chunk_sequence,
            lsn: self.lsn,
            durable_lsn: self.claim(self.durable_lsn),
            offset_bytes: self.current.offset_bytes,
            next_offset_bytes: *self.upcoming.front()?,
            geometry: self.geometry,
        };
        let bytes = header.encode();
        buffer.put(0, &bytes);
        buffer.put_zeroes(bytes.len(), self.geometry.content_bytes() as usize);
        Some(())
    }

    /// Puts a chunk with the next `payload_bytes` at `at`, and returns the chunk's end. Both count
    /// content.
    fn put_chunk(
        &mut self,
        buffer: &mut Blocks<'_, impl WriteBuffer + ?Sized>,
        at: usize,
        payload_bytes: usize,
    ) -> usize {
        let begin_lsn = self.lsn;
        let end_lsn = begin_lsn + payload_bytes as u64;
        // Either a record begins with the chunk, or the first record begins where the cut one ends.
        let first_lsn = if self.boundary_lsn == begin_lsn {
            Some(begin_lsn)
        } else {
            self.ends.front().map(|(end, _)| *end)
        };
        while let Some((end, timestamp)) = self.ends.front()
            && *end <= end_lsn
        {
            (self.boundary_lsn, self.chunked_timestamp) = (*end, *timestamp);
            self.ends.pop_front();
        }
        let payload = &self.pending[self.taken..self.taken + payload_bytes];
        let header = ChunkHeader {
            identity: self.identity,
            sequence: self.chunk_sequence,
            segment_sequence: self.current.sequence,
            lsn: begin_lsn,
            greatest_timestamp: self.chunked_timestamp,
            durable_lsn: self.claim(self.durable_lsn),
            durable_timestamp: self.claim(self.all_durable_timestamp),
            payload_bytes: payload_bytes as u32,
            payload_sum: crc_fast::crc32_iscsi(payload),
            first_record: first_lsn
                .filter(|first| *first < end_lsn)
                .map(|first| (first - begin_lsn) as u32),
        };
        buffer.put(at, &header.encode());
        buffer.put(at + CHUNK_HEADER_BYTES, payload);
        self.taken += payload_bytes;
        self.lsn = end_lsn;
        self.chunk_sequence += 1;
        at + CHUNK_HEADER_BYTES + payload_bytes
    }

    /// Notes that a planned write is durable: completed, and flushed or forced. Writes may be
    /// reported in any order.
    #[inline]
    pub fn complete(&mut self, write: &PlannedWrite) {
        if let Some(found) = self.in_flight.iter_mut().find(|w| w.end_lsn == write.end_lsn) {
            found.durable = true;
        }
        while let Some(first) = self.in_flight.front()
            && first.durable
        {
            (self.durable_lsn, self.durable_timestamp) = (first.end_lsn, first.greatest_timestamp);
            self.in_flight.pop_front();
        }
    }

    /// Notes that all commits with timestamps up to this one are durable, in all logs. Chunks state
    /// the timestamp, so that damage to the end of another log can be told from the end that a
    /// crash leaves.
    #[inline]
    pub fn note_all_durable(&mut self, timestamp: u64) {
        self.all_durable_timestamp = self.all_durable_timestamp.max(timestamp);
    }

    /// Returns the number of planned writes that are not known to be durable.
    #[cfg(test)]
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    #[cfg(test)]
    #[inline]
    pub fn durable_lsn(&self) -> u64 {
        self.durable_lsn
    }

    /// Returns the timestamp up to which all records of the log are durable.
    #[inline]
    pub fn durable_timestamp(&self) -> u64 {
        self.durable_timestamp
    }
}
