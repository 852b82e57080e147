//! Checks that a backup is the store as it was at one commit.
//!
//! A backup has all commits up to its timestamp and none above, all commits acknowledged before it
//! was requested, and none requested after it was made. It is judged when the timestamps of
//! concurrent commits are known.

use std::collections::{BTreeMap, BTreeSet};

use super::recovered::{Reason, Terms};
use super::{Oracle, Outcome, Record, Verdict};
use crate::stores::value::{Key, Value};

#[derive(Clone, Debug)]
pub(crate) struct Backup {
    /// The number of events when the backup was requested, and when it was complete.
    pub(crate) asked: u64,
    pub(crate) made: u64,
    pub(crate) timestamp: u64,
    pub(crate) found: BTreeMap<Key, Value>,
}

impl Backup {
    fn must_have(&self, record: &Record) -> bool {
        match record.outcome {
            Outcome::Done { timestamp, .. } => {
                timestamp.is_some_and(|timestamp| timestamp <= self.timestamp)
                    || record.ended < self.asked
            }
            _ => false,
        }
    }

    fn cannot_have(&self, record: &Record) -> bool {
        record.timestamp().is_some_and(|timestamp| timestamp > self.timestamp)
            || record.asked > self.made
    }
}

impl Oracle {
    /// Notes a backup, to be judged with [`Oracle::check_backups`].
    pub(crate) fn has_backup(&mut self, backup: Backup) {
        self.backups.push(backup);
    }

    pub(crate) fn check_backups(&self) -> Verdict {
        for backup in &self.backups {
            let with_writes =
                || self.records.iter().enumerate().filter(|(_, record)| !record.writes.is_empty());
            let happened = with_writes()
                .filter(|(_, record)| backup.must_have(record))
                .map(|(number, _)| (number, Reason::Durable))
                .collect();
            let excluded: BTreeSet<usize> = with_writes()
                .filter(|(_, record)| backup.cannot_have(record))
                .map(|(number, _)| number)
                .collect();
            let terms = Terms { happened, excluded, ..Terms::default() };
            self.judge_on(&backup.found, terms)
                .map_err(|why| format!("a backup of commit {}: {why}", backup.timestamp))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_has_all_up_to_its_timestamp_and_none_above() {
        let key = |index| Key { table: 0, index };
        let mut oracle = Oracle::default();
        let mut values = Vec::new();
        for timestamp in 1..=3 {
            let value = oracle.fresh_value(20);
            values.push(value);
            let began = oracle.begins();
            let writes = BTreeMap::from([(key(timestamp as u16), Some(value))]);
            let record = oracle.asks(began, Vec::new(), writes, false);
            oracle.ends(record, Outcome::Done { timestamp: Some(timestamp), durable: true });
        }
        let made = oracle.begins();
        for has in 0..=3 {
            let mut oracle = Oracle { records: oracle.records.clone(), ..Oracle::default() };
            oracle.written = (0..3).map(|n| (values[n].id, n)).collect();
            let found = (0..has).map(|n| (key(n as u16 + 1), values[n])).collect();
            oracle.has_backup(Backup { asked: 0, made, timestamp: 2, found });
            assert_eq!(oracle.check_backups().is_ok(), has == 2, "{has}");
        }
    }
}
