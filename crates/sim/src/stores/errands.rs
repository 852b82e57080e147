//! Management operations of a store that a separate thread runs while tasks continue.
//!
//! Tables are created, renamed and dropped, also while transactions use them and while they are
//! loaded. Checkpoints are requested; the store is read into memory and compacted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use qpair_engine::{Error, ErrorKind, JoinHandle, Store};

use super::catalog::{SLOTS, Slot, key_of, name_of};
use super::lives::{Cut, Run};
use super::oracle::Outcome;
use super::workload::Load;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errands {
    /// Whether the store or its devices failed, so that no further operations follow.
    over: bool,
    /// The number of tables that were created. Each keeps a frame until the store is closed, even
    /// if it was dropped.
    tables: u64,
}

impl Run {
    pub(super) fn errand(
        &mut self,
        store: &Store,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> Result<(), Cut> {
        if self.errands.over {
            return Ok(());
        }
        self.counts.errands += 1;
        let slot = self.rng.u16(0..SLOTS);
        let state = self.notes(|notes| notes.catalog.slots[usize::from(slot)]);
        match (self.rng.u8(0..22), state) {
            (0..4, _) => self.ask_for_checkpoint(store),
            (4..6, _) => self.back_up(store),
            (16..19, _) => self.compact(store),
            (19, _) => self.warm(store),
            (20.., _) => self.read_beside(store),
            (_, Slot::Free) if self.errands.tables < self.scenario.frames / 4 => {
                self.errands.tables += 1;
                self.make_table(store, slot, tasks)
            }
            (6..11, Slot::Taken(_)) => self.drop_table(store, slot),
            (11..14, Slot::Taken(_)) => self.rename_table(store, slot),
            _ => Ok(()),
        }
    }

    /// Handles an error of a management operation. Tasks may continue.
    pub(super) fn errand_failed(&mut self, doing: &str, error: &Error) -> Result<(), Cut> {
        self.say(format!("{doing}: {error}"));
        match self.judge_error(doing, error) {
            Cut::Excused(_) => {
                self.errands.over = error.kind() != ErrorKind::NoSpace;
                Ok(())
            }
            wrong => Err(wrong),
        }
    }

    fn ask_for_checkpoint(&mut self, store: &Store) -> Result<(), Cut> {
        let asked = self.notes(|notes| notes.oracle.begins());
        match store.checkpoint() {
            Ok(()) => {
                self.say("a checkpoint");
                self.notes(|notes| notes.oracle.settles(asked));
                Ok(())
            }
            Err(error) => self.errand_failed("a checkpoint", &error),
        }
    }

    /// Reads as much of the store into memory as there is room for. Sometimes the read is
    /// interrupted.
    fn warm(&mut self, store: &Store) -> Result<(), Cut> {
        let pages_max = self.rng.bool().then(|| self.rng.u64(..64));
        let warmed = store.warm(&|done, _| match pages_max {
            Some(most) if done > most => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        match warmed {
            Ok(report) => self.say(format!("read {} pages into memory", report.pages)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                self.say("reading into memory was broken off".to_owned());
            }
            Err(error) => return self.errand_failed("reading into memory", &error),
        }
        Ok(())
    }

    /// Moves pages to the front and truncates the devices, while tasks continue. Sometimes the
    /// compaction is interrupted.
    fn compact(&mut self, store: &Store) -> Result<(), Cut> {
        let breaks_off = self.rng.bool();
        let rng = RefCell::new(self.rng.fork());
        let compacted = store.compact(&|_, _| {
            let mut rng = rng.borrow_mut();
            (0..rng.u32(0..60)).for_each(|_| {
                let _ = store.step();
            });
            match breaks_off && rng.u8(0..8) == 0 {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        match compacted {
            Ok(report) => {
                self.counts.compactions += 1;
                self.counts.cut_off += u64::from(report.bytes_after < report.bytes_before);
                self.counts.moved += report.moved_pages;
                // The duration is left out: it is real time, and differs from run to run.
                self.say(format!(
                    "compacted: {} to {} bytes, {} pages moved",
                    report.bytes_before, report.bytes_after, report.moved_pages
                ));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                self.say("a compaction was broken off".to_owned());
            }
            Err(error) => return self.errand_failed("a compaction", &error),
        }
        Ok(())
    }

    /// Creates a table, for transactions or to be loaded.
    fn make_table(
        &mut self,
        store: &Store,
        slot: u16,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> Result<(), Cut> {
        let (record, number) = self.notes(|notes| {
            let id = notes.oracle.fresh_value(0).id;
            let (number, value) = notes.catalog.begin_table(slot, id);
            let began = notes.oracle.begins();
            let writes = BTreeMap::from([(key_of(slot), Some(value))]);
            (notes.oracle.asks(began, Vec::new(), writes, false), number)
        });
        let name = name_of(slot);
        let table = match store.compressed_table(&name, self.scenario.compression(&name)) {
            Ok(table) => table,
            Err(error) => return self.errand_failed("making a table", &error),
        };
        let durable = self.scenario.is_durable(qpair_engine::Durability::Sync);
        let loads = self.rng.bool();
        self.notes(|notes| {
            notes.oracle.ends(record, Outcome::Done { timestamp: None, durable });
            notes.catalog.has_table(slot, number, table.clone());
            if !loads {
                notes.catalog.open(number);
            }
        });
        self.say(format!("made table {number}{}", if loads { ", to be loaded" } else { "" }));
        if loads {
            let load = Load { context: self.context(0), number };
            let table = table.task();
            tasks.push(store.spawn(move || load.run(table)));
        }
        Ok(())
    }

    fn rename_table(&mut self, store: &Store, slot: u16) -> Result<(), Cut> {
        let begun = self.notes(|notes| {
            let id = notes.oracle.fresh_value(0).id;
            let (number, to, value) = notes.catalog.begin_rename(slot, id)?;
            let began = notes.oracle.begins();
            let writes = BTreeMap::from([(key_of(slot), None), (key_of(to), Some(value))]);
            Some((notes.oracle.asks(began, Vec::new(), writes, false), number, to))
        });
        let Some((record, number, to)) = begun else { return Ok(()) };
        if let Err(error) = store.rename_table(&name_of(slot), &name_of(to)) {
            return self.errand_failed("renaming a table", &error);
        }
        let durable = self.scenario.is_durable(qpair_engine::Durability::Sync);
        self.notes(|notes| {
            notes.oracle.ends(record, Outcome::Done { timestamp: None, durable });
            notes.catalog.is_renamed(slot, to, number);
        });
        self.counts.renames += 1;
        self.say(format!("renamed table {number} from {} to {}", name_of(slot), name_of(to)));
        Ok(())
    }

    fn drop_table(&mut self, store: &Store, slot: u16) -> Result<(), Cut> {
        let begun = self.notes(|notes| {
            let number = notes.catalog.begin_drop(slot)?;
            let began = notes.oracle.begins();
            let writes = BTreeMap::from([(key_of(slot), None)]);
            Some((notes.oracle.asks(began, Vec::new(), writes, false), number))
        });
        let Some((record, number)) = begun else { return Ok(()) };
        if let Err(error) = store.drop_table(&name_of(slot)) {
            return self.errand_failed("dropping a table", &error);
        }
        let durable = self.scenario.is_durable(qpair_engine::Durability::Sync);
        self.notes(|notes| {
            notes.oracle.ends(record, Outcome::Done { timestamp: None, durable });
            notes.catalog.is_dropped(slot, number);
        });
        self.say(format!("dropped table {number}"));
        Ok(())
    }
}
