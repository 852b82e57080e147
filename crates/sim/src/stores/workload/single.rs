//! Single changes, outside transactions. Each task has its own keys, and so knows the values that
//! it must find.

use std::collections::BTreeMap;

use qpair_engine::{ErrorKind, TaskTable, yield_now};

use super::TaskContext;
use crate::stores::oracle::{Outcome, RecordId};
use crate::stores::value::{Key, Value};

/// A task that owns every key of a table whose number leaves `share` when divided by `shares`, or a
/// block of keys.
pub(crate) struct Single {
    context: TaskContext,
    table: u16,
    share: u16,
    shares: u16,
    /// The possible values of the task's keys: one value, or several after a change that failed.
    known: BTreeMap<Key, Vec<Option<Value>>>,
}

impl Single {
    pub(crate) fn new(context: TaskContext, table: u16, share: u16, shares: u16) -> Self {
        Self { context, table, share, shares, known: BTreeMap::new() }
    }

    fn width(&self) -> u16 {
        self.context.scenario.keys.div_ceil(self.shares).max(1)
    }

    fn owns(&self, key: Key) -> bool {
        match self.context.scenario.blocks {
            true => key.index / self.width() == self.share,
            false => key.index % self.shares == self.share,
        }
    }

    fn some_key(&mut self) -> Key {
        let number = self.context.rng.u16(0..self.width());
        let index = match self.context.scenario.blocks {
            true => self.share * self.width() + number,
            false => number * self.shares + self.share,
        };
        Key { table: self.table, index }
    }

    fn known(&mut self, key: Key) -> &mut Vec<Option<Value>> {
        let base = self.context.notes().oracle.base(key);
        self.known.entry(key).or_insert_with(|| vec![base])
    }

    /// Checks the value found for a key, and remembers it.
    fn found(&mut self, key: Key, bytes: Option<&[u8]>) {
        let value = bytes.map(Value::parse);
        let known = self.known(key);
        let one_of = format!("{known:?}");
        match value {
            Some(None) => {
                let bytes = bytes.unwrap_or_default().len();
                self.context.wrong(format!("{key:?} has {bytes} bytes that nobody wrote"));
            }
            Some(Some(value)) if known.contains(&Some(value)) => *known = vec![Some(value)],
            None if known.contains(&None) => *known = vec![None],
            other => self.context.wrong(format!("{key:?} is {other:?}, not one of {one_of}")),
        }
        self.context.notes().trace.add(value.flatten().map_or(0, |value| value.id));
    }

    pub(crate) async fn run(mut self, table: TaskTable) {
        for _ in 0..self.context.steps {
            let key = self.some_key();
            match self.context.rng.u8(0..16) {
                0..8 => self.put(&table, key).await,
                8..10 => self.delete(&table, key).await,
                10..13 => self.get(&table, key).await,
                13 => self.delete_range(&table, key).await,
                14 => self.range(&table, key).await,
                _ => yield_now().await,
            }
            self.context.notes().operations += 1;
        }
    }

    async fn get(&mut self, table: &TaskTable, key: Key) {
        match table.get(&key.bytes()).await {
            Ok(value) => self.found(key, value.as_deref()),
            Err(error) => self.context.take_error("get", &error),
        }
    }

    async fn put(&mut self, table: &TaskTable, key: Key) {
        let len = self.context.scenario.value_len(&mut self.context.rng);
        let value = self.context.notes().oracle.fresh_value(len);
        let bytes = value.bytes();
        self.change(key, Some(value), async |key| table.put(key, &bytes).await).await;
    }

    async fn delete(&mut self, table: &TaskTable, key: Key) {
        self.change(key, None, async |key| table.delete(key).await).await;
    }

    async fn change(
        &mut self,
        key: Key,
        value: Option<Value>,
        change: impl AsyncFnOnce(&[u8]) -> qpair_engine::Result<bool>,
    ) {
        let record = {
            let oracle = &mut self.context.notes().oracle;
            let began = oracle.begins();
            oracle.asks(began, Vec::new(), BTreeMap::from([(key, value)]), false)
        };
        match change(&key.bytes()).await {
            Ok(replaced) => {
                let known = self.known(key);
                let (could, one_of) =
                    (known.iter().any(|v| v.is_some() == replaced), known.clone());
                *known = vec![value];
                if !could {
                    let what =
                        format!("{key:?}: replaced {replaced}, but it was one of {one_of:?}");
                    self.context.wrong(what);
                }
                let scenario = &self.context.scenario;
                let durable = scenario.is_durable(scenario.durability);
                let outcome = Outcome::Done { timestamp: None, durable };
                self.context.notes().oracle.ends(record, outcome);
            }
            Err(error)
                if error.kind() == ErrorKind::TooLarge
                    && self.context.scenario.bounds_transactions() =>
            {
                self.context.notes().oracle.ends(record, Outcome::Refused);
            }
            Err(error) => {
                self.context.take_error("a change", &error);
                // The change may have happened even so.
                self.known(key).push(value);
            }
        }
    }

    /// Deletes some adjacent keys of the task.
    async fn delete_range(&mut self, table: &TaskTable, from: Key) {
        let most = from.index + 1 + self.context.rng.u16(0..40);
        let owned = (from.index..most).take_while(|index| self.owns(Key { index: *index, ..from }));
        let keys: Vec<Key> = owned.map(|index| Key { index, ..from }).collect();
        let to = Key { index: from.index + keys.len() as u16, ..from };
        let known: Vec<Vec<Option<Value>>> =
            keys.iter().map(|key| self.known(*key).clone()).collect();
        let least = known.iter().filter(|one_of| one_of.iter().all(Option::is_some)).count();
        let most = known.iter().filter(|one_of| one_of.iter().any(Option::is_some)).count();
        // The range is deleted in several transactions, so after a crash each key may be gone or
        // not.
        let records: Vec<RecordId> = {
            let oracle = &mut self.context.notes().oracle;
            let began = oracle.begins();
            let there =
                keys.iter().zip(&known).filter(|(_, one_of)| one_of.iter().any(Option::is_some));
            let mut asks =
                |key: &Key| oracle.asks(began, Vec::new(), BTreeMap::from([(*key, None)]), false);
            there.map(|(key, _)| asks(key)).collect()
        };
        let scenario = self.context.scenario.clone();
        match table.delete_range(from.bytes()..to.bytes()).await {
            Ok(deleted) => {
                if !(least as u64..=most as u64).contains(&deleted) {
                    self.context.wrong(format!(
                        "{deleted} keys deleted from {from:?} to {to:?}, not {least} to {most}"
                    ));
                }
                keys.iter().for_each(|key| *self.known(*key) = vec![None]);
                let durable = scenario.is_durable(scenario.durability);
                let oracle = &mut self.context.notes().oracle;
                let done = Outcome::Done { timestamp: None, durable };
                records.into_iter().for_each(|record| oracle.ends(record, done));
            }
            Err(error) => {
                let is_refusal = error.kind() == ErrorKind::TooLarge
                    && scenario.transaction_bytes_max.is_some()
                    || error.kind() == ErrorKind::SnapshotLost && scenario.bounds_snapshots();
                if !is_refusal {
                    self.context.take_error("deleting a range", &error);
                }
                // Some keys may be gone even so.
                keys.iter().for_each(|key| self.known(*key).push(None));
            }
        }
    }

    async fn range(&mut self, table: &TaskTable, from: Key) {
        let to = Key { index: from.index.saturating_add(self.context.rng.u16(0..40)), ..from };
        let reverse = self.context.rng.bool();
        let range = match table.range(from.bytes()..to.bytes()) {
            Ok(range) => range,
            Err(error) => return self.context.take_error("range", &error),
        };
        let mut range = if reverse { range.reverse() } else { range };
        let mut entries = Vec::new();
        loop {
            match range.next().await {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => break,
                Err(error) => return self.context.take_error("range", &error),
            }
        }
        if reverse {
            entries.reverse();
        }
        if !entries.is_sorted_by(|one, other| one.0 < other.0) {
            self.context.wrong(format!("a range from {from:?} is not in order"));
        }
        let mut absent: Vec<Key> = (from.index..to.index)
            .map(|index| Key { index, ..from })
            .filter(|key| self.owns(*key))
            .collect();
        for (key, value) in entries {
            let Some(key) = Key::parse(self.table, &key).filter(|key| (from..to).contains(key))
            else {
                self.context.wrong(format!("a range from {from:?} to {to:?} has the key {key:?}"));
                continue;
            };
            if self.owns(key) {
                absent.retain(|other| *other != key);
                self.found(key, Some(&value));
            } else if Value::parse(&value).is_none() {
                self.context.wrong(format!("{key:?} has bytes that nobody wrote"));
            }
        }
        for key in absent {
            self.found(key, None);
        }
    }
}
