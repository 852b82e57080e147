//! Checks that isolation permits the reads of transactions.
//!
//! A transaction reads a snapshot: there is a timestamp S, not below any commit acknowledged before
//! the transaction began, at which all values it read were the newest. No other commit with a
//! timestamp between S and its own wrote a key that it wrote. A serializable transaction could also
//! have read everything just before its own commit.

use std::collections::BTreeMap;

use super::{Oracle, Outcome, Record, Verdict};
use crate::stores::value::{Key, Value};

/// The values of each key by timestamp. The first one is the base's.
type Versions = BTreeMap<Key, BTreeMap<u64, Option<Value>>>;

impl Oracle {
    /// Checks every ended transaction of this incarnation.
    pub(crate) fn check_isolation(&self) -> Verdict {
        let mut versions = Versions::new();
        let mut timestamps = BTreeMap::new();
        for record in &self.records {
            let Some(timestamp) = record.timestamp() else { continue };
            if record.writes.is_empty() {
                continue;
            }
            if let Some(other) = timestamps.insert(timestamp, record) {
                return Err(format!("timestamp {timestamp} twice: {other:?} and {record:?}"));
            }
            for (key, value) in &record.writes {
                versions.entry(*key).or_default().insert(timestamp, *value);
            }
        }
        for (key, versions) in &mut versions {
            // Deleting an absent key is not a change.
            let mut before = self.base(*key);
            versions.retain(|_, value| std::mem::replace(&mut before, *value) != *value);
        }
        let mut acknowledged: Vec<(u64, u64)> =
            timestamps.iter().map(|(timestamp, record)| (record.ended, *timestamp)).collect();
        acknowledged.sort_unstable();
        // The greatest timestamp acknowledged up to each event.
        let mut newest = 0;
        for (_, timestamp) in &mut acknowledged {
            newest = newest.max(*timestamp);
            *timestamp = newest;
        }
        for record in &self.records {
            let before = acknowledged.partition_point(|(ended, _)| *ended < record.began);
            let least = before.checked_sub(1).map_or(0, |last| acknowledged[last].1);
            self.check_record(record, least, &versions)?;
        }
        Ok(())
    }

    fn check_record(&self, record: &Record, least: u64, versions: &Versions) -> Verdict {
        for (key, value) in &record.reads {
            self.check_source(*key, *value)
                .map_err(|why| format!("{why}, and was read by {record:?}"))?;
        }
        if record.outcome == Outcome::Refused || record.reads.is_empty() {
            return Ok(());
        }
        let own = record.timestamp().filter(|_| !record.writes.is_empty());
        let mut candidates: Vec<u64> = match (own, record.timestamp()) {
            // A transaction that only read knows its snapshot.
            (None, Some(snapshot)) => vec![snapshot],
            _ => {
                // Only at the edges of the versions that were read can the answer change, so test
                // the first and last moment of each.
                let versions = record.reads.iter().filter_map(|(key, _)| versions.get(key));
                let starts = versions.flat_map(BTreeMap::keys);
                let edges = starts.flat_map(|start| [start - 1, *start]);
                edges.chain([least, own.map_or(u64::MAX, |own| own - 1)]).collect()
            }
        };
        candidates.retain(|at| *at >= least && own.is_none_or(|own| *at < own));
        // Try the newest first: it usually fits, and a transaction may have read thousands of keys.
        candidates.sort_unstable_by(|one, other| other.cmp(one));
        candidates.dedup();
        let fits = |at: &u64| {
            record.reads.iter().all(|(key, value)| self.is_at(*key, *value, *at, versions))
        };
        let Some(snapshot) = candidates.iter().copied().find(fits) else {
            return Err(format!("no snapshot from {least} on has all that was read by {record:?}"));
        };
        let Some(own) = own else { return Ok(()) };
        for key in record.writes.keys() {
            let between = versions.get(key).and_then(|v| v.range(snapshot + 1..own).next());
            // No newer snapshot fits, so every snapshot has this conflict.
            if let Some((timestamp, value)) = between {
                return Err(format!(
                    "{key:?} was changed to {value:?} by {timestamp}, between the snapshot {snapshot} and the commit of {record:?}"
                ));
            }
        }
        if record.serializable && !fits(&(own - 1)) {
            let changed: Vec<_> = record
                .reads
                .iter()
                .filter(|(key, value)| !self.is_at(*key, *value, own - 1, versions))
                .map(|(key, value)| (key, value, self.base(*key), versions.get(key)))
                .collect();
            return Err(format!(
                "not serializable: what was read had changed: {changed:?} by the commit of {record:?}"
            ));
        }
        Ok(())
    }

    /// Rejects values that no task committed or wrote.
    fn check_source(&self, key: Key, value: Option<Value>) -> Verdict {
        let Some(value) = value else { return Ok(()) };
        match self.writer_of(key, value) {
            None => Err(format!("{key:?} has {value:?}, which nobody wrote there")),
            Some(super::Writer::Record(n)) if self.records[n].outcome == Outcome::Refused => {
                Err(format!("{key:?} has {value:?} of a transaction that was refused"))
            }
            Some(_) => Ok(()),
        }
    }

    fn is_at(&self, key: Key, value: Option<Value>, at: u64, versions: &Versions) -> bool {
        let known = versions.get(&key).and_then(|v| v.range(..=at).next_back());
        if known.map_or(self.base(key), |(_, value)| *value) == value {
            return true;
        }
        // A commit in doubt has no timestamp: it may have happened, and its value may have been
        // overwritten.
        self.records.iter().any(|record| {
            record.timestamp().is_none()
                && record.outcome != Outcome::Refused
                && record.writes.get(&key) == Some(&value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = Key { table: 0, index: 1 };
    const B: Key = Key { table: 1, index: 2 };

    struct Story(Oracle);

    impl Story {
        fn value(&mut self) -> Option<Value> {
            Some(self.0.fresh_value(20))
        }

        fn run(
            &mut self,
            began: u64,
            reads: &[(Key, Option<Value>)],
            writes: &[(Key, Option<Value>)],
            timestamp: u64,
        ) {
            let writes = writes.iter().copied().collect();
            let record = self.0.asks(began, reads.to_vec(), writes, false);
            self.0.ends(record, Outcome::Done { timestamp: Some(timestamp), durable: true });
        }
    }

    #[test]
    fn a_snapshot_is_at_one_point() {
        let mut story = Story(Oracle::default());
        let (a1, b1, a2, b2) = (story.value(), story.value(), story.value(), story.value());
        let began = story.0.begins();
        story.run(began, &[], &[(A, a1), (B, b1)], 1);
        let reader = story.0.begins();
        let began = story.0.begins();
        story.run(began, &[(A, a1)], &[(A, a2), (B, b2)], 2);
        story.run(reader, &[(A, a1), (B, b1)], &[], 1);
        story.run(reader, &[(A, a2), (B, b2)], &[], 2);
        assert_eq!(story.0.check_isolation(), Ok(()));
        story.run(reader, &[(A, a1), (B, b2)], &[], 2);
        assert!(story.0.check_isolation().is_err());
    }

    #[test]
    fn what_was_acknowledged_before_is_seen() {
        let mut story = Story(Oracle::default());
        let a1 = story.value();
        let began = story.0.begins();
        story.run(began, &[], &[(A, a1)], 1);
        let late = story.0.begins();
        story.run(late, &[(A, None)], &[], 0);
        assert!(story.0.check_isolation().is_err());
    }

    #[test]
    fn no_update_is_lost() {
        let mut story = Story(Oracle::default());
        let (a1, a2) = (story.value(), story.value());
        let (one, two) = (story.0.begins(), story.0.begins());
        story.run(one, &[(A, None)], &[(A, a1)], 1);
        story.run(two, &[(A, None)], &[(A, a2)], 2);
        assert!(story.0.check_isolation().is_err());
    }

    #[test]
    fn write_skew_is_for_snapshots_only() {
        for serializable in [false, true] {
            let mut story = Story(Oracle::default());
            let (a1, b1) = (story.value(), story.value());
            let (one, two) = (story.0.begins(), story.0.begins());
            story.run(one, &[(A, None), (B, None)], &[(A, a1)], 1);
            story.run(two, &[(A, None), (B, None)], &[(B, b1)], 2);
            story.0.records.iter_mut().for_each(|record| record.serializable = serializable);
            assert_eq!(story.0.check_isolation().is_err(), serializable);
        }
    }

    #[test]
    fn nobody_reads_what_was_refused() {
        let mut story = Story(Oracle::default());
        let a1 = story.value();
        let began = story.0.begins();
        let record = story.0.asks(began, Vec::new(), BTreeMap::from([(A, a1)]), false);
        let reader = story.0.begins();
        story.run(reader, &[(A, a1)], &[], 0);
        assert_eq!(story.0.check_isolation(), Ok(()), "in doubt");
        story.0.ends(record, Outcome::Refused);
        assert!(story.0.check_isolation().is_err());
    }
}
