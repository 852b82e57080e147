//! Reads the whole content of a store.

use std::collections::BTreeMap;

use qpair_engine::{Error, Store, Table};

use super::catalog::{SLOTS, TABLES, key_of, name_of};
use super::lives::{Cut, Run};
use super::value::{Key, Value};

#[derive(Default)]
pub(super) struct State {
    pub(super) values: BTreeMap<Key, Value>,
    /// The temporary tables and their numbers, by slot.
    pub(super) temporary: BTreeMap<u16, (u16, Table)>,
}

impl Run {
    pub(super) fn tables(&self, store: &Store) -> Result<Vec<Table>, Cut> {
        let open = |name: &&str| {
            let table = store.compressed_table(name, self.scenario.compression(name));
            table.map_err(|error| self.judge_error("a table", &error))
        };
        TABLES.iter().map(open).collect()
    }

    pub(super) fn read_all(&self, store: &Store) -> Result<State, Cut> {
        self.read_all_of(store).map_err(|why| match why {
            Unread::Error(error) => self.judge_error("reading all", &error),
            Unread::Wrong(wrong) => Cut::Wrong(wrong),
        })
    }

    /// Like [`Run::read_all`], for another store, whose errors are not judged.
    pub(super) fn read_all_of(&self, store: &Store) -> Result<State, Unread> {
        let mut state = State::default();
        for (number, name) in (0..).zip(TABLES) {
            let Some(table) = store.existing_table(name)? else { continue };
            for (key, value) in read_table(&table)? {
                if key.table != number {
                    return Err(Unread::Wrong(format!("{name} has {key:?}")));
                }
                state.add(key, value)?;
            }
        }
        for slot in 0..SLOTS {
            let Some(table) = store.existing_table(&name_of(slot))? else { continue };
            let records = read_table(&table)?;
            let first = records.first().map(|(key, _)| *key);
            let (number, value) = self
                .notes(|notes| {
                    let number = notes.catalog.identify(slot, &table, first)?;
                    Some((number, notes.catalog.value(slot, number)?))
                })
                .ok_or_else(|| Unread::Wrong(format!("{} was never made", name_of(slot))))?;
            state.add(key_of(slot), value)?;
            for (key, value) in records {
                if key.table != number {
                    let what = format!("{} has {key:?} and {first:?}", name_of(slot));
                    return Err(Unread::Wrong(what));
                }
                state.add(key, value)?;
            }
            state.temporary.insert(slot, (number, table));
        }
        Ok(state)
    }
}

impl State {
    fn add(&mut self, key: Key, value: Value) -> Result<(), Unread> {
        match self.values.insert(key, value) {
            None => Ok(()),
            Some(_) => Err(Unread::Wrong(format!("{key:?} twice"))),
        }
    }
}

/// Why a state could not be read.
pub(super) enum Unread {
    Error(Error),
    Wrong(String),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

pub(super) fn read_table(table: &Table) -> Result<Vec<(Key, Value)>, Unread> {
    let mut records = Vec::new();
    for entry in table.range(..)? {
        let (key, value) = entry?;
        match (Key::parse_any(&key), Value::parse(&value)) {
            (Some(key), Some(value)) => records.push((key, value)),
            _ => return Err(Unread::Wrong(format!("a record that nobody wrote: {key:?}"))),
        }
    }
    Ok(records)
}
