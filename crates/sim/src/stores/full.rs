//! A full device: a task that deletes makes room, and must not be refused for ever.

use qpair_engine::{ErrorKind, Remedy, Store, Table};

use super::catalog::TABLES;
use super::lives::Run;
use super::value::Key;

/// The first key of this part of a run. Tasks do not use these keys.
const FIRST: u16 = 10_000;
const LAST: u16 = 30_000;
/// The number of times that a delete may be refused, with a checkpoint after each.
const REFUSALS_MAX: u32 = 3;

impl Run {
    /// Fills the devices if they are small, and deletes the records again. Returns whether the
    /// store can still be opened.
    pub(super) fn fill_up(&mut self) -> Result<bool, String> {
        if !self.scenario.is_small() {
            return Ok(true);
        }
        self.begin_well()?;
        let Some(store) = self.open()? else { return Ok(true) };
        let compression = self.scenario.compression(TABLES[0]);
        let filled = match store.compressed_table(TABLES[0], compression) {
            Ok(table) => self.fill(&table),
            // There is not even room to create the table.
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                store.crash();
                return Ok(true);
            }
            Err(error) => Err(format!("a table: {error}")),
        };
        self.say_shares(&store);
        let workers = self.workers;
        let closed = |error| format!("closing what was full: {error}");
        // Often the store is reopened between filling and deleting.
        let store = match (&filled, self.rng.u8(0..4)) {
            (Ok(_), 0) => {
                store.close().map_err(closed)?;
                self.open()?
            }
            (Ok(_), 1) => {
                store.crash();
                if self.rng.bool() {
                    self.world.power.cut();
                }
                self.begin_well()?;
                self.open()?
            }
            _ => Some(store),
        };
        let Some(mut store) = store else { return Ok(false) };
        self.say_shares(&store);
        let mut deleted = filled.and_then(|keys| Ok((self.delete(&store, &keys)?, keys)));
        if let Ok((false, keys)) = &deleted
            && self.workers > workers
        {
            // With more workers than before, the store may find no room. Open it with the previous
            // number.
            store.close().map_err(closed)?;
            let Some(narrower) = self.open_with(workers)? else { return Ok(false) };
            store = narrower;
            deleted = self.delete(&store, keys).map(|is_done| (is_done, Vec::new()));
        }
        let wrong = match deleted {
            Ok((true, _)) => return store.close().map_err(closed).map(|()| true),
            Ok((false, _)) => format!("{workers} workers filled a store, and find no room in it"),
            Err(wrong) => wrong,
        };
        store.crash();
        Err(wrong)
    }

    /// Puts records until there is no room, and returns their keys.
    fn fill(&mut self, table: &Table) -> Result<Vec<u16>, String> {
        let (mut keys, mut is_full) = (Vec::new(), false);
        for index in FIRST..LAST {
            let len = match self.rng.u8(0..8) {
                0 => self.rng.u32(0..4 * self.scenario.page_size as u32),
                _ => self.rng.u32(0..self.scenario.page_size as u32 / 4),
            };
            let value = self.notes(|notes| {
                let value = notes.oracle.fresh_value(len);
                notes.oracle.had(Key { table: 0, index }, value);
                value.bytes()
            });
            match table.put(&key_of(index), &value) {
                Ok(_) => keys.push(index),
                Err(error) if error.kind() == ErrorKind::TooLarge => {}
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    is_full = true;
                    break;
                }
                Err(error) => return Err(format!("filling a device: {:?}: {error}", error.kind())),
            }
        }
        self.counts.filled += u64::from(is_full);
        self.say(format!("{} records until the devices are full: {is_full}", keys.len()));
        if self.rng.bool() {
            self.rng.shuffle(&mut keys);
        }
        Ok(keys)
    }

    fn say_shares(&mut self, store: &Store) {
        let report = store.report();
        self.say(format!(
            "{} pages: {} free, {} of them kept for dirty pages; {} retained; logs have {}",
            report.pages,
            report.free_pages,
            report.reserve_pages,
            report.retained_pages,
            report.log_pages
        ));
    }

    /// Deletes all of these keys. Returns `false` if the store reports that it has too many workers
    /// to delete.
    fn delete(&mut self, store: &Store, keys: &[u16]) -> Result<bool, String> {
        let table = store.table(TABLES[0]).map_err(|error| format!("a table: {error}"))?;
        for (number, index) in keys.iter().enumerate() {
            let mut refusals = 0;
            while let Err(error) = table.delete(&key_of(*index)) {
                refusals += 1;
                self.say(format!("delete {number}: {:?}: {error}", error.kind()));
                self.say_shares(store);
                if number == 0 && error.remedy() == Some(Remedy::FewerWorkers) {
                    return Ok(false);
                }
                if error.kind() != ErrorKind::NoSpace || refusals > REFUSALS_MAX {
                    let what = format!("delete {number} of {} on a full device", keys.len());
                    return Err(format!("{what}, {refusals} times: {:?}: {error}", error.kind()));
                }
                let checkpoint = store.checkpoint();
                self.say(format!("a checkpoint: {checkpoint:?}"));
            }
        }
        match keys.iter().find(|index| !matches!(table.get(&key_of(**index)), Ok(None))) {
            Some(index) => Err(format!("{index} was deleted on a full device, and is there")),
            None => Ok(true),
        }
    }
}

fn key_of(index: u16) -> Vec<u8> {
    Key { table: 0, index }.bytes()
}
