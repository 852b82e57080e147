//! Lost writes that the device reported as successful: pages with a right checksum, from another
//! time.
//!
//! No check can detect the wrong answers that a store like this may give. It must not panic, and
//! every call must end.

use std::ops::Bound;

use qpair_engine::{CheckReport, Error, Step, Store, Table};

use super::catalog::{SLOTS, TABLES, name_of};
use super::lives::Run;
use super::scenario::Life;

/// The maximum number of steps until everything in progress has ended.
const STEPS_MAX: u64 = 1_000_000;
/// The maximum number of records of a scan. There are fewer keys.
const RECORDS_MAX: usize = 100_000;

impl Run {
    pub(super) fn damage_stale(&mut self) -> Result<(), String> {
        if self.expected()?.is_none() {
            return Ok(());
        }
        let (unit, older) = (self.scenario.page_size, std::mem::take(&mut self.older));
        let done = self.world.change(|contents, rng| {
            let mut done = Vec::new();
            for _ in 0..rng.u8(1..20) {
                let member = rng.usize(0..contents.len());
                let old = &older[rng.usize(0..older.len())][member];
                let pages = old.len().min(contents[member].len()) / unit;
                let range = |page: usize| page * unit..(page + 1) * unit;
                let differs = |page: &usize| {
                    let (old, new) = (&old[range(*page)], &contents[member][range(*page)]);
                    old != new && old.iter().any(|byte| *byte != 0)
                };
                let page = (0..200).map(|_| rng.usize(0..pages)).find(differs);
                if let Some(page) = page {
                    contents[member][range(page)].copy_from_slice(&old[range(page)]);
                    done.push(format!("member {member}: page {page} is as it was once"));
                }
            }
            done
        })?;
        done.into_iter().for_each(|done| self.say(done));
        let options = self.stepped_options();
        let store = match Store::open(self.world.members(), &options) {
            Ok(store) => store,
            Err(error) => {
                self.say(format!("not opened: {error}"));
                self.counts.noticed += 1;
                return Ok(());
            }
        };
        // An older superblock or record may have led to a recovery.
        let report = store.check(&|_, _| ());
        self.counts.noticed += u64::from(!report.as_ref().is_ok_and(CheckReport::is_sound));
        self.say(format!("check: {:?}", report.map(|report| report.faults)));
        let outcome = self.use_up(&store);
        store.crash();
        self.notes(|notes| {
            notes.wrong.clear();
            notes.catalog.end_life();
        });
        outcome
    }

    /// Works with a store, whatever it answers, and drops all its tables.
    fn use_up(&mut self, store: &Store) -> Result<(), String> {
        let names = TABLES.map(str::to_owned).into_iter().chain((0..SLOTS).map(name_of));
        let names: Vec<String> = names.collect();
        let found = names.iter().filter_map(|name| store.existing_table(name).ok().flatten());
        let tables: Vec<Table> = found.collect();
        for table in &tables {
            self.scan_both_ways(store, table)?;
        }
        if tables.len() >= TABLES.len() {
            self.notes(|notes| notes.catalog.begin_life(&tables[..TABLES.len()]));
            let life = Life { steps_per_task: 30, tasks: 4, ..Life::last() };
            let tasks = self.start(store, life);
            self.run_out(store, "tasks")?;
            drop(tasks);
        }
        drop(tables);
        for name in &names {
            let dropped = store.drop_table(name);
            self.say(format!("dropped {name}: {dropped:?}"));
        }
        self.run_out(store, "drops")
    }

    fn scan_both_ways(&mut self, store: &Store, table: &Table) -> Result<(), String> {
        let no_end = |records: usize| match records {
            RECORDS_MAX => Err("a scan of a damaged tree has no end".to_owned()),
            _ => Ok(()),
        };
        let all = (Bound::<&[u8]>::Unbounded, Bound::Unbounded);
        for reverse in [false, true] {
            let count = |range: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>| {
                range.take(RECORDS_MAX).take_while(Result::is_ok).count()
            };
            if let Ok(range) = table.range(all) {
                no_end(match reverse {
                    true => count(&mut range.reverse()),
                    false => count(&mut { range }),
                })?;
            }
            let Ok(snapshot) = store.snapshot() else { continue };
            if let Ok(range) = snapshot.range(table, all) {
                no_end(match reverse {
                    true => count(&mut range.reverse()),
                    false => count(&mut { range }),
                })?;
            }
        }
        Ok(())
    }

    /// Runs steps until nothing is in progress.
    fn run_out(&mut self, store: &Store, what: &str) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            if store.step() == Step::Stuck {
                return Ok(());
            }
        }
        Err(format!("damaged: {what} come to no end"))
    }
}
