//! Checks that a state found after a crash is permitted.
//!
//! These commits must have happened: durable ones, those with smaller timestamps, those whose
//! values are found, and those whose values any of them has read. For each key the value found must
//! then be the last of one of these commits, or the base's. A commit in doubt that would only show
//! by a deletion is assumed where nothing else explains an absence. If a commit happened, all
//! commits acknowledged before it was requested happened too: no commit is lost from the middle.
//!
//! For a table that does not exist, the only check is whether it may be gone.
//!
//! Not checked: cycles of orders over several keys between commits in doubt, which have no
//! timestamps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Oracle, Outcome, Verdict, Writer};
use crate::stores::catalog::{CATALOG, TEMPORARY};
use crate::stores::value::{Key, Value};

/// The maximum number of guesses at deletions in doubt; needing more would be a fault of the
/// simulation.
const GUESSES_MAX: u32 = 4096;

/// Why a commit must have happened.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "its debug form is read, by people")]
pub(super) enum Reason {
    Durable,
    /// The commit was acknowledged before this other commit, which happened, was requested.
    Earlier(usize),
    /// The commit's value was found in this key.
    Seen(Key),
    /// A commit that happened has this greater timestamp.
    Before(u64),
    /// This commit, which happened, has read from it.
    ReadBy(usize),
    /// Nothing else explains that this key is absent.
    Absent(Key),
}

pub(super) type Happened = BTreeMap<usize, Reason>;

/// The assumptions and exceptions for judging a state.
#[derive(Debug, Default)]
pub(super) struct Terms {
    /// The commits that must have happened, for reasons other than the state.
    pub(super) happened: Happened,
    /// The commits that cannot have happened.
    pub(super) excluded: BTreeSet<usize>,
    /// Keys whose values are unknown.
    pub(super) unknown: BTreeSet<Key>,
}

impl Oracle {
    /// Compares the state found in a reopened store with the permitted states, and continues from
    /// it.
    pub(crate) fn recovered(&mut self, found: &BTreeMap<Key, Value>) -> Verdict {
        self.judge(found, false)?;
        self.base.clone_from(found);
        self.forget_records();
        Ok(())
    }

    /// Compares the state of an idle store with the permitted states: no acknowledged commit may be
    /// lost.
    pub(crate) fn at_rest(&self, found: &BTreeMap<Key, Value>) -> Verdict {
        self.judge(found, true)
    }

    fn judge(&self, found: &BTreeMap<Key, Value>, at_rest: bool) -> Verdict {
        let happened = self.acknowledged(|durable| durable || at_rest);
        self.judge_on(found, Terms { happened, ..Terms::default() })
    }

    /// Compares the readable data of a damaged store with the permitted data.
    pub(crate) fn damaged(&self, found: &BTreeMap<Key, Value>, unknown: BTreeSet<Key>) -> Verdict {
        let happened = self.acknowledged(|durable| durable);
        self.judge_on(found, Terms { happened, unknown, ..Terms::default() })
    }

    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        let mut keys: BTreeSet<Key> = self.base.keys().copied().collect();
        keys.extend(self.records.iter().flat_map(|record| record.writes.keys()));
        keys
    }

    /// Returns the acknowledged commits whose durability `wanted` accepts. The data that a commit
    /// without writes has read is durable as well.
    pub(super) fn acknowledged(&self, wanted: impl Fn(bool) -> bool) -> Happened {
        let mut happened = Happened::new();
        for (number, record) in self.records.iter().enumerate() {
            if let Outcome::Done { durable, .. } = record.outcome
                && wanted(durable)
            {
                happened.insert(number, Reason::Durable);
            }
        }
        happened
    }

    /// Compares a state with the states that these terms permit.
    pub(super) fn judge_on(&self, found: &BTreeMap<Key, Value>, mut terms: Terms) -> Verdict {
        let mut happened = std::mem::take(&mut terms.happened);
        for (key, value) in found {
            match self.writer_of(*key, *value) {
                None => return Err(format!("{key:?} is {value:?}, which nobody wrote there")),
                Some(Writer::Base) => {}
                Some(Writer::Record(number)) => {
                    happened.entry(number).or_insert(Reason::Seen(*key));
                }
            }
        }
        self.explain(found, happened, &terms, &mut 0)
    }

    /// Adds the commits that must have happened if these have.
    fn close(&self, happened: &mut Happened, terms: &Terms) -> Verdict {
        loop {
            let before = happened.len();
            let wrote = |number: &&usize| !self.records[**number].writes.is_empty();
            let writers = happened.keys().filter(wrote);
            // A transaction that only read proves the durability of the data that it found, which
            // may be older than its snapshot.
            let timestamp = writers.filter_map(|number| self.records[*number].timestamp()).max();
            for (number, record) in self.records.iter().enumerate() {
                // A transaction that only read changes no state, and may have read a sorted load
                // that is younger than its snapshot.
                if let (Some(own), Some(timestamp)) = (record.timestamp(), timestamp)
                    && own <= timestamp
                    && !record.writes.is_empty()
                {
                    happened.entry(number).or_insert(Reason::Before(timestamp));
                }
            }
            let writers =
                happened.keys().filter(|number| !self.records[**number].writes.is_empty());
            let last = writers.copied().max_by_key(|number| self.records[*number].asked);
            for (number, record) in self.records.iter().enumerate() {
                if let Some(last) = last
                    && record.ended < self.records[last].asked
                    && matches!(record.outcome, Outcome::Done { .. })
                    && !record.writes.is_empty()
                {
                    happened.entry(number).or_insert(Reason::Earlier(last));
                }
            }
            for number in happened.keys().copied().collect::<Vec<_>>() {
                let record = &self.records[number];
                for (key, value) in &record.reads {
                    // A sorted load can be read before it is durable.
                    if record.writes.is_empty() && key.table >= TEMPORARY {
                        continue;
                    }
                    if let Some(value) = value
                        && let Some(Writer::Record(writer)) = self.writer_of(*key, *value)
                    {
                        happened.entry(writer).or_insert(Reason::ReadBy(number));
                    }
                }
            }
            if let Some(number) =
                happened.keys().find(|number| self.records[**number].outcome == Outcome::Refused)
            {
                return Err(format!("a refused commit happened: {:?}", self.records[*number]));
            }
            if let Some((number, reason)) =
                happened.iter().find(|(number, _)| terms.excluded.contains(number))
            {
                let record = &self.records[*number];
                return Err(format!("too new, but {reason:?}: {record:?}"));
            }
            if happened.len() == before {
                return Ok(());
            }
        }
    }

    /// Checks that these commits, and further ones in doubt if necessary, explain the data found.
    fn explain(
        &self,
        found: &BTreeMap<Key, Value>,
        mut happened: Happened,
        terms: &Terms,
        guesses: &mut u32,
    ) -> Verdict {
        self.close(&mut happened, terms)?;
        let mut keys = self.keys();
        keys.retain(|key| !terms.unknown.contains(key));
        let there: BTreeSet<u32> =
            found.iter().filter(|(key, _)| key.table == CATALOG).map(|(_, v)| v.len).collect();
        for key in keys {
            let gone =
                (TEMPORARY..CATALOG).contains(&key.table) && !there.contains(&u32::from(key.table));
            if gone {
                continue;
            }
            let value = found.get(&key).copied();
            let Err(why) = self.explain_key(key, value, &happened) else { continue };
            let why = format!("{why}{}", self.evidence(key, found, &happened));
            if value.is_some() {
                return Err(why);
            }
            for (number, record) in self.records.iter().enumerate() {
                let deletes = record.writes.get(&key) == Some(&None);
                if !deletes
                    || happened.contains_key(&number)
                    || record.outcome == Outcome::Refused
                    || terms.excluded.contains(&number)
                {
                    continue;
                }
                *guesses += 1;
                if *guesses > GUESSES_MAX {
                    return Err(format!("too many guesses: {why}"));
                }
                let mut more = happened.clone();
                more.insert(number, Reason::Absent(key));
                if self.explain(found, more, terms, guesses).is_ok() {
                    return Ok(());
                }
            }
            return Err(why);
        }
        Ok(())
    }

    fn evidence(&self, key: Key, found: &BTreeMap<Key, Value>, happened: &Happened) -> String {
        let mut text = String::new();
        let id = |value: Option<Value>| value.map(|value| value.id);
        for (number, reason) in happened {
            let record = &self.records[*number];
            if !record.writes.contains_key(&key) {
                continue;
            }
            let (outcome, asked, ended) = (record.outcome, record.asked, record.ended);
            let _ =
                write!(text, "; #{number}, {outcome:?} ({asked} to {ended}), happened: {reason:?}");
            for (key, value) in &record.writes {
                let (here, wrote) = (id(found.get(key).copied()), id(*value));
                let (table, index) = (key.table, key.index);
                let _ = write!(text, ", wrote {wrote:?} to {table}:{index}, where {here:?} is");
            }
            if let Reason::Earlier(last) = reason {
                let why = happened.get(last);
                let _ =
                    write!(text, "; #{last}, which happened: {why:?}: {:?}", self.records[*last]);
            }
        }
        text
    }

    /// Checks that a key may have this value if these commits have happened.
    fn explain_key(&self, key: Key, value: Option<Value>, happened: &Happened) -> Verdict {
        let writers: Vec<usize> = happened
            .keys()
            .copied()
            .filter(|number| self.records[*number].writes.contains_key(&key))
            .collect();
        if writers.is_empty() {
            let base = self.base(key);
            return match base == value {
                true => Ok(()),
                false => Err(format!("{key:?} is {value:?}, not {base:?}")),
            };
        }
        let last = |number: &usize| {
            let record = &self.records[*number];
            !writers.iter().any(|other| record.is_before(&self.records[*other]))
        };
        if writers.iter().filter(|n| last(n)).any(|n| self.records[*n].writes[&key] == value) {
            return Ok(());
        }
        Err(format!("{key:?} is {value:?}, which is not its last change"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = Key { table: 0, index: 1 };
    const B: Key = Key { table: 1, index: 2 };

    /// Records a commit that writes fresh values or deletes keys, with its outcome.
    fn commit(oracle: &mut Oracle, keys: &[(Key, bool)], outcome: Outcome) -> Vec<Option<Value>> {
        let values: Vec<_> =
            keys.iter().map(|(_, put)| put.then(|| oracle.fresh_value(20))).collect();
        let writes = keys.iter().map(|(key, _)| *key).zip(values.iter().copied()).collect();
        let began = oracle.begins();
        let record = oracle.asks(began, Vec::new(), writes, false);
        if outcome != Outcome::Doubt {
            oracle.ends(record, outcome);
        }
        values
    }

    fn done(timestamp: u64, durable: bool) -> Outcome {
        Outcome::Done { timestamp: Some(timestamp), durable }
    }

    fn state(values: &[(Key, Option<Value>)]) -> BTreeMap<Key, Value> {
        values.iter().filter_map(|(key, value)| Some((*key, (*value)?))).collect()
    }

    #[test]
    fn a_durable_commit_must_be_there() {
        let mut oracle = Oracle::default();
        let one = commit(&mut oracle, &[(A, true)], done(1, true));
        let two = commit(&mut oracle, &[(A, true)], done(2, true));
        assert!(oracle.judge(&state(&[]), false).is_err());
        assert!(oracle.judge(&state(&[(A, one[0])]), false).is_err());
        assert!(oracle.recovered(&state(&[(A, two[0])])).is_ok());
        assert_eq!(oracle.base(A), two[0]);
        assert!(oracle.judge(&state(&[]), false).is_err(), "the base is lost");
    }

    #[test]
    fn a_commit_in_doubt_is_whole_or_not_there() {
        let mut oracle = Oracle::default();
        let one = commit(&mut oracle, &[(A, true), (B, true)], done(1, true));
        let two = commit(&mut oracle, &[(A, true), (B, true)], Outcome::Doubt);
        for (a, b, may_be) in [(0, 0, true), (1, 1, true), (0, 1, false), (1, 0, false)] {
            let of = |which: usize, key: usize| [one[key], two[key]][which];
            let found = state(&[(A, of(a, 0)), (B, of(b, 1))]);
            assert_eq!(oracle.judge(&found, false).is_ok(), may_be, "{a} {b}");
        }
    }

    #[test]
    fn deletions_in_doubt_are_whole_too() {
        let mut oracle = Oracle::default();
        let one = commit(&mut oracle, &[(A, true), (B, true)], done(1, true));
        commit(&mut oracle, &[(A, false), (B, false)], Outcome::Doubt);
        assert!(oracle.judge(&state(&[]), false).is_ok());
        assert!(oracle.judge(&state(&[(A, one[0]), (B, one[1])]), false).is_ok());
        assert!(oracle.judge(&state(&[(A, one[0])]), false).is_err());
        // A third commit explains B without A.
        commit(&mut oracle, &[(B, false)], Outcome::Doubt);
        assert!(oracle.judge(&state(&[(A, one[0])]), false).is_ok());
        assert!(oracle.judge(&state(&[(B, one[1])]), false).is_err());
    }

    #[test]
    fn what_is_not_durable_is_lost_from_the_end() {
        let mut oracle = Oracle::default();
        commit(&mut oracle, &[(A, true)], done(1, true));
        let two = commit(&mut oracle, &[(A, true)], done(2, false));
        let three = commit(&mut oracle, &[(B, true)], done(3, false));
        let one = oracle.records[0].writes[&A];
        assert!(oracle.judge(&state(&[(A, one)]), false).is_ok());
        assert!(oracle.judge(&state(&[(A, two[0])]), false).is_ok());
        assert!(oracle.judge(&state(&[(A, two[0]), (B, three[0])]), false).is_ok());
        assert!(oracle.judge(&state(&[(A, one), (B, three[0])]), false).is_err(), "a gap");
    }

    #[test]
    fn nothing_is_lost_from_the_midst() {
        let mut oracle = Oracle::default();
        let untimed = Outcome::Done { timestamp: None, durable: false };
        let one = commit(&mut oracle, &[(A, true)], untimed);
        let two = commit(&mut oracle, &[(B, true)], untimed);
        assert!(oracle.judge(&state(&[]), false).is_ok());
        assert!(oracle.judge(&state(&[(A, one[0])]), false).is_ok());
        assert!(oracle.judge(&state(&[(B, two[0])]), false).is_err());
        let before = oracle.begins();
        oracle.settles(before);
        assert!(oracle.judge(&state(&[(A, one[0])]), false).is_err(), "a checkpoint has it");
    }

    #[test]
    fn a_table_is_gone_or_there_as_a_whole() {
        let mut oracle = Oracle::default();
        let name = Key { table: CATALOG, index: 0 };
        let (one, two) = (Key { table: 16, index: 1 }, Key { table: 16, index: 2 });
        let table = Some(Value { id: oracle.fresh_value(0).id, len: 16 });
        let durable = Outcome::Done { timestamp: None, durable: true };
        let create = |oracle: &mut Oracle, value| {
            let began = oracle.begins();
            oracle.asks(began, Vec::new(), BTreeMap::from([(name, value)]), false)
        };
        let made = create(&mut oracle, table);
        oracle.ends(made, durable);
        let values = commit(&mut oracle, &[(one, true), (two, true)], done(1, true));
        let dropped = create(&mut oracle, None);
        let whole = state(&[(name, table), (one, values[0]), (two, values[1])]);
        assert!(oracle.judge(&whole, false).is_ok(), "the drop is in doubt");
        assert!(oracle.judge(&state(&[]), false).is_ok(), "the drop is in doubt");
        let half = state(&[(name, table), (one, values[0])]);
        assert!(oracle.judge(&half, false).is_err(), "it is half gone");
        oracle.ends(dropped, durable);
        assert!(oracle.judge(&whole, false).is_err(), "it is back");
        assert!(oracle.judge(&state(&[]), false).is_ok());
    }

    #[test]
    fn what_a_survivor_has_read_survived() {
        let mut oracle = Oracle::default();
        let one = commit(&mut oracle, &[(A, true)], Outcome::Doubt);
        let value = oracle.fresh_value(20);
        let began = oracle.begins();
        oracle.asks(began, vec![(A, one[0])], BTreeMap::from([(B, Some(value))]), false);
        assert!(oracle.judge(&state(&[(A, one[0])]), false).is_ok());
        assert!(oracle.judge(&state(&[(A, one[0]), (B, Some(value))]), false).is_ok());
        assert!(oracle.judge(&state(&[(B, Some(value))]), false).is_err());
    }

    #[test]
    fn refused_and_foreign_values_are_not_there() {
        let mut oracle = Oracle::default();
        let one = commit(&mut oracle, &[(A, true)], Outcome::Refused);
        assert!(oracle.judge(&state(&[(A, one[0])]), false).is_err());
        assert!(oracle.judge(&state(&[(B, one[0])]), false).is_err());
        assert!(oracle.judge(&state(&[]), false).is_ok());
    }
}
