//! Transactions and snapshots of many tasks over the same keys.
//!
//! A task knows the values that it has read and written, and checks at once that it finds them
//! again. Only the oracle can judge whether all values that the task has read existed at the same
//! time.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use qpair_engine::{
    Durability, Error, ErrorKind, Isolation, Result, Savepoint, Table, TaskStore, TaskTransaction,
    TaskTransactionRange, TransactionOptions, yield_now,
};

use super::TaskContext;
use crate::stores::oracle::Outcome;
use crate::stores::value::{Key, Value};

type Values = BTreeMap<Key, Option<Value>>;

pub(crate) struct Transactions {
    pub(crate) context: TaskContext,
    pub(crate) store: TaskStore,
}

#[derive(Default)]
pub(super) struct View {
    seen: Values,
    pub(super) written: Values,
    savepoints: Vec<(Savepoint, Values)>,
}

impl View {
    /// Returns the value that a key must have for this transaction, if it is known.
    fn known(&self, key: Key) -> Option<Option<Value>> {
        self.written.get(&key).or_else(|| self.seen.get(&key)).copied()
    }
}

impl Transactions {
    /// Returns the table of a key, and whether the table was dropped.
    fn table(&self, key: Key) -> Option<(Table, bool)> {
        let catalog = &self.context.notes().catalog;
        Some((catalog.handle(key.table)?, catalog.is_gone(key.table)))
    }

    fn some_key(&mut self) -> Key {
        let rng = &mut self.context.rng;
        // Either few keys that all tasks use, or any key, which others seldom use.
        let most = if rng.bool() { 8 } else { self.context.scenario.keys };
        let index = rng.u16(0..most);
        let mut rng = rng.fork();
        Key { table: self.context.notes().catalog.some_open(&mut rng), index }
    }

    fn some_value(&mut self) -> Value {
        let len = self.context.scenario.value_len(&mut self.context.rng);
        self.context.notes().oracle.fresh_value(len)
    }

    pub(crate) async fn run(mut self) {
        for _ in 0..self.context.steps.div_ceil(4) {
            if self.context.rng.u8(0..6) == 0 {
                self.snapshot().await;
            } else {
                self.transaction().await;
            }
        }
    }

    /// Checks the value found for a key, and remembers it.
    pub(super) fn found(&self, view: &mut View, key: Key, bytes: Option<&[u8]>) {
        let value = match bytes.map(Value::parse) {
            Some(None) => {
                return self.context.wrong(format!("{key:?} has bytes that nobody wrote"));
            }
            Some(value) => value,
            None => None,
        };
        match view.known(key) {
            Some(known) if known != value => self.context.wrong(format!(
                "{key:?} is {value:?}, but this transaction has written or seen {known:?}"
            )),
            Some(_) => {}
            None => {
                view.seen.insert(key, value);
            }
        }
        self.context.notes().trace.add(value.map_or(0, |value| value.id));
    }

    /// Checks whether a key may exist or not, and remembers the answer.
    fn found_there(&self, view: &mut View, key: Key, there: bool) {
        match view.known(key) {
            Some(known) if known.is_some() != there => self.context.wrong(format!(
                "{key:?} is there: {there}, but this transaction has written or seen {known:?}"
            )),
            None if !there => {
                view.seen.insert(key, None);
            }
            _ => {}
        }
    }

    /// Judges an error. Conflicts, and limits that the store enforces, are not faults.
    pub(super) fn error(&self, doing: &str, error: &Error) {
        let scenario = &self.context.scenario;
        let expected = match error.kind() {
            ErrorKind::Conflict | ErrorKind::TimedOut => true,
            ErrorKind::SnapshotLost => scenario.bounds_snapshots(),
            ErrorKind::TooLarge => scenario.bounds_transactions(),
            ErrorKind::NotFound => self.context.notes().catalog.has_dropped(),
            _ => false,
        };
        if expected {
            self.context.notes().trace.add(error.kind() as u64);
        } else {
            self.context.take_error(doing, error);
        }
    }

    /// Checks that an operation on a dropped table was refused.
    fn refuses<T>(&self, gone: bool, doing: &str, outcome: Result<T>) -> Result<T> {
        if gone && outcome.is_ok() {
            self.context.wrong(format!("{doing} went on in a table that was dropped"));
        }
        outcome
    }

    async fn snapshot(&mut self) {
        let began = self.context.notes().oracle.begins();
        let snapshot = match self.store.snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => return self.error("a snapshot", &error),
        };
        let mut view = View::default();
        let long = if self.context.scenario.versions_bytes_max.is_some() { 250 } else { 60 };
        let most = if self.context.rng.u8(0..6) == 0 { long } else { 8 };
        for _ in 0..self.context.rng.u8(1..most) {
            let key = self.some_key();
            let Some((table, gone)) = self.table(key) else { break };
            let outcome = match self.context.rng.u8(0..6) {
                0 => {
                    yield_now().await;
                    Ok(())
                }
                1 => {
                    let keys = self.some_range(key);
                    let read = match snapshot.range(&table, bytes_of(key, &keys)) {
                        Ok(range) => self.range(&mut view, range, key, keys).await,
                        Err(error) => Err(error),
                    };
                    self.refuses(gone, "a range of a snapshot", read)
                }
                _ => {
                    let value = snapshot.get(&table, &key.bytes()).await;
                    let read = value.map(|value| self.found(&mut view, key, value.as_deref()));
                    self.refuses(gone, "a snapshot", read)
                }
            };
            if let Err(error) = outcome {
                self.error("reading a snapshot", &error);
                break;
            }
        }
        self.has_read(began, view, Some(snapshot.timestamp()));
    }

    /// Reports the reads of a transaction without writes to the oracle.
    pub(super) fn has_read(&self, began: u64, view: View, timestamp: Option<u64>) {
        let mut notes = self.context.notes();
        notes.operations += 1;
        let record =
            notes.oracle.asks(began, view.seen.into_iter().collect(), Values::new(), false);
        // A transaction that was rolled back did not wait until the data that it read was durable.
        let scenario = &self.context.scenario;
        let durable = timestamp.is_some() && scenario.is_durable(scenario.durability);
        notes.oracle.ends(record, Outcome::Done { timestamp, durable });
    }

    async fn transaction(&mut self) {
        let rng = &mut self.context.rng;
        let serializable = rng.u8(0..4) == 0;
        let options = TransactionOptions {
            isolation: if serializable { Isolation::Serializable } else { Isolation::Snapshot },
            durability: match rng.u8(0..5) {
                0 => Durability::Async,
                1 => Durability::Group,
                _ => Durability::Sync,
            },
            lock_timeout: (rng.u8(0..10) == 0).then(|| Duration::from_micros(rng.u64(0..5000))),
            ..TransactionOptions::default()
        };
        // Some transactions outlast the older values in memory.
        let is_long = self.context.scenario.versions_bytes_max.is_some() && rng.u8(0..4) == 0;
        let actions = rng.u8(1..if is_long { 100 } else { 12 });
        let gives_up = rng.u8(0..12) == 0;
        let mut transaction = self.store.begin_with(&options);
        let began = self.context.notes().oracle.begins();
        let mut view = View::default();
        for _ in 0..actions {
            if let Err(error) = self.act(&mut transaction, &mut view).await {
                self.error("in a transaction", &error);
                transaction.rollback();
                return self.has_read(began, view, None);
            }
        }
        if gives_up {
            transaction.rollback();
            return self.has_read(began, view, None);
        }
        self.commit(transaction, view, began, serializable, options.durability).await;
    }

    pub(super) async fn commit(
        &mut self,
        transaction: TaskTransaction,
        view: View,
        began: u64,
        serializable: bool,
        durability: Durability,
    ) {
        let record = {
            let mut notes = self.context.notes();
            notes.operations += 1;
            let reads = view.seen.into_iter().collect();
            notes.oracle.asks(began, reads, view.written, serializable)
        };
        match transaction.commit().await {
            Ok(commit) => {
                let durable = self.context.scenario.is_durable(durability);
                let outcome = Outcome::Done { timestamp: Some(commit.timestamp()), durable };
                {
                    let mut notes = self.context.notes();
                    notes.trace.add(commit.timestamp());
                    notes.oracle.ends(record, outcome);
                }
                if !durable && self.context.rng.bool() {
                    match commit.durable().await {
                        Ok(())
                            if self.context.scenario.is_durable(qpair_engine::Durability::Sync) =>
                        {
                            self.context.notes().oracle.is_durable(record);
                        }
                        Ok(()) => {}
                        Err(error) => self.error("waiting for a commit to be durable", &error),
                    }
                }
            }
            Err(error) => {
                self.error("a commit", &error);
                let refused = [
                    ErrorKind::Conflict,
                    ErrorKind::TooLarge,
                    ErrorKind::SnapshotLost,
                    ErrorKind::NotFound,
                ];
                if refused.contains(&error.kind()) {
                    self.context.notes().oracle.ends(record, Outcome::Refused);
                }
            }
        }
    }

    async fn act(&mut self, transaction: &mut TaskTransaction, view: &mut View) -> Result<()> {
        let key = self.some_key();
        let Some((table, gone)) = self.table(key) else { return Ok(()) };
        let verb = self.context.rng.u8(0..25);
        let outcome = self.act_on(transaction, view, verb, key, &table).await;
        let outcome = match verb {
            0..21 | 23 => self.refuses(gone, "a transaction", outcome),
            _ => outcome,
        };
        match outcome {
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let mut notes = self.context.notes();
                notes.timed_out += 1;
                // A range may be deleted in part.
                if verb == 20 {
                    return Err(error);
                }
                // The task continues as if it had not made the request.
                notes.trace.add(error.kind() as u64);
                Ok(())
            }
            outcome => outcome,
        }
    }

    async fn act_on(
        &mut self,
        transaction: &mut TaskTransaction,
        view: &mut View,
        verb: u8,
        key: Key,
        table: &Table,
    ) -> Result<()> {
        let bytes = key.bytes();
        match verb {
            0..6 => {
                let value = transaction.get(table, &bytes).await?;
                self.found(view, key, value.as_deref());
            }
            6..8 => {
                let value = transaction.get_for_update(table, &bytes).await?;
                self.found(view, key, value.as_deref());
            }
            8..14 => {
                let value = self.some_value();
                transaction.put(table, &bytes, &value.bytes()).await?;
                view.written.insert(key, Some(value));
            }
            14 => {
                let value = self.some_value();
                let inserted = transaction.insert(table, &bytes, &value.bytes()).await?;
                self.found_there(view, key, !inserted);
                if inserted {
                    view.written.insert(key, Some(value));
                }
            }
            15 => self.compare_and_swap(transaction, view, key, table).await?,
            16..18 => {
                let there = transaction.delete(table, &bytes).await?;
                self.found_there(view, key, there);
                if there {
                    view.written.insert(key, None);
                }
            }
            18..20 => {
                let keys = self.some_range(key);
                let range = transaction.range(table, bytes_of(key, &keys))?;
                self.range(view, range, key, keys).await?;
            }
            20 => {
                let keys = self.some_range(key);
                self.delete_range(transaction, view, key, table, keys).await?;
            }
            21 => {
                let savepoint = transaction.savepoint();
                view.savepoints.push((savepoint, view.written.clone()));
            }
            22 if !view.savepoints.is_empty() => {
                let number = self.context.rng.usize(0..view.savepoints.len());
                view.savepoints.truncate(number + 1);
                let (savepoint, written) = &view.savepoints[number];
                transaction.rollback_to(savepoint)?;
                view.written.clone_from(written);
            }
            22 => transaction.lock(table, &bytes).await?,
            23 => self.announced(transaction, view, key, table).await?,
            _ => yield_now().await,
        }
        Ok(())
    }

    /// Announces the keys that will be read, and then reads them. Other tasks may change or move
    /// the records in between.
    async fn announced(
        &mut self,
        transaction: &mut TaskTransaction,
        view: &mut View,
        from: Key,
        table: &Table,
    ) -> Result<()> {
        let end = self.some_range(from).end.max(from.index + 1);
        let keys: Vec<Key> = (from.index..end).map(|index| Key { index, ..from }).collect();
        let bytes: Vec<_> = keys.iter().map(|key| key.bytes()).collect();
        let announced = bytes.iter().map(|key| (table, key.as_slice()));
        match self.context.rng.bool() {
            true => transaction.prefetch(announced).await?,
            false => transaction.prefetch_cached(announced)?,
        }
        for (key, bytes) in keys.into_iter().zip(&bytes) {
            if self.context.rng.u8(0..4) == 0 {
                yield_now().await;
            }
            let value = match self.context.rng.u8(0..4) {
                0 => transaction.get_for_update(table, bytes).await?,
                _ => transaction.get(table, bytes).await?,
            };
            self.found(view, key, value.as_deref());
        }
        Ok(())
    }

    async fn compare_and_swap(
        &mut self,
        transaction: &mut TaskTransaction,
        view: &mut View,
        key: Key,
        table: &Table,
    ) -> Result<()> {
        let known = view.known(key);
        let other = self.some_value();
        let expected = if self.context.rng.u8(0..4) == 0 { Some(other) } else { known.flatten() };
        let new = (self.context.rng.u8(0..4) != 0).then(|| self.some_value());
        let (old_bytes, new_bytes) = (expected.map(Value::bytes), new.map(Value::bytes));
        let swapped = transaction
            .compare_and_swap(table, &key.bytes(), old_bytes.as_deref(), new_bytes.as_deref())
            .await?;
        if known.is_some_and(|known| (known == expected) != swapped) {
            self.context.wrong(format!("{key:?}: swapped {swapped}, {known:?} for {expected:?}"));
        }
        if swapped {
            if known.is_none() {
                view.seen.insert(key, expected);
            }
            // Deleting an absent key is not a change.
            if expected.is_some() || new.is_some() {
                view.written.insert(key, new);
            }
        }
        Ok(())
    }

    pub(super) async fn delete_range(
        &mut self,
        transaction: &mut TaskTransaction,
        view: &mut View,
        from: Key,
        table: &Table,
        keys: Range<u16>,
    ) -> Result<()> {
        // The transaction deletes the keys that it sees first.
        let range = transaction.range(table, bytes_of(from, &keys))?;
        self.range(view, range, from, keys.clone()).await?;
        let deleted = transaction.delete_range(table, bytes_of(from, &keys)).await?;
        let there: Vec<Key> = keys
            .map(|index| Key { index, ..from })
            .filter(|key| view.known(*key).flatten().is_some())
            .collect();
        if there.len() as u64 != deleted {
            self.context.wrong(format!("{deleted} keys deleted from {from:?} on, not {there:?}"));
        }
        view.written.extend(there.into_iter().map(|key| (key, None)));
        Ok(())
    }

    fn some_range(&mut self, from: Key) -> Range<u16> {
        from.index..from.index.saturating_add(self.context.rng.u16(0..24))
    }

    pub(super) async fn range(
        &mut self,
        view: &mut View,
        range: TaskTransactionRange<'_>,
        from: Key,
        keys: Range<u16>,
    ) -> Result<()> {
        let reverse = self.context.rng.bool();
        let mut range = if reverse { range.reverse() } else { range };
        let mut entries = Vec::new();
        while let Some(entry) = range.next().await? {
            entries.push(entry);
        }
        if reverse {
            entries.reverse();
        }
        if !entries.is_sorted_by(|one, other| one.0 < other.0) {
            self.context.wrong(format!("a range from {from:?} is not in order"));
        }
        let mut found = BTreeMap::new();
        for (key, value) in entries {
            match Key::parse(from.table, &key).filter(|key| keys.contains(&key.index)) {
                Some(key) => {
                    found.insert(key, value);
                }
                None => self.context.wrong(format!("a range of {keys:?} has the key {key:?}")),
            }
        }
        for key in keys.map(|index| Key { index, ..from }) {
            self.found(view, key, found.get(&key).map(Vec::as_slice));
        }
        Ok(())
    }
}

pub(super) fn bytes_of(key: Key, keys: &Range<u16>) -> Range<Vec<u8>> {
    Key { index: keys.start, ..key }.bytes()..Key { index: keys.end, ..key }.bytes()
}
