//! The oracle: decides which answers of the store are permitted.
//!
//! - The base is the state at the beginning of an incarnation of the store. It is known exactly: it
//!   was read from the store and found right.
//! - Every commit of the incarnation has a record, made before the commit is requested. The commit
//!   ends as acknowledged or as refused. If it does not end, it is in doubt: it may have happened
//!   as a whole or not at all.
//! - Known orders: if both commits have a timestamp, the timestamps order them. Otherwise a commit
//!   whose answer came before the other was requested is the earlier one. The base precedes all
//!   commits.

mod backups;
mod recovered;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};

use super::value::{Key, Value};
pub(crate) use backups::Backup;

pub(crate) type Verdict = Result<(), String>;

/// The progress of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The commit was requested, and its outcome is not known.
    Doubt,
    /// The commit was refused: it did not happen.
    Refused,
    /// The commit was acknowledged; it survives a crash if `durable`.
    Done { timestamp: Option<u64>, durable: bool },
}

/// One transaction, or one single change.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The numbers of events when the transaction began to read, when its commit was requested, and
    /// when it ended.
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
    /// Every value that any task ever tried to write.
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

    /// Notes that all acknowledged commits are durable, because the store was closed.
    pub(crate) fn closed(&mut self) {
        self.settles(u64::MAX);
    }

    /// Notes that commits acknowledged before [`Oracle::begins`] returned `event` are durable,
    /// because a checkpoint was made since.
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

    /// Notes that a key may have had this value at some time, although no commit of the oracle
    /// wrote it.
    pub(crate) fn had(&mut self, key: Key, value: Value) {
        self.ever.insert((key, value));
    }

    /// Returns the value of a key at the beginning of the incarnation.
    pub(crate) fn base(&self, key: Key) -> Option<Value> {
        self.base.get(&key).copied()
    }

    /// Returns the number of commits acknowledged in this incarnation.
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
