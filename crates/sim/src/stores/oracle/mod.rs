//! The oracle: what the store may answer.
//!
//! - The base is the state at the beginning of a life of the store, known exactly: it was read from
//!   the store and found right.
//! - Every commit of the life is a record, made before the commit is asked for. It ends as
//!   acknowledged, as refused, or not at all; then it is in doubt, and may have happened or not,
//!   but not in part.
//! - Orders that are known: by timestamp where both have one; else a commit whose answer came
//!   before the other was asked for is the earlier one. The base is before all.

mod backups;
mod recovered;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};

use super::value::{Key, Value};
pub(crate) use backups::Backup;

pub(crate) type Verdict = Result<(), String>;

/// How far a commit got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Asked for; it is not known.
    Doubt,
    /// Refused: it did not happen.
    Refused,
    /// Acknowledged; survives a crash if `durable`.
    Done { timestamp: Option<u64>, durable: bool },
}

/// One transaction, or one change by itself.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Events so far when it began to read, when the commit was asked for, and when it ended.
    began: u64,
    asked: u64,
    ended: u64,
    /// The values it read that it had not written itself. Empty: the reads are not checked against
    /// other transactions.
    pub(crate) reads: Vec<(Key, Option<Value>)>,
    pub(crate) writes: BTreeMap<Key, Option<Value>>,
    pub(crate) serializable: bool,
    pub(crate) outcome: Outcome,
}

impl Record {
    fn timestamp(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Done { timestamp, .. } => timestamp,
            _ => None,
        }
    }

    /// Whether this record is known to precede another that writes the same key.
    fn is_before(&self, other: &Self) -> bool {
        match (self.timestamp(), other.timestamp()) {
            (Some(one), Some(another)) => one < another,
            _ => self.ended < other.asked,
        }
    }
}

/// A record's number in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordId(usize);

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    base: BTreeMap<Key, Value>,
    records: Vec<Record>,
    /// The record that wrote a value, by the value's number.
    written: BTreeMap<u64, usize>,
    events: u64,
    values: u64,
    backups: Vec<Backup>,
    /// All that any task ever asked to be there.
    ever: BTreeSet<(Key, Value)>,
}

impl Oracle {
    pub(crate) fn fresh_value(&mut self, len: u32) -> Value {
        self.values += 1;
        Value { id: self.values, len: len.max(Value::LEN_MIN) }
    }

    fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// Notes the moment before a transaction's first read.
    pub(crate) fn begins(&mut self) -> u64 {
        self.event()
    }

    pub(crate) fn asks(
        &mut self,
        began: u64,
        reads: Vec<(Key, Option<Value>)>,
        writes: BTreeMap<Key, Option<Value>>,
        serializable: bool,
    ) -> RecordId {
        let asked = self.event();
        let number = self.records.len();
        self.ever.extend(writes.iter().filter_map(|(key, value)| Some((*key, (*value)?))));
        self.written.extend(writes.values().flatten().map(|value| (value.id, number)));
        let (outcome, ended) = (Outcome::Doubt, u64::MAX);
        self.records.push(Record { began, asked, ended, reads, writes, serializable, outcome });
        RecordId(self.records.len() - 1)
    }

    pub(crate) fn ends(&mut self, record: RecordId, outcome: Outcome) {
        let ended = self.event();
        let record = &mut self.records[record.0];
        (record.ended, record.outcome) = (ended, outcome);
    }

    /// Notes that an acknowledged commit is durable by now.
    pub(crate) fn is_durable(&mut self, record: RecordId) {
        if let Outcome::Done { durable, .. } = &mut self.records[record.0].outcome {
            *durable = true;
        }
    }

    /// Notes that all that was acknowledged is durable: the store was closed.
    pub(crate) fn closed(&mut self) {
        self.settles(u64::MAX);
    }

    /// Notes that what was acknowledged before [`Oracle::begins`] gave this is durable: a
    /// checkpoint was made since.
    pub(crate) fn settles(&mut self, event: u64) {
        for record in self.records.iter_mut().filter(|record| record.ended < event) {
            if let Outcome::Done { durable, .. } = &mut record.outcome {
                *durable = true;
            }
        }
    }

    /// Whether a key may have had this value at some time.
    pub(crate) fn was_ever(&self, key: Key, value: Value) -> bool {
        self.ever.contains(&(key, value))
    }

    /// Notes that a key may have had this value at some time, though the oracle was not asked.
    pub(crate) fn had(&mut self, key: Key, value: Value) {
        self.ever.insert((key, value));
    }

    /// The value of a key at the beginning of the life.
    pub(crate) fn base(&self, key: Key) -> Option<Value> {
        self.base.get(&key).copied()
    }

    /// Commits acknowledged in this life.
    pub(crate) fn commits(&self) -> u64 {
        let done = |record: &&Record| {
            matches!(record.outcome, Outcome::Done { .. }) && !record.writes.is_empty()
        };
        self.records.iter().filter(done).count() as u64
    }

    fn forget_records(&mut self) {
        self.records.clear();
        self.written.clear();
        self.backups.clear();
    }

    fn writer_of(&self, key: Key, value: Value) -> Option<Writer> {
        if self.base.get(&key) == Some(&value) {
            return Some(Writer::Base);
        }
        let number = *self.written.get(&value.id)?;
        let wrote = self.records[number].writes.get(&key) == Some(&Some(value));
        wrote.then_some(Writer::Record(number))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Base,
    Record(usize),
}
