//! One incarnation of a store on recorded devices: the store is opened, its content is read,
//! writers work in threads, and the store is closed.
//!
//! A writer notes an operation before requesting it. When the call has returned, the writer adds a
//! mark to the record before it continues.

use qpair_block::locks::Mutex;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use qpair_engine::{Durability, Error, Store, Table, TransactionOptions};

use super::history::{Bounds, Found, History, Operation, Place, Value};
use super::plan::{Life, Plan};
use super::recorder::{Mark, Recorder};
use super::rig::Rig;

const TABLES: [&str; 2] = ["left", "right"];
/// The number of keys of a writer in each table.
const KEYS: u32 = 60;
/// The number of records of a sorted load.
const LOADED: u32 = 400;

pub(super) fn said(doing: &str) -> impl Fn(Error) -> String {
    move |error| format!("{doing}: {:?}: {error}", error.kind())
}

pub(super) fn read_all(store: &Store) -> Result<Found, String> {
    let mut found = Found::new();
    for name in store.table_names().map_err(said("reading the catalog"))? {
        let Some(table) = store.existing_table(&name).map_err(said("opening a table"))? else {
            continue;
        };
        for record in table.iter() {
            let (key, value) = record.map_err(said("reading a table"))?;
            let key = String::from_utf8_lossy(&key).into_owned();
            found.insert(Place { table: name.clone(), key }, value);
        }
    }
    Ok(found)
}

pub(super) struct Load<'a> {
    pub(super) plan: &'a Plan,
    pub(super) recorder: &'a Recorder,
    pub(super) history: &'a Mutex<History>,
    /// The next stamp of a value. Each stamp is used once in a run.
    pub(super) stamps: &'a AtomicU64,
}

impl Load<'_> {
    /// Opens the store, checks that its content is permitted, and runs the writers.
    pub(super) fn run(
        &self,
        rig: &Rig,
        life: &Life,
        bounds: Option<&[Bounds]>,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let mut devices = rig.devices()?;
        devices.truncate(self.plan.shapes().len());
        let mut formats = bounds.is_none();
        for opening in 0..1 + u32::from(life.reopens) {
            let (members, mut options) = self.plan.store_of_load(devices.clone());
            options.format = std::mem::take(&mut formats);
            let store =
                Store::open(members, &options).map_err(said("opening the store of a load"))?;
            if let (Some(bounds), 0) = (bounds, opening) {
                let found = read_all(&store)?;
                let mut history = self.history.lock();
                *history = history
                    .explain(bounds, &found)
                    .map_err(|wrong| format!("what a life found: {wrong}"))?;
            }
            if opening == 0 {
                self.recorder.mark(Mark::Opened);
            }
            self.work(&store, life, rng)?;
            store.close().map_err(said("closing the store of a load"))?;
            self.all_durable();
        }
        Ok(())
    }

    fn work(&self, store: &Store, life: &Life, rng: &mut Rng) -> Result<(), String> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..=self.plan.writers)
                .map(|writer| {
                    let mut rng = rng.fork();
                    scope.spawn(move || match writer == self.plan.writers {
                        true => self.chores(store, life, &mut rng),
                        false => self.write(store, writer, life, &mut rng),
                    })
                })
                .collect();
            let outcomes = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err("a writer panicked".to_owned()))
            });
            outcomes.collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// Notes an operation that is about to be requested, and returns its number.
    pub(super) fn begin(&self, writer: usize, operation: Operation) -> usize {
        let mut history = self.history.lock();
        let operations = &mut history.writers[writer].operations;
        operations.push(operation);
        operations.len() - 1
    }

    /// Marks that an operation has returned. `durable` must be false for an operation that found
    /// nothing to change: it wrote nothing, and so it waited for nothing.
    pub(super) fn returned(&self, writer: usize, operation: usize, durable: bool) {
        let durable = durable && {
            let history = self.history.lock();
            history.writers[writer].changes(operation)
        };
        self.mark(writer, operation, durable);
    }

    fn mark(&self, writer: usize, operation: usize, durable: bool) {
        self.recorder.mark(Mark::Returned { writer, operation, durable });
    }

    /// Marks all operations of the idle writers as durable.
    fn all_durable(&self) {
        let history = self.history.lock();
        for (number, writer) in history.writers.iter().enumerate() {
            if let Some(last) = writer.operations.len().checked_sub(1) {
                self.mark(number, last, true);
            }
        }
    }

    pub(super) fn value(&self, len: usize) -> Value {
        Value { stamp: self.stamps.fetch_add(1, Ordering::Relaxed), len }
    }

    fn write(
        &self,
        store: &Store,
        writer: usize,
        life: &Life,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let made = said("making a table");
        let right = store.compressed_table(TABLES[1], self.plan.compression);
        let tables = [store.table(TABLES[0]).map_err(&made)?, right.map_err(&made)?];
        let named = |name: &str| &tables[usize::from(name == TABLES[1])];
        for _ in 0..life.operations {
            if rng.u8(0..12) == 0 {
                self.remove_range(&tables, writer, rng)?;
                continue;
            }
            let mut sets = BTreeMap::new();
            for _ in 0..rng.u32(1..8) {
                let len = match rng.u8(0..8) {
                    0 => rng.usize(0..self.plan.value_bytes_max),
                    _ => rng.usize(0..120),
                };
                let value = (rng.u8(0..5) > 0).then(|| self.value(len));
                sets.insert(place(writer, rng), value);
            }
            let number = self.begin(writer, Operation { is_atomic: true, sets: sets.clone() });
            let durability =
                [Durability::Sync, Durability::Sync, Durability::Group, Durability::Async]
                    [rng.usize(0..4)];
            let options = TransactionOptions { durability, ..TransactionOptions::default() };
            store
                .transact_with(&options, |transaction| {
                    for (place, value) in &sets {
                        let (table, key) = (named(&place.table), place.key.as_bytes());
                        match value {
                            Some(value) => {
                                transaction.put(table, key, &value.bytes(&place.key)).map(drop)?
                            }
                            None => transaction.delete(table, key).map(drop)?,
                        }
                    }
                    Ok(())
                })
                .map_err(said("a transaction"))?;
            let durable = durability != Durability::Async && self.plan.has_log;
            self.returned(writer, number, durable);
            if rng.u8(0..40) == 0 {
                store.checkpoint().map_err(said("a checkpoint"))?;
                self.mark(writer, number, true);
            }
        }
        Ok(())
    }

    /// Removes a range of a writer's keys. The removal need not be atomic.
    fn remove_range(
        &self,
        tables: &[Table; 2],
        writer: usize,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let (table, from) = (rng.usize(0..2), rng.u32(0..KEYS));
        let to = (from + rng.u32(1..20)).min(KEYS);
        let sets = (from..to).map(|key| (key_at(table, writer, key), None));
        let sets: BTreeMap<Place, Option<Value>> = sets.collect();
        let number = self.begin(writer, Operation { is_atomic: false, sets });
        // Keys have padding behind their number.
        let (from, to) = (format!("{writer:02}/{from:05}"), format!("{writer:02}/{to:05}"));
        tables[table]
            .delete_range(from.as_bytes()..to.as_bytes())
            .map_err(said("removing a range"))?;
        self.returned(writer, number, self.plan.has_log);
        Ok(())
    }

    /// Runs maintenance: checkpoints, compactions, and tables that are loaded and dropped.
    fn chores(&self, store: &Store, life: &Life, rng: &mut Rng) -> Result<(), String> {
        let writer = self.plan.writers;
        for _ in 0..rng.usize(0..4).min(life.operations) {
            match rng.u8(0..4) {
                0 => store.checkpoint().map_err(said("a checkpoint"))?,
                1 => drop(
                    store
                        .compact(&|_, _| ControlFlow::Continue(()))
                        .map_err(said("a compaction"))?,
                ),
                _ => {
                    let name = format!("loaded-{}", self.stamps.fetch_add(1, Ordering::Relaxed));
                    let table = store.table(&name).map_err(said("making a table"))?;
                    let sets = self.records(&name, rng.u32(1..LOADED), 200, rng);
                    let (adds, removes) =
                        (sets.clone(), sets.keys().map(|place| (place.clone(), None)).collect());
                    let number = self.begin(writer, Operation { is_atomic: true, sets: adds });
                    let records = sets.iter().filter_map(|(place, value)| {
                        Some(Ok((
                            place.key.clone().into_bytes(),
                            value.as_ref()?.bytes(&place.key),
                        )))
                    });
                    table.bulk_load(records).map_err(said("a sorted load"))?;
                    self.returned(writer, number, true);
                    drop(table);
                    if rng.bool() {
                        let number =
                            self.begin(writer, Operation { is_atomic: true, sets: removes });
                        store.drop_table(&name).map_err(said("dropping a table"))?;
                        self.returned(writer, number, self.plan.has_log);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns records for a table of the last writer, in the order of their keys.
    pub(super) fn records(
        &self,
        table: &str,
        count: u32,
        value_bytes_max: usize,
        rng: &mut Rng,
    ) -> BTreeMap<Place, Option<Value>> {
        let writer = self.plan.writers;
        let record = |key: u32| {
            let place = Place { table: table.to_owned(), key: format!("{writer:02}/{key:05}") };
            (place, Some(self.value(rng.usize(1..value_bytes_max))))
        };
        (0..count).map(record).collect()
    }
}

fn place(writer: usize, rng: &mut Rng) -> Place {
    key_at(rng.usize(0..2), writer, rng.u32(0..KEYS))
}

/// Returns a key of a writer. Some keys are long.
fn key_at(table: usize, writer: usize, key: u32) -> Place {
    let filler = "-".repeat((key as usize * 7) % 30);
    Place { table: TABLES[table].to_owned(), key: format!("{writer:02}/{key:05}{filler}") }
}
