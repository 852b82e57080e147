//! A task that changes and reads its own keys.

use std::collections::BTreeMap;

use fastrand::Rng;
use qpair_engine::{Prefix, Result, Store, Table, TaskStore, TaskTable};

use super::model::Horizons;
use super::{Shared, TABLES, bytes_of, id_of};

/// A task that changes and reads its own keys.
pub(super) struct Actor {
    pub(super) task: u32,
    pub(super) rng: Rng,
    pub(super) model: Shared,
    pub(super) store: Store,
    pub(super) session: TaskStore,
    pub(super) tables: Vec<TaskTable>,
    pub(super) plain: Vec<Table>,
}

impl Actor {
    fn horizon(&self) -> u64 {
        self.model.lock().note_horizon(self.store.horizon_ms())
    }

    pub(super) async fn act(mut self, turns: u32) -> Result<()> {
        for _ in 0..turns {
            let table = self.rng.usize(0..TABLES.len());
            let key = format!("{} {:03}", self.task, self.rng.u8(0..40)).into_bytes();
            match self.rng.u8(0..12) {
                0..5 => self.put(table, &key).await?,
                5 => self.delete(table, &key).await?,
                6 => self.insert(table, &key).await?,
                7 => self.transact(table).await?,
                8 => self.range(table).await?,
                9 => self.swap(table, &key).await?,
                _ => {
                    self.get(table, &key).await?;
                }
            }
        }
        Ok(())
    }

    /// Notes a change that begins. Returns the number of times that the clock was set.
    fn asks(&self, table: usize, key: &[u8], deletes: bool) -> (Option<u64>, usize) {
        let mut model = self.model.lock();
        let id = (!deletes).then(|| {
            model.next_id += 1;
            model.next_id
        });
        model.asks(table, key, id);
        (id, model.walls_ms.len())
    }

    fn ends(
        &self,
        (table, key): (usize, &[u8]),
        (id, begun): (Option<u64>, usize),
        horizons: Horizons,
    ) {
        self.model.lock().ends((table, key), id, (begun, TABLES[table].1), horizons);
    }

    async fn put(&self, table: usize, key: &[u8]) -> Result<()> {
        let before_ms = self.horizon();
        let (id, begun) = self.asks(table, key, false);
        let met = self.tables[table].put(key, &bytes_of(id.unwrap_or(0))).await?;
        let horizons = (before_ms, self.horizon());
        self.model.lock().met((table, key), met, horizons);
        self.ends((table, key), (id, begun), horizons);
        Ok(())
    }

    async fn delete(&self, table: usize, key: &[u8]) -> Result<()> {
        let before_ms = self.horizon();
        let asked = self.asks(table, key, true);
        let met = self.tables[table].delete(key).await?;
        let horizons = (before_ms, self.horizon());
        self.model.lock().met((table, key), met, horizons);
        self.ends((table, key), asked, horizons);
        Ok(())
    }

    async fn insert(&self, table: usize, key: &[u8]) -> Result<()> {
        let before_ms = self.horizon();
        let (id, begun) = self.asks(table, key, false);
        let inserted = self.tables[table].insert(key, &bytes_of(id.unwrap_or(0))).await?;
        let horizons = (before_ms, self.horizon());
        self.model.lock().met((table, key), !inserted, horizons);
        match inserted {
            true => self.ends((table, key), (id, begun), horizons),
            false => self.model.lock().withdraws(table, key),
        }
        Ok(())
    }

    async fn swap(&self, table: usize, key: &[u8]) -> Result<()> {
        let found = self.get(table, key).await?.map(bytes_of);
        let before_ms = self.horizon();
        let (id, begun) = self.asks(table, key, false);
        let new = bytes_of(id.unwrap_or(0));
        let swap = self.tables[table].compare_and_swap(key, found.as_deref(), Some(&new));
        let swapped = swap.await?;
        let horizons = (before_ms, self.horizon());
        match swapped {
            true => {
                self.model.lock().met((table, key), found.is_some(), horizons);
                self.ends((table, key), (id, begun), horizons);
            }
            false => {
                // The record has expired since it was read; one that was absent stays so.
                self.model.lock().met((table, key), found.is_none(), horizons);
                self.model.lock().withdraws(table, key);
            }
        }
        Ok(())
    }

    /// Puts several records in one transaction.
    async fn transact(&mut self, table: usize) -> Result<()> {
        let mut keys: Vec<Vec<u8>> = (0..self.rng.u8(1..8))
            .map(|_| format!("{} {:03}", self.task, self.rng.u8(0..40)).into_bytes())
            .collect();
        keys.sort();
        keys.dedup();
        let before_ms = self.horizon();
        let asked: Vec<_> = keys.iter().map(|key| self.asks(table, key, false)).collect();
        let of = &self.plain[table];
        self.session
            .transact(async |tx| {
                for (key, (id, _)) in keys.iter().zip(asked.iter()) {
                    tx.put(of, key, &bytes_of(id.unwrap_or(0))).await?;
                }
                Ok(())
            })
            .await?;
        let horizons = (before_ms, self.horizon());
        for (key, asked) in keys.iter().zip(asked.iter()) {
            self.ends((table, key), *asked, horizons);
        }
        Ok(())
    }

    fn id(&self, value: &[u8]) -> u64 {
        id_of(value).unwrap_or_else(|wrong| {
            self.model.lock().fail(wrong);
            0
        })
    }

    async fn get(&self, table: usize, key: &[u8]) -> Result<Option<u64>> {
        let before_ms = self.horizon();
        let found = match key.last().is_some_and(|last| last.is_multiple_of(2)) {
            true => self.tables[table].get(key).await?,
            false => self.session.snapshot()?.get(&self.plain[table], key).await?,
        };
        let found = found.map(|value| self.id(&value));
        let horizons = (before_ms, self.horizon());
        self.model.lock().reads((table, key), found, horizons);
        Ok(found)
    }

    /// Reads all records of this task.
    async fn range(&mut self, table: usize) -> Result<()> {
        let prefix = format!("{} ", self.task);
        let before_ms = self.horizon();
        let mut range = self.tables[table].range(Prefix(&prefix))?;
        if self.rng.bool() {
            range = range.reverse();
        }
        let mut found = BTreeMap::new();
        while let Some((key, value)) = range.next().await? {
            let id = self.id(&value);
            found.insert(key, id);
        }
        let horizons = (before_ms, self.horizon());
        let mut model = self.model.lock();
        for key in model.keys_of(table) {
            if key.starts_with(prefix.as_bytes()) {
                model.reads((table, &key), found.remove(&key), horizons);
            }
        }
        if let Some(key) = found.into_keys().next() {
            model.fail(format!("the range has the key {}, which was not put", key.escape_ascii()));
        }
        Ok(())
    }
}
