//! The reading end of one log: it requests bytes, receives them, and finds the records.
//!
//! The records found are a prefix of those that were appended after the start. The prefix ends at
//! the first chunk that is torn, or is not the next one of this log. After the end, the reader only
//! looks for signs that data is missing that was once durable.

use std::ops::Range;

use super::chunk::ChunkHeader;
use super::position::{LogIdentity, LogPosition};
use super::record::{Record, record_bytes};
use super::segment::SegmentHeader;
use super::window::{Fetched, Window};

/// The next step of a log reader: it needs bytes, has a record, or is at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStep {
    /// The caller must read these bytes and pass them to [`LogReader::give`].
    Read { offset_bytes: u64, len_bytes: u32 },
    /// A record is available: [`LogReader::record`].
    Record,
    /// There are no more records: [`LogReader::end`].
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// No chunk of this log follows.
    Nothing,
    Torn,
    /// The device ends here, or could not be read.
    Short,
    /// A chunk is intact, but its content is invalid.
    Damaged(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The position at which the next chunk would have been.
    pub position: LogPosition,
    /// The position in the byte stream at which the last good record or chunk ends.
    pub lsn: u64,
    /// The timestamp of the last record that counts; 0 if there was none.
    pub timestamp: u64,
    pub reason: EndReason,
    /// The position up to which the log was durable once, according to a chunk after the end. The
    /// log is damaged between the two, which a crash alone does not cause.
    pub lost_to_lsn: Option<u64>,
    /// The timestamp up to which all commits in all logs were durable, according to this log; 0 if
    /// the log does not say.
    pub durable_timestamp: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The header of the first segment comes next.
    Enter,
    /// The rest of a chunk comes next, or another chunk.
    Chunks,
    /// There is no chunk here: the header of the next segment says whether the log continues there.
    Peek(EndReason),
    /// After the end, in this segment: looks for signs of later chunks, from this offset on.
    Tail(EndReason, u32),
    /// After the end, in the next segment.
    TailNext(EndReason, u32),
    Ended,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Window(Range<usize>),
    /// The record is in `partial`, because it came in several chunks.
    Partial,
}

#[derive(Clone, Debug)]
pub struct LogReader {
    identity: LogIdentity,
    position: LogPosition,
    next_offset_bytes: Option<u64>,
    window: Window,
    state: State,
    /// The rest of the chunk's payload, in the window.
    payload: Range<usize>,
    /// Whether the first record is still to come. Bytes before it belong to a record that began
    /// before the start.
    skipping: bool,
    partial: Vec<u8>,
    found: Found,
    timestamp: u64,
    /// The commit that the last record is a part of, if its last part is still to come.
    in_parts: Option<u64>,
    /// The end of the last record in the byte stream, or of the last chunk if a record is cut
    /// there.
    lsn: u64,
    segments: Vec<u64>,
    /// The chunks that no later chunk marks as durable.
    in_doubt: Vec<InDoubt>,
    durable_timestamp: u64,
    end: Option<LogEnd>,
}

/// A chunk that may be only in a cache: its write may have failed, or may not have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InDoubt {
    /// The address of the write in bytes. The write of a segment's first chunk begins with the
    /// segment's header.
    pub offset_bytes: u64,
    pub len_bytes: u32,
    /// The end of the write's payload in the log's byte stream.
    end_lsn: u64,
}

/// The result of looking for a record in a chunk.
enum Parsed {
    Record,
    Nothing,
    Damaged(&'static str),
}

impl LogReader {
    /// Creates a reader for the log of the store with this number. It begins at `start` and asks
    /// for up to `read_bytes` at once (at least one block).
    pub fn new(store: u64, start: LogPosition, read_bytes: u32) -> Self {
        Self {
            identity: start.identity(store),
            position: start,
            next_offset_bytes: None,
            window: Window::new(start.geometry, start.segment_offset_bytes, read_bytes),
            state: State::Enter,
            payload: 0..0,
            skipping: true,
            partial: Vec::new(),
            found: Found::Nothing,
            timestamp: 0,
            in_parts: None,
            lsn: start.lsn,
            segments: vec![start.segment_offset_bytes],
            in_doubt: Vec::new(),
            durable_timestamp: 0,
            end: None,
        }
    }

    /// Continues to the next record, or returns the bytes needed for it. The previous record is no
    /// longer available.
    pub fn advance(&mut self) -> LogStep {
        if self.found == Found::Partial {
            self.partial.clear();
        }
        self.found = Found::Nothing;
        loop {
            let step = match self.state {
                State::Enter => self.enter(),
                State::Chunks if !self.payload.is_empty() => match self.parse() {
                    Parsed::Record => return LogStep::Record,
                    Parsed::Nothing => continue,
                    Parsed::Damaged(what) => {
                        self.state = State::Tail(EndReason::Damaged(what), self.position.at_bytes);
                        continue;
                    }
                },
                State::Chunks => self.chunk(),
                State::Peek(reason) => self.peek(reason),
                State::Tail(reason, at) => self.tail(reason, at, false),
                State::TailNext(reason, at) => self.tail(reason, at, true),
                State::Ended => return LogStep::End,
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Gives the requested bytes. Fewer bytes mean that the device has no more. No bytes mean that
    /// the device could not be read, and the log ends there.
    pub fn give(&mut self, bytes: &[u8]) {
        self.window.give(bytes);
    }

    pub fn record(&self) -> Option<Record<'_>> {
        match &self.found {
            Found::Nothing => None,
            Found::Window(range) => Record::again(self.window.bytes().get(range.clone())?),
            Found::Partial => Record::again(&self.partial),
        }
    }

    /// Returns the position in the byte stream at which the last record found ends.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    pub fn segment_bytes(&self) -> u32 {
        self.position.geometry.segment_bytes
    }

    /// Returns the timestamp of the last valid commit, if a later incarnation of the store ended
    /// the log.
    pub fn timestamp_max(&self) -> Option<u64> {
        self.position.timestamp_max
    }

    /// Whether the record with this timestamp does not count, because a later incarnation gave the
    /// timestamp to another commit.
    pub fn is_past(&self, timestamp: u64) -> bool {
        self.position.is_past(timestamp)
    }

    /// Returns the writes of this log that nothing in the log marks as durable.
    pub fn in_doubt(&self) -> &[InDoubt] {
        &self.in_doubt
    }

    /// Returns the end of the log, once it was reached.
    pub fn end(&self) -> Option<LogEnd> {
        self.end
    }

    /// Returns the current segment, and the next one if the reader knows it.
    pub fn link(&self) -> Option<(u64, u64)> {
        Some((self.position.segment_offset_bytes, self.next_offset_bytes?))
    }

    /// Returns the offsets of the segments that were entered so far. They must not be used for
    /// anything else before their records are safe elsewhere.
    pub fn segments(&self) -> &[u64] {
        &self.segments
    }

    fn enter(&mut self) -> Option<LogStep> {
        let block = self.position.geometry.block_bytes;
        let reason = match self.window.fetch(
            0,
            self.position.geometry.content_bytes(),
            self.position.at_bytes == block,
        ) {
            Fetched::Ask { offset_bytes, len_bytes } => {
                return Some(LogStep::Read { offset_bytes, len_bytes });
            }
            Fetched::Missing => EndReason::Short,
            Fetched::Ready(range) => {
                let header = SegmentHeader::decode(
                    &self.window.bytes()[range],
                    self.identity,
                    self.position.segment_offset_bytes,
                )
                .filter(|header| {
                    header.sequence == self.position.segment_sequence
                        && header.geometry == self.position.geometry
                });
                if let Some(header) = header {
                    self.next_offset_bytes = Some(header.next_offset_bytes);
                    self.state = State::Chunks;
                    return None;
                }
                EndReason::Nothing
            }
        };
        self.state = State::Tail(reason, self.position.at_bytes);
        None
    }

    fn chunk(&mut self) -> Option<LogStep> {
        let LogPosition { at_bytes: at, chunk_sequence, segment_sequence, lsn, geometry, .. } =
            self.position;
        let left = geometry.segment_bytes - at;
        if left == 0 {
            self.state = State::Peek(EndReason::Nothing);
            return None;
        }
        let range = match self.window.fetch(at, geometry.content_bytes(), true) {
            Fetched::Ask { offset_bytes, len_bytes } => {
                return Some(LogStep::Read { offset_bytes, len_bytes });
            }
            Fetched::Missing => return self.stop(EndReason::Short),
            Fetched::Ready(range) => range,
        };
        let header =
            ChunkHeader::decode(&self.window.bytes()[range], self.identity).filter(|header| {
                header.sequence == chunk_sequence
                    && header.segment_sequence == segment_sequence
                    && header.lsn == lsn
                    && geometry.blocks_of(header.used_bytes()) <= left.into()
            });
        let Some(header) = header else { return self.stop(EndReason::Nothing) };
        // The chunk fits into the segment, so its size fits into a u32.
        let used = header.used_bytes() as u32;
        let range = match self.window.fetch(at, used, true) {
            Fetched::Ask { offset_bytes, len_bytes } => {
                return Some(LogStep::Read { offset_bytes, len_bytes });
            }
            Fetched::Missing => return self.stop(EndReason::Torn),
            Fetched::Ready(range) => range,
        };
        self.durable_timestamp = self.durable_timestamp.max(header.durable_timestamp);
        let payload = range.end - header.payload_bytes as usize..range.end;
        if crc_fast::crc32_iscsi(&self.window.bytes()[payload.clone()]) != header.payload_sum {
            return self.stop(EndReason::Torn);
        }
        if self.skipping {
            let skipped = header.first_record.unwrap_or(header.payload_bytes);
            self.skipping = header.first_record.is_none();
            self.payload = payload.start + skipped as usize..payload.end;
            self.lsn = lsn + u64::from(skipped);
        } else if self.partial.is_empty() != (header.first_record == Some(0)) {
            self.state =
                State::Tail(EndReason::Damaged("a record begins inside another record"), at);
            return None;
        } else {
            self.payload = payload;
        }
        let end_lsn = lsn + u64::from(header.payload_bytes);
        let len = geometry.blocks_of(used.into()) as u32;
        let from = if at == geometry.block_bytes { 0 } else { at };
        self.in_doubt.retain(|chunk| chunk.end_lsn > header.durable_lsn);
        self.in_doubt.push(InDoubt {
            offset_bytes: self.position.segment_offset_bytes + u64::from(from),
            len_bytes: at - from + len,
            end_lsn,
        });
        self.position.lsn = end_lsn;
        self.position.chunk_sequence = chunk_sequence.wrapping_add(1);
        self.position.at_bytes = at + len;
        None
    }

    fn stop(&mut self, reason: EndReason) -> Option<LogStep> {
        self.state = State::Peek(reason);
        None
    }

    fn parse(&mut self) -> Parsed {
        let payload = &self.window.bytes()[self.payload.clone()];
        if self.partial.is_empty() {
            match record_bytes(payload) {
                Some(Err(what)) => return Parsed::Damaged(what),
                Some(Ok(len)) if len <= payload.len() => {
                    let range = self.payload.start..self.payload.start + len;
                    let bytes = &self.window.bytes()[range.clone()];
                    match check(bytes, self.timestamp, self.in_parts) {
                        Err(what) => return Parsed::Damaged(what),
                        Ok(checked) => (self.timestamp, self.in_parts) = checked,
                    }
                    self.payload.start = range.end;
                    self.lsn += len as u64;
                    self.found = Found::Window(range);
                    return Parsed::Record;
                }
                _ => {
                    // The rest of the record comes with the next chunk.
                    self.partial.extend_from_slice(payload);
                    self.payload.start = self.payload.end;
                    return Parsed::Nothing;
                }
            }
        }
        // First take the bytes of the length, then as many as it says, up to the end of the chunk.
        let length_len = 4usize.saturating_sub(self.partial.len()).min(payload.len());
        let (length, payload) = payload.split_at(length_len);
        self.partial.extend_from_slice(length);
        self.payload.start += length_len;
        let len = match record_bytes(&self.partial) {
            None => return Parsed::Nothing,
            Some(Err(what)) => return Parsed::Damaged(what),
            Some(Ok(len)) => len,
        };
        let rest = (len - self.partial.len()).min(payload.len());
        self.partial.extend_from_slice(&payload[..rest]);
        self.payload.start += rest;
        if self.partial.len() < len {
            return Parsed::Nothing;
        }
        match check(&self.partial, self.timestamp, self.in_parts) {
            Err(what) => return Parsed::Damaged(what),
            Ok(checked) => (self.timestamp, self.in_parts) = checked,
        }
        self.lsn += len as u64;
        self.found = Found::Partial;
        Parsed::Record
    }

    /// Continues in the next segment, if the log does.
    fn peek(&mut self, reason: EndReason) -> Option<LogStep> {
        let Some(next) = self.next_offset_bytes else {
            self.state = State::Tail(reason, self.position.at_bytes);
            return None;
        };
        self.window.turn_to(next);
        let LogPosition { geometry, segment_sequence, chunk_sequence, lsn, .. } = self.position;
        let header = match self.window.fetch(0, geometry.content_bytes(), true) {
            Fetched::Ask { offset_bytes, len_bytes } => {
                return Some(LogStep::Read { offset_bytes, len_bytes });
            }
            Fetched::Missing => None,
            Fetched::Ready(range) => {
                SegmentHeader::decode(&self.window.bytes()[range], self.identity, next).filter(
                    |header| {
                        header.sequence == segment_sequence.wrapping_add(1)
                            && header.first_chunk == chunk_sequence
                            && header.lsn == lsn
                            && header.geometry == geometry
                    },
                )
            }
        };
        if let Some(header) = header {
            self.position.segment_offset_bytes = next;
            self.position.segment_sequence = segment_sequence.wrapping_add(1);
            self.position.at_bytes = geometry.block_bytes;
            self.next_offset_bytes = Some(header.next_offset_bytes);
            self.segments.push(next);
            self.state = State::Chunks;
        } else {
            self.state = State::Tail(reason, self.position.at_bytes);
        }
        None
    }

    /// Looks after the end, block by block, for chunks of this log that say that more of it was
    /// durable.
    fn tail(&mut self, reason: EndReason, from: u32, in_next: bool) -> Option<LogStep> {
        let geometry = self.position.geometry;
        let base = match (in_next, self.next_offset_bytes) {
            (true, Some(next)) => next,
            _ => self.position.segment_offset_bytes,
        };
        self.window.turn_to(base);
        let sequence = self.position.segment_sequence.wrapping_add(in_next.into());
        // The first part of a record that is cut off is valid; a record with invalid content is
        // not.
        let cut = !self.partial.is_empty() && !matches!(reason, EndReason::Damaged(_));
        let end_lsn = if cut { self.position.lsn } else { self.lsn };
        let mut at = from;
        let mut lost_to_lsn = None;
        while at < geometry.segment_bytes && lost_to_lsn.is_none() {
            let range = match self.window.fetch(at, geometry.content_bytes(), true) {
                Fetched::Ask { offset_bytes, len_bytes } => {
                    self.state =
                        if in_next { State::TailNext(reason, at) } else { State::Tail(reason, at) };
                    return Some(LogStep::Read { offset_bytes, len_bytes });
                }
                Fetched::Missing => break,
                Fetched::Ready(range) => range,
            };
            let block = &self.window.bytes()[range];
            let chunk = ChunkHeader::decode(block, self.identity)
                .filter(|chunk| chunk.segment_sequence == sequence)
                .map(|chunk| {
                    self.durable_timestamp = self.durable_timestamp.max(chunk.durable_timestamp);
                    chunk.durable_lsn
                });
            let segment = SegmentHeader::decode(block, self.identity, base)
                .filter(|segment| at == 0 && segment.sequence == sequence)
                .map(|segment| segment.durable_lsn);
            lost_to_lsn = chunk.or(segment).filter(|durable| *durable > end_lsn);
            at += geometry.block_bytes;
        }
        if lost_to_lsn.is_none() && !in_next && self.next_offset_bytes.is_some() {
            self.state = State::TailNext(reason, 0);
            return None;
        }
        self.end = Some(LogEnd {
            position: self.position,
            lsn: end_lsn,
            timestamp: self
                .position
                .timestamp_max
                .map_or(self.timestamp, |last| last.min(self.timestamp)),
            reason,
            lost_to_lsn,
            durable_timestamp: self.durable_timestamp,
        });
        self.state = State::Ended;
        None
    }
}

/// Checks that the bytes are a record that can follow the commit `timestamp`, and a part of the
/// commit `in_parts`. Returns the same of the record.
fn check(
    bytes: &[u8],
    timestamp: u64,
    in_parts: Option<u64>,
) -> Result<(u64, Option<u64>), &'static str> {
    let record = Record::decode(bytes)?;
    if record.timestamp <= timestamp {
        return Err("timestamps do not rise");
    }
    if in_parts.is_some_and(|of| of != record.timestamp) {
        return Err("the last part of a commit is missing");
    }
    match record.continues {
        true => Ok((timestamp, Some(record.timestamp))),
        false => Ok((record.timestamp, None)),
    }
}
