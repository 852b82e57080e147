//! The records of several logs in the order of their timestamps.
//!
//! A commit was acknowledged only if all timestamps up to its own were durable. The valid records
//! therefore end before the first timestamp that is in no log; later records were never
//! acknowledged. A commit in parts counts if its last part is there; its parts then come one after
//! the other, with the same timestamp.

use super::reader::{LogReader, LogStep};
use super::record::Record;

/// The next step of a merge: it needs bytes, has a record, or is at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeStep {
    /// The caller must read these bytes and pass them to [`LogMerge::give`]. Each log asks for its
    /// own bytes, so keep calling for the next step meanwhile.
    Read {
        log: usize,
        /// The address on the device in bytes.
        offset_bytes: u64,
        len_bytes: u32,
    },
    /// The merge cannot continue until requested bytes are given.
    Wait,
    /// The next record is available: [`LogMerge::record`].
    Record,
    /// There are no more records: [`LogMerge::end`].
    End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeEnd {
    /// The first timestamp that is in no log, which is the next one to be given out.
    pub next_timestamp: u64,
    /// The number of records that were returned.
    pub taken: u64,
    /// The number of records before the first timestamp that was asked for.
    pub skipped: u64,
    /// The number of records after the gap, which belong to unacknowledged commits.
    pub dropped: u64,
    /// The timestamp up to which all commits were durable, according to any of the logs; 0 if no
    /// log says.
    pub durable_timestamp: u64,
    /// Whether a log says that more of it was durable than was found.
    pub lost: bool,
}

impl MergeEnd {
    /// Whether data that was once durable is missing. A crash alone leaves no such logs.
    pub fn is_damaged(&self) -> bool {
        self.lost || self.durable_timestamp >= self.next_timestamp
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Unknown,
    Asked,
    Timestamp(u64),
    Ended,
}

/// The parts of a log's next commit.
#[derive(Clone, Debug)]
enum Parts {
    /// The next record is a whole commit, as far as is known.
    None,
    /// The last part is being looked for. The reader is at the first one.
    LookedFor(Box<LogReader>),
    /// The last part is there: all of them count.
    Found,
}

#[derive(Clone, Debug)]
struct Log {
    reader: LogReader,
    head: Head,
    parts: Parts,
}

#[derive(Clone, Debug)]
pub struct LogMerge {
    logs: Vec<Log>,
    /// The log whose record was returned last.
    current: Option<usize>,
    /// Whether some log has a greater timestamp and none has the next one. The rest is then only
    /// counted.
    gap: bool,
    end: MergeEnd,
    over: bool,
}

impl LogMerge {
    /// Merges the records of these logs, from `first_timestamp` on.
    pub fn new(readers: impl IntoIterator<Item = LogReader>, first_timestamp: u64) -> Self {
        let log = |reader| Log { reader, head: Head::Unknown, parts: Parts::None };
        let logs: Vec<_> = readers.into_iter().map(log).collect();
        // If a later incarnation ended a log, all commits before that point were there.
        let durable_timestamp = logs.iter().filter_map(|log| log.reader.timestamp_max()).max();
        Self {
            logs,
            current: None,
            gap: false,
            end: MergeEnd {
                next_timestamp: first_timestamp,
                durable_timestamp: durable_timestamp.unwrap_or_default(),
                ..MergeEnd::default()
            },
            over: false,
        }
    }

    /// Returns a reader of the same logs that continues at this position. It asks again for bytes
    /// that this one asked for and did not get.
    pub fn rest(&self) -> Self {
        let mut here = self.clone();
        for Log { head, .. } in &mut here.logs {
            if *head == Head::Asked {
                *head = Head::Unknown;
            }
        }
        here
    }

    /// Continues to the next record, or returns the bytes needed for it. The previous record is no
    /// longer available.
    pub fn advance(&mut self) -> MergeStep {
        if let Some(current) = self.current.take() {
            self.logs[current].head = Head::Unknown;
        }
        loop {
            let (mut waiting, mut ahead) = (false, false);
            for (log, Log { reader, head, parts }) in self.logs.iter_mut().enumerate() {
                while *head == Head::Unknown {
                    match reader.advance() {
                        LogStep::Read { offset_bytes, len_bytes } => {
                            *head = Head::Asked;
                            return MergeStep::Read { log, offset_bytes, len_bytes };
                        }
                        LogStep::End => {
                            *head = Head::Ended;
                            // A commit counts only if its last part is there.
                            *parts = Parts::None;
                            if let Some(end) = reader.end() {
                                self.end.durable_timestamp =
                                    self.end.durable_timestamp.max(end.durable_timestamp);
                                self.end.lost |= end.lost_to_lsn.is_some();
                            }
                        }
                        LogStep::Record => {
                            let (timestamp, continues) = reader
                                .record()
                                .map_or((0, false), |record| (record.timestamp, record.continues));
                            if reader.is_past(timestamp) {
                                continue;
                            }
                            if timestamp < self.end.next_timestamp {
                                self.end.skipped += u64::from(!continues);
                                continue;
                            }
                            if self.gap {
                                self.end.dropped += u64::from(!continues);
                                continue;
                            }
                            match (&*parts, continues) {
                                (Parts::None, true) => {
                                    *parts = Parts::LookedFor(Box::new(reader.clone()));
                                    continue;
                                }
                                (Parts::LookedFor(_), true) => continue,
                                (Parts::LookedFor(_), false) => {
                                    let looked_for = std::mem::replace(parts, Parts::Found);
                                    if let Parts::LookedFor(first) = looked_for {
                                        *reader = *first;
                                    }
                                }
                                (Parts::Found, false) => *parts = Parts::None,
                                (Parts::None, false) | (Parts::Found, true) => {}
                            }
                            *head = Head::Timestamp(timestamp);
                        }
                    }
                }
                match *head {
                    Head::Timestamp(timestamp) if timestamp == self.end.next_timestamp => {
                        self.current = Some(log);
                        if reader.record().is_none_or(|record| !record.continues) {
                            self.end.next_timestamp += 1;
                            self.end.taken += 1;
                        }
                        return MergeStep::Record;
                    }
                    Head::Timestamp(_) => ahead = true,
                    Head::Asked => waiting = true,
                    Head::Unknown | Head::Ended => (),
                }
            }
            if waiting {
                return MergeStep::Wait;
            }
            if !ahead {
                self.over = true;
                return MergeStep::End;
            }
            self.gap = true;
            for Log { reader, head, .. } in &mut self.logs {
                if let Head::Timestamp(_) = head {
                    let is_part = reader.record().is_some_and(|record| record.continues);
                    self.end.dropped += u64::from(!is_part);
                    *head = Head::Unknown;
                }
            }
        }
    }

    /// Gives log `log` the bytes that it asked for; see [`LogReader::give`].
    pub fn give(&mut self, log: usize, bytes: &[u8]) {
        if let Some(Log { reader, head, .. }) = self.logs.get_mut(log)
            && *head == Head::Asked
        {
            reader.give(bytes);
            *head = Head::Unknown;
        }
    }

    pub fn record(&self) -> Option<Record<'_>> {
        self.logs[self.current?].reader.record()
    }

    /// Returns the log that the current record is in, and the position in that log's byte stream at
    /// which the record ends.
    pub fn place(&self) -> Option<(usize, u64)> {
        let log = self.current?;
        Some((log, self.logs[log].reader.lsn()))
    }

    /// Returns the address of the segment of log `log` that is being read, and that of the segment
    /// after it.
    pub fn link(&self, log: usize) -> Option<(u64, u64)> {
        self.logs.get(log)?.reader.link()
    }

    /// Returns the summary of the logs, once all records were read.
    pub fn end(&self) -> Option<MergeEnd> {
        self.over.then_some(self.end)
    }

    /// Returns the logs, in the order in which they were given.
    pub fn readers(&self) -> impl Iterator<Item = &LogReader> {
        self.logs.iter().map(|log| &log.reader)
    }
}
