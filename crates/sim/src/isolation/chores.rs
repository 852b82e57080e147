//! Maintenance of a store while transactions run: checkpoints, compactions, tables that are created
//! and dropped, backups that are read.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use qpair_block::{BlockDevice, RamDevice, RamOptions};
use qpair_engine::{Error, ErrorKind, Result, Store, StoreOptions};

use super::plan::Plan;
use crate::lists::{Lists, TABLES};

/// The number of the process that reads backups.
const READER: u32 = u32::MAX - 1;
/// The most backups of a run. Each opens a store of its own.
const BACKUPS_MAX: u64 = 3;

fn other_name(name: &str) -> String {
    format!("{name}, renamed")
}

/// Undoes the incomplete work of a killed process: names of lists' tables, and tables that it would
/// have dropped.
pub(super) fn tidy_up(store: &Store) -> Result<()> {
    for name in store.table_names()? {
        if let Some(of_list) = TABLES.iter().find(|one| other_name(one) == name) {
            store.rename_table(&name, of_list)?;
        } else if !TABLES.contains(&name.as_str()) {
            store.drop_table(&name)?;
        }
    }
    Ok(())
}

pub(super) struct Chores<'s> {
    store: &'s Store,
    lists: Arc<Lists>,
    page_size: usize,
    rng: Rng,
    made: u32,
    pub(super) backups: u64,
}

impl<'s> Chores<'s> {
    pub(super) fn new(store: &'s Store, lists: Arc<Lists>, plan: &Plan, rng: Rng) -> Self {
        Self { store, lists, page_size: plan.page_size, rng, made: 0, backups: 0 }
    }

    pub(super) fn some(&mut self) {
        let (doing, outcome) = match self.rng.u8(0..16) {
            0..3 => ("a checkpoint", self.store.checkpoint()),
            3 => ("a compaction", self.store.compact(&|_, _| ControlFlow::Continue(())).map(drop)),
            4..7 => ("a table that comes and goes", self.table()),
            7 => ("a list's table renamed", self.rename()),
            8 if self.backups < BACKUPS_MAX => ("a backup", self.backup()),
            _ => {
                std::thread::sleep(Duration::from_micros(self.rng.u64(100..5000)));
                return;
            }
        };
        if let Err(error) = outcome {
            self.refused(doing, &error);
        }
    }

    /// Accepts the errors that maintenance may return: a full pool, and a lack of free pages.
    fn refused(&self, doing: &str, error: &Error) {
        if !matches!(error.kind(), ErrorKind::Limit | ErrorKind::NoSpace) {
            self.lists.take_error(doing, error);
        }
    }

    fn table(&mut self) -> Result<()> {
        self.made += 1;
        let (name, other) = (format!("made-{}", self.made), format!("renamed-{}", self.made));
        let table = self.store.table(&name)?;
        for key in 0..self.rng.u32(0..40) {
            table.put(&key.to_be_bytes(), &[7; 50])?;
        }
        drop(table);
        if self.rng.bool() {
            self.store.rename_table(&name, &other)?;
            return self.store.drop_table(&other);
        }
        self.store.drop_table(&name)
    }

    /// Renames a table and back, while handles of the table stay in use.
    fn rename(&mut self) -> Result<()> {
        let name = TABLES[self.rng.usize(0..TABLES.len())];
        self.store.rename_table(name, &other_name(name))?;
        std::thread::sleep(Duration::from_micros(200));
        self.store.rename_table(&other_name(name), name)
    }

    /// Makes a backup, and reads all its data as a transaction at the backup's time.
    fn backup(&mut self) -> Result<()> {
        let device = |options| -> Result<Arc<dyn BlockDevice>> {
            let device = RamDevice::new(options);
            Ok(Arc::new(device.map_err(|error| Error::block(error, "making a device"))?))
        };
        let target = device(RamOptions { size_bytes: 1 << 20, ..RamOptions::default() })?;
        let began = self.lists.recorder.now();
        self.store.backup(vec![target.clone()], None, &|_, _| ControlFlow::Continue(()))?;
        let ended = self.lists.recorder.now();
        let options = StoreOptions {
            memory_bytes: 512 * self.page_size as u64,
            workers: 1,
            page_size: self.page_size,
            ..StoreOptions::default()
        };
        let copy = Store::open(vec![target], &options)?;
        self.lists.read_copy(&copy, READER, Some((began, ended)), &mut self.rng)?;
        copy.close()?;
        self.backups += 1;
        Ok(())
    }
}
