//! The changes in the logs, gathered and cut into parts that can be made concurrently.
//!
//! Invariants: all changes of a key in a gathering are in the same part. In a sorted part they
//! follow one another in the order of their commits.

use std::cmp::Ordering;

use qpair_format::log::{Operation, Record};
use qpair_format::page::shared_prefix_len;

/// The number of changes in a part at least, unless there are fewer in all.
const PART_CHANGES_MIN: usize = 64;
/// The number of keys that are sampled for each part, to find where to cut.
const SAMPLES_PER_PART: usize = 8;

/// The number of leading bytes that all keys of a part must share before it is worthwhile to
/// compare the bytes after the common prefix.
const ALIKE_BYTES: u32 = 3;

/// The kind of a key's value after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Value,
    Large,
    Nothing,
}

/// A change of one key; its bytes are in the gathering's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Redo {
    /// The first bytes of the key, as a number with the same order.
    head: u64,
    pub(super) timestamp: u64,
    pub(super) tree: u32,
    /// The offset of the key's bytes; the value follows them.
    at: u32,
    value_len: u32,
    key_len: u16,
    pub(super) after: After,
}

impl Redo {
    pub(super) fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let at = self.at as usize;
        &bytes[at..at + usize::from(self.key_len)]
    }

    /// Returns the value, or its descriptor if it is large.
    pub(super) fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let at = self.at as usize + usize::from(self.key_len);
        &bytes[at..at + self.value_len as usize]
    }

    pub(super) fn is_of_same_key(&self, other: &Self, bytes: &[u8]) -> bool {
        self.order_of_keys(other, bytes).is_eq()
    }

    #[inline]
    fn order_of_keys(&self, other: &Self, bytes: &[u8]) -> Ordering {
        let order = (self.tree, self.head).cmp(&(other.tree, other.head));
        order.then_with(|| match self.key_len.max(other.key_len) {
            // The head has all bytes of the key, followed by zeroes.
            0..=8 => self.key_len.cmp(&other.key_len),
            _ => self.key(bytes).cmp(other.key(bytes)),
        })
    }
}

/// Changes in the order of their commits.
#[derive(Default)]
pub(super) struct Gathered {
    changes: Vec<Redo>,
    bytes: Vec<u8>,
    /// Whether the rest of the last commit is in the next gathering.
    is_cut: bool,
}

pub(super) enum Step {
    Changes(Gathered),
    CreateTable(u32, String),
    DropTable(u32),
    RenameTable(u32, String),
}

/// The changes that the first pass over the logs keeps, so that this part is not read again.
pub(super) struct Kept {
    steps: Vec<Step>,
    /// The memory that the steps take, in bytes.
    steps_bytes: usize,
    /// The changes after these steps.
    gathered: Gathered,
    /// The approximate limit on the memory, in bytes.
    bytes_max: usize,
    full: bool,
    record_bytes: u64,
}

impl Kept {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            steps: Vec::new(),
            steps_bytes: 0,
            gathered: Gathered::default(),
            bytes_max,
            full: false,
            record_bytes: 0,
        }
    }

    /// Adds a commit if there is room; returns whether it was the last one that fits.
    pub(super) fn take(&mut self, record: &Record<'_>) -> bool {
        if self.full {
            return false;
        }
        self.record_bytes += record.bytes() as u64;
        for operation in record.operations() {
            match operation {
                Operation::CreateTable { tree, name } => {
                    self.add(Step::CreateTable(tree, name.to_owned()));
                }
                Operation::DropTable { tree } => self.add(Step::DropTable(tree)),
                Operation::RenameTable { tree, name } => {
                    self.add(Step::RenameTable(tree, name.to_owned()));
                }
                change => self.gathered.take(record.timestamp, change),
            }
        }
        self.gathered.is_cut = record.continues;
        self.full = self.steps_bytes + self.gathered.size_bytes() >= self.bytes_max;
        self.full
    }

    fn add(&mut self, step: Step) {
        self.steps_bytes += self.gathered.size_bytes() + 2 * size_of::<Step>();
        self.steps.push(Step::Changes(std::mem::take(&mut self.gathered)));
        self.steps.push(step);
    }

    /// Returns all steps, in order, and the size of the log records that they come from.
    pub(super) fn into_steps(mut self) -> (Vec<Step>, u64) {
        self.steps.push(Step::Changes(self.gathered));
        (self.steps, self.record_bytes)
    }
}

impl Gathered {
    /// Creates an empty gathering that reuses the memory of an earlier one.
    pub(super) fn reusing(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { changes: Vec::new(), bytes, is_cut: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len() + self.changes.len() * size_of::<Redo>()
    }

    /// Adds a change of a key, which comes after all changes so far.
    pub(super) fn take(&mut self, timestamp: u64, change: Operation<'_>) {
        match change {
            Operation::Put { tree, key, value } => {
                self.push(timestamp, tree, key, After::Value, value);
            }
            Operation::PutLarge { tree, key, descriptor } => {
                self.push(timestamp, tree, key, After::Large, &descriptor);
            }
            Operation::Delete { tree, key } => self.push(timestamp, tree, key, After::Nothing, &[]),
            Operation::CreateTable { .. }
            | Operation::DropTable { .. }
            | Operation::RenameTable { .. } => {}
        }
    }

    /// Adds a change, which comes after all changes so far. Offsets have 32 bits: the caller keeps
    /// the gathering smaller than that.
    fn push(&mut self, timestamp: u64, tree: u32, key: &[u8], after: After, value: &[u8]) {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.changes.push(Redo {
            head: head_of(key),
            timestamp,
            tree,
            at,
            value_len: value.len() as u32,
            key_len: key.len() as u16,
            after,
        });
    }

    /// Notes whether the rest of the last commit is still to come.
    pub(super) fn set_cut(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
    }

    /// Returns the last commit of which all changes are among these or earlier ones.
    fn last_whole(&self) -> Option<u64> {
        self.changes.last().map(|last| last.timestamp - u64::from(self.is_cut))
    }

    /// Cuts the changes between commits, into stages of about `changes_max` changes, each with the
    /// last whole commit up to its end; returns also the bytes of their keys and values.
    pub(super) fn into_stages(self, changes_max: usize) -> (Vec<(u64, Vec<Redo>)>, Vec<u8>) {
        let last = self.last_whole();
        let Self { changes, bytes, .. } = self;
        let mut stages: Vec<Vec<Redo>> = Vec::new();
        for commit in changes.chunk_by(|a, b| a.timestamp == b.timestamp) {
            match stages.last_mut() {
                Some(stage) if stage.len() + commit.len() <= changes_max => {
                    stage.extend_from_slice(commit);
                }
                _ => stages.push(commit.to_vec()),
            }
        }
        let whole = |stage: Vec<Redo>| {
            let timestamp = stage.last().map_or(0, |last| last.timestamp);
            (last.map_or(timestamp, |last| timestamp.min(last)), stage)
        };
        (stages.into_iter().map(whole).collect(), bytes)
    }

    /// Cuts the changes into at most `most` parts by key; returns also the bytes of their keys and
    /// values.
    pub(super) fn cut(self, most: usize) -> (Vec<Vec<Redo>>, Vec<u8>) {
        let Self { changes, bytes, .. } = self;
        let count = most.min(changes.len() / PART_CHANGES_MIN).max(1);
        if count == 1 {
            return (vec![changes], bytes);
        }
        let step = (changes.len() / (count * SAMPLES_PER_PART)).max(1);
        let mut samples: Vec<Redo> = changes.iter().step_by(step).copied().collect();
        samples.sort_unstable_by(|a, b| a.order_of_keys(b, &bytes));
        let mut cuts: Vec<Redo> =
            (1..count).map(|part| samples[part * samples.len() / count]).collect();
        cuts.dedup_by(|a, b| a.is_of_same_key(b, &bytes));
        let room = changes.len() / (cuts.len() + 1) * 5 / 4;
        let mut parts: Vec<Vec<Redo>> =
            (0..=cuts.len()).map(|_| Vec::with_capacity(room)).collect();
        for change in changes {
            let part = cuts.partition_point(|cut| cut.order_of_keys(&change, &bytes).is_le());
            parts[part].push(change);
        }
        (parts, bytes)
    }
}

/// Returns the first bytes of a key, as a number with the same order.
#[inline]
fn head_of(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(head)
}

/// Sorts a part's changes by key, so that each leaf is visited once.
pub(super) fn sort(part: &mut [Redo], bytes: &[u8]) {
    look_behind_prefix(part, bytes);
    part.sort_unstable_by(|a, b| a.order_of_keys(b, bytes).then(a.at.cmp(&b.at)));
}

/// If all keys of a part have a common prefix, takes the heads from the bytes after it, which
/// differ sooner.
fn look_behind_prefix(part: &mut [Redo], bytes: &[u8]) {
    let Some(first) = part.first().copied() else { return };
    let differing = part.iter().fold(0, |differing, redo| differing | (redo.head ^ first.head));
    if differing.leading_zeros() / 8 < ALIKE_BYTES
        || part.iter().any(|redo| redo.tree != first.tree)
    {
        return;
    }
    let prefix = first.key(bytes);
    let shared = part
        .iter()
        .fold(prefix.len(), |shared, redo| shared_prefix_len(&prefix[..shared], redo.key(bytes)));
    for redo in part {
        redo.head = head_of(&redo.key(bytes)[shared..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_all_changes_of_a_key_in_order() {
        let mut random = fastrand::Rng::with_seed(7);
        for (changes, keys) in [(0, 1), (10, 3), (5000, 1), (5000, 40), (20_000, 100_000)] {
            let mut gathered = Gathered::default();
            for timestamp in 0..changes {
                let key = random.u32(..keys).to_string();
                gathered.push(timestamp, random.u32(..2), key.as_bytes(), After::Value, b"v");
            }
            let (parts, bytes) = gathered.cut(16);
            assert!(parts.len() <= 16);
            let mut all = 0;
            let mut last: Option<Redo> = None;
            for mut part in parts {
                sort(&mut part, &bytes);
                all += part.len() as u64;
                for redo in part {
                    assert_eq!(redo.value(&bytes), b"v");
                    if let Some(last) = last {
                        let order = last.order_of_keys(&redo, &bytes);
                        assert!(
                            order.is_lt() || (order.is_eq() && last.timestamp < redo.timestamp)
                        );
                    }
                    last = Some(redo);
                }
            }
            assert_eq!(all, changes);
        }
    }
}
