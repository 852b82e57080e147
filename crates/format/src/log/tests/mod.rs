//! Logs on an emulated device: written records are read back, and of a broken log a prefix.

mod crash;
mod damage;
mod merging;
mod records;
mod round_trip;
mod speed;

use super::reader::LogStep;
use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owned {
    Put(u32, Vec<u8>, Vec<u8>),
    PutLarge(u32, Vec<u8>, [u8; 24]),
    Delete(u32, Vec<u8>),
    Create(u32, String),
    Drop(u32),
    Rename(u32, String),
}

impl Owned {
    fn of(operation: Operation<'_>) -> Self {
        match operation {
            Operation::Put { tree, key, value } => Self::Put(tree, key.to_vec(), value.to_vec()),
            Operation::PutLarge { tree, key, descriptor } => {
                Self::PutLarge(tree, key.to_vec(), descriptor)
            }
            Operation::Delete { tree, key } => Self::Delete(tree, key.to_vec()),
            Operation::CreateTable { tree, name } => Self::Create(tree, name.to_owned()),
            Operation::DropTable { tree } => Self::Drop(tree),
            Operation::RenameTable { tree, name } => Self::Rename(tree, name.to_owned()),
        }
    }

    fn as_operation(&self) -> Operation<'_> {
        match self {
            Self::Put(tree, key, value) => Operation::Put { tree: *tree, key, value },
            Self::PutLarge(tree, key, descriptor) => {
                Operation::PutLarge { tree: *tree, key, descriptor: *descriptor }
            }
            Self::Delete(tree, key) => Operation::Delete { tree: *tree, key },
            Self::Create(tree, name) => Operation::CreateTable { tree: *tree, name },
            Self::Drop(tree) => Operation::DropTable { tree: *tree },
            Self::Rename(tree, name) => Operation::RenameTable { tree: *tree, name },
        }
    }
}

pub(super) type Commit = (u64, Vec<Owned>);

pub(super) fn bytes(random: &mut fastrand::Rng, len_max: usize) -> Vec<u8> {
    let len = random.usize(..=len_max);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

pub(super) fn commit(random: &mut fastrand::Rng, timestamp: u64, value_max: usize) -> Commit {
    let operations = (0..random.usize(0..6))
        .map(|_| {
            let tree = random.u32(..);
            match random.u32(0..10) {
                0 => Owned::Delete(tree, bytes(random, 40)),
                1 => Owned::Create(tree, "täble".repeat(random.usize(1..5))),
                2 => Owned::Drop(tree),
                3 => Owned::PutLarge(tree, bytes(random, 40), [random.u8(..); 24]),
                4 => Owned::Rename(tree, "näme".repeat(random.usize(1..5))),
                _ => Owned::Put(tree, bytes(random, 40), bytes(random, value_max)),
            }
        })
        .collect();
    (timestamp, operations)
}

pub(super) struct Disk {
    pub(super) bytes: Vec<u8>,
    pub(super) geometry: LogGeometry,
    pub(super) next_free: u64,
}

pub(super) const STORE: [u8; 16] = [7, 1, 2, 3, 4, 5, 6, 9, 1, 2, 8, 4, 5, 6, 7, 8];

pub(super) fn identity(incarnation: u64, log: u16) -> LogIdentity {
    LogIdentity::new(STORE, incarnation, log)
}

impl Disk {
    pub(super) fn new(block_bytes: u32, segment_bytes: u32) -> Self {
        let geometry = LogGeometry { block_bytes, segment_bytes, tag_bytes: 0 };
        // The space before the log has other content.
        Self { bytes: Vec::new(), geometry, next_free: u64::from(block_bytes) * 3 }
    }

    pub(super) fn segment(&mut self) -> u64 {
        let offset = self.next_free;
        self.next_free += u64::from(self.geometry.segment_bytes);
        offset
    }

    pub(super) fn writer(&mut self, incarnation: u64, log: u16) -> LogWriter {
        let (current, next) = (self.segment(), self.segment());
        LogWriter::new(identity(incarnation, log), self.geometry, current, next).unwrap()
    }

    pub(super) fn write(
        &mut self,
        writer: &mut LogWriter,
        capacity: usize,
    ) -> Option<PlannedWrite> {
        while writer.needs_segment() {
            let segment = self.segment();
            writer.give_segment(segment);
        }
        let mut buffer = vec![0xee; capacity];
        let planned = writer.next_write(buffer.as_mut_slice())?;
        let at = planned.offset_bytes as usize;
        let len = planned.len_bytes as usize;
        assert!(planned.offset_bytes.is_multiple_of(self.geometry.block_bytes.into()));
        if self.bytes.len() < at + len {
            self.bytes.resize(at + len, 0);
        }
        self.bytes[at..at + len].copy_from_slice(&buffer[..len]);
        Some(planned)
    }

    pub(super) fn write_all(&mut self, writer: &mut LogWriter, capacity: usize) {
        while let Some(planned) = self.write(writer, capacity) {
            writer.complete(&planned);
        }
        assert_eq!(writer.pending_bytes(), 0);
        assert_eq!(writer.in_flight(), 0);
        assert_eq!(writer.durable_lsn(), writer.end_lsn());
        assert_eq!(writer.durable_timestamp(), writer.appended_timestamp());
    }

    pub(super) fn read(&self, start: LogPosition) -> (Vec<Commit>, LogEnd) {
        read(&self.bytes, start, 8192)
    }
}

pub(super) fn append(writer: &mut LogWriter, commit: &Commit) -> u64 {
    let encode = |record: &mut RecordBuilder<'_>| {
        commit.1.iter().for_each(|operation| record.push(operation.as_operation()));
    };
    writer.append(commit.0, encode).unwrap()
}

/// Appends a commit as a whole, or in parts, which may be empty.
pub(super) fn append_somehow(
    writer: &mut LogWriter,
    random: &mut fastrand::Rng,
    commit: &Commit,
) -> u64 {
    let (timestamp, mut rest) = (commit.0, commit.1.as_slice());
    for _ in 0..random.u32(0..8).saturating_sub(4) {
        let (part, later) = rest.split_at(random.usize(..=rest.len()));
        let end = writer.append_part(timestamp, |record| {
            part.iter().for_each(|operation| record.push(operation.as_operation()));
        });
        end.unwrap();
        rest = later;
    }
    append(writer, &(timestamp, rest.to_vec()))
}

/// Adds a record to the commits; parts of a commit are gathered in `parts` until the last one.
pub(super) fn gather(commits: &mut Vec<Commit>, parts: &mut Vec<Owned>, record: &Record<'_>) {
    let (timestamp, operations) = owned(record);
    parts.extend(operations);
    if !record.continues {
        commits.push((timestamp, std::mem::take(parts)));
    }
}

pub(super) fn part(bytes: &[u8], offset: u64, len: u32) -> &[u8] {
    let start = bytes.len().min(offset as usize);
    &bytes[start..bytes.len().min(start + len as usize)]
}

pub(super) fn owned(record: &Record<'_>) -> Commit {
    let operations: Vec<Owned> = record.operations().map(Owned::of).collect();
    assert_eq!(operations.len(), record.operation_count as usize);
    assert!(!describe(record).is_empty());
    (record.timestamp, operations)
}

pub(super) fn read(bytes: &[u8], start: LogPosition, at_once: u32) -> (Vec<Commit>, LogEnd) {
    let mut reader = LogReader::new(identity(0, 0).store, start, at_once);
    let (mut commits, mut parts) = (Vec::new(), Vec::new());
    loop {
        match reader.advance() {
            LogStep::Read { offset_bytes, len_bytes } => {
                let block = start.geometry.block_bytes;
                assert!(len_bytes > 0 && len_bytes <= at_once.max(block));
                assert!(
                    len_bytes.is_multiple_of(block) && offset_bytes.is_multiple_of(block.into())
                );
                reader.give(part(bytes, offset_bytes, len_bytes));
            }
            LogStep::Record => gather(&mut commits, &mut parts, &reader.record().unwrap()),
            LogStep::End => return (commits, reader.end().unwrap()),
        }
    }
}

/// A log whose chunks became durable one after the other, with the ends of its writes.
pub(super) struct Written {
    pub(super) disk: Disk,
    pub(super) start: LogPosition,
    pub(super) commits: Vec<Commit>,
    /// The ends of the commits in the byte stream.
    pub(super) ends: Vec<u64>,
    pub(super) writes: Vec<PlannedWrite>,
}

impl Written {
    /// Creates a log over several segments, with small commits and commits that the ends of chunks
    /// cut.
    pub(super) fn new(seed: u64, commit_count: u64) -> Self {
        Self::with(seed, commit_count, true)
    }

    /// Like `new`. If `flushed`, the writer knows that completed writes are durable.
    pub(super) fn with(seed: u64, commit_count: u64, flushed: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut disk = Disk::new(512, 512 * 5);
        let mut writer = disk.writer(seed, 0).flushed(flushed);
        let start = writer.position();
        let (mut commits, mut ends, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        for timestamp in 1..=commit_count {
            let value_max = if timestamp % 4 == 0 { 900 } else { 60 };
            let commit = commit(&mut random, timestamp, value_max);
            ends.push(append(&mut writer, &commit));
            commits.push(commit);
            if random.bool() || timestamp == commit_count {
                while let Some(planned) = disk.write(&mut writer, 2048) {
                    writer.complete(&planned);
                    writes.push(planned);
                }
            }
        }
        Self { disk, start, commits, ends, writes }
    }

    /// Returns the number of commits that end before a position in the byte stream.
    pub(super) fn before(&self, lsn: u64) -> usize {
        self.ends.iter().take_while(|end| **end <= lsn).count()
    }

    pub(super) fn read(&self, bytes: &[u8]) -> (usize, LogEnd) {
        let (found, end) = read(bytes, self.start, 4096);
        assert!(found.len() <= self.commits.len(), "more than was written: {end:?}");
        assert!(found[..] == self.commits[..found.len()], "no prefix: {end:?}");
        (found.len(), end)
    }
}
