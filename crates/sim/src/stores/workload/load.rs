//! Sorted loads, which are finished or given up: afterwards either all records exist, or none.

use std::collections::BTreeMap;

use qpair_engine::{BulkLoader, Error, ErrorKind, TaskTable, yield_now};

use super::TaskContext;
use crate::stores::oracle::Outcome;
use crate::stores::value::{Key, Value};

pub(crate) struct Load {
    pub(crate) context: TaskContext,
    pub(crate) number: u16,
}

impl Load {
    /// Loads the table. Then transactions may use it, if its content is known.
    pub(crate) async fn run(mut self, table: TaskTable) {
        let loaded = self.load(&table).await;
        let mut notes = self.context.notes();
        notes.operations += 1;
        match loaded {
            Ok(()) => notes.catalog.open(self.number),
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    && notes.catalog.may_be_gone(self.number) => {}
            Err(error) => {
                drop(notes);
                self.context.take_error("a sorted load", &error);
            }
        }
    }

    async fn load(&mut self, table: &TaskTable) -> Result<(), Error> {
        let mut loader = table.bulk_loader().await?;
        let most = self.context.rng.u16(1..=self.context.scenario.keys);
        let mut writes = BTreeMap::new();
        for index in (0..most).filter(|_| self.context.rng.u8(0..4) != 0).collect::<Vec<_>>() {
            let key = Key { table: self.number, index };
            let len = self.context.scenario.value_len(&mut self.context.rng);
            let value = {
                let mut notes = self.context.notes();
                let value = notes.oracle.fresh_value(len);
                // A repair may find the record's page on the device, even if the load fails.
                notes.oracle.had(key, value);
                value
            };
            if let Err(error) = loader.push(&key.bytes(), &value.bytes()).await {
                loader.abandon().await;
                return Err(error);
            }
            writes.insert(key, Some(value));
            if self.context.rng.u8(0..8) == 0 {
                yield_now().await;
            }
        }
        match self.context.rng.u8(0..10) {
            0 => loader.abandon().await,
            1 => drop(loader),
            2 => self.repeat(loader, &writes).await,
            3 => self.meddle(loader, table, writes).await?,
            _ => self.finish(loader, writes, false).await?,
        }
        Ok(())
    }

    /// Adds a key that the load already has.
    async fn repeat(&self, mut loader: BulkLoader, writes: &BTreeMap<Key, Option<Value>>) {
        if let Some(key) = writes.keys().next() {
            let pushed = loader.push(&key.bytes(), b"").await;
            if pushed.as_ref().err().map(Error::kind) != Some(ErrorKind::Invalid) {
                self.context.wrong(format!("a sorted load took {key:?} twice: {pushed:?}"));
            }
        }
        loader.abandon().await;
    }

    /// Puts a record while the load is in progress. The load must then fail.
    async fn meddle(
        &mut self,
        loader: BulkLoader,
        table: &TaskTable,
        writes: BTreeMap<Key, Option<Value>>,
    ) -> Result<(), Error> {
        let key = Key { table: self.number, index: self.context.rng.u16(0..9) };
        let value = self.context.notes().oracle.fresh_value(20);
        let record = {
            let oracle = &mut self.context.notes().oracle;
            let began = oracle.begins();
            oracle.asks(began, Vec::new(), BTreeMap::from([(key, Some(value))]), false)
        };
        if let Err(error) = table.put(&key.bytes(), &value.bytes()).await {
            loader.abandon().await;
            return Err(error);
        }
        let scenario = &self.context.scenario;
        let durable = scenario.is_durable(scenario.durability);
        self.context.notes().oracle.ends(record, Outcome::Done { timestamp: None, durable });
        self.finish(loader, writes, true).await
    }

    async fn finish(
        &self,
        loader: BulkLoader,
        writes: BTreeMap<Key, Option<Value>>,
        refused: bool,
    ) -> Result<(), Error> {
        let count = writes.len() as u64;
        let (asked, record) = {
            let oracle = &mut self.context.notes().oracle;
            let asked = oracle.begins();
            (asked, oracle.asks(asked, Vec::new(), writes, false))
        };
        let finished = loader.finish().await;
        let mut notes = self.context.notes();
        match finished {
            Ok(loaded) => {
                if loaded != count || refused {
                    notes.wrong.push(format!("a sorted load of {count} put {loaded}, {refused}"));
                }
                notes.oracle.ends(record, Outcome::Done { timestamp: None, durable: true });
                notes.oracle.settles(asked);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Invalid && refused => {
                notes.oracle.ends(record, Outcome::Refused);
                Ok(())
            }
            Err(error) => {
                if error.kind() == ErrorKind::NotFound {
                    notes.oracle.ends(record, Outcome::Refused);
                }
                Err(error)
            }
        }
    }
}
