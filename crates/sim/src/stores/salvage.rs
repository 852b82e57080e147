//! Repair of a damaged store into a new one, whose devices may fail meanwhile.
//!
//! - However the repair ends, the damaged store is unchanged, to the byte.
//! - A store without damage is reported as such, and no new store is made.
//! - Every salvaged record existed at some time. Records that are not reported as lost or out of
//!   date match the oracle.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use qpair_engine::{Error, ErrorKind, Store, StoreOptions};
use qpair_inspect::{RepairReport, RepairedTable, repair};
use qpair_sim_block::SimFaults;

use super::catalog::{SLOTS, TABLES, key_of, name_of};
use super::lives::Run;
use super::state::{Unread, read_table};
use super::value::{Key, Value};
use super::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// The store has no damage.
    Whole,
    /// The store may have damage.
    Doubtful,
    /// The store has damage that a read has met.
    Damaged,
    /// Some pages are from another time: they were right once.
    Stale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Nothing,
    /// Reads of the damaged store fail at some places.
    Read,
    /// Writes to the new store fail.
    Write,
    /// The new store loses power at this write or flush.
    Cut(u64),
    /// The caller interrupts the repair.
    BrokenOff,
}

type Found = BTreeMap<String, Vec<(Key, Value)>>;

impl Run {
    /// Repairs the store, perhaps at the second attempt, and judges the salvaged data.
    pub(super) fn salvage(&mut self, condition: Condition) -> Result<(), String> {
        let condition = match self.world.free_run()? {
            // The bad sectors can be read again.
            true if condition == Condition::Damaged => Condition::Doubtful,
            _ => condition,
        };
        let trouble = match self.rng.u8(0..10) {
            0 => Trouble::Read,
            1 => Trouble::Write,
            2 => Trouble::Cut(1 << self.rng.u8(0..8)),
            3 => Trouble::BrokenOff,
            _ => Trouble::Nothing,
        };
        match self.salvage_amid(condition, trouble)? {
            true => Ok(()),
            false => self.salvage_amid(condition, Trouble::Nothing).map(|_| ()),
        }
    }

    /// Repairs the store while this trouble occurs. Returns whether the repair is finished.
    fn salvage_amid(&mut self, condition: Condition, trouble: Trouble) -> Result<bool, String> {
        let before = self.world.contents();
        let mut target = self.world.another()?;
        match trouble {
            Trouble::Read => {
                self.world.set_faults(SimFaults { read_error: 0.01, ..SimFaults::default() });
            }
            Trouble::Write => {
                target.set_faults(SimFaults { write_error: 0.02, ..SimFaults::default() });
            }
            Trouble::Cut(changes) => target.power.cut_at_change(changes),
            Trouble::Nothing | Trouble::BrokenOff => {}
        }
        let options = self.stepped_options();
        let plain = StoreOptions { log_place: target.log_place(), ..self.stepped_options() };
        let made = Cell::new(false);
        let mut make = |page_size| {
            made.set(true);
            Store::open(
                target.members(),
                &StoreOptions { format: true, page_size, ..plain.clone() },
            )
        };
        let left = Cell::new(match trouble {
            Trouble::BrokenOff => self.rng.u32(0..20),
            _ => u32::MAX,
        });
        let progress = |_, _, _| match left.replace(left.get().saturating_sub(1)) {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let repaired = repair(&self.world.members(), &options, &mut make, &progress);
        self.world.set_faults(SimFaults::default());
        if self.world.contents() != before {
            return Err("repair has changed the store".to_owned());
        }
        let report = match repaired {
            Ok(report) => report,
            Err(error) => return self.not_repaired(condition, trouble, &error),
        };
        // The repair cannot tell a failed read from damage.
        let is_read = trouble == Trouble::Read;
        match (report.healthy, condition) {
            (true, _) if made.get() => {
                return Err("repair of a healthy store made another".to_owned());
            }
            (true, Condition::Damaged) => {
                return Err("repair calls a damaged store healthy".to_owned());
            }
            (true, _) => {
                self.say("repair: nothing is wrong");
                return Ok(true);
            }
            (false, Condition::Whole) if !is_read => {
                return Err(format!("repair finds fault with a healthy store: {report:?}"));
            }
            (false, _) => self.say(format!("repaired: {report:?}")),
        }
        target.set_faults(SimFaults::default());
        self.judge_target(condition, &mut target, &report).map(|()| true)
    }

    fn not_repaired(
        &mut self,
        condition: Condition,
        trouble: Trouble,
        error: &Error,
    ) -> Result<bool, String> {
        self.say(format!("not repaired: {error}"));
        match (error.kind(), trouble) {
            (ErrorKind::Interrupted, Trouble::BrokenOff) => Ok(false),
            (
                ErrorKind::Io | ErrorKind::ReadOnly | ErrorKind::Closed,
                Trouble::Write | Trouble::Cut(_),
            )
            | (ErrorKind::Io | ErrorKind::Corrupt, Trouble::Read) => Ok(false),
            // No superblock that names the store is left, or the members do not belong together any
            // more.
            (ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Member | ErrorKind::NotAStore, _)
                if condition != Condition::Whole =>
            {
                Ok(true)
            }
            (kind, _) => Err(format!("repair amid {trouble:?}: {kind:?}: {error}")),
        }
    }

    /// Judges the new store after its loss of power. The repair is over then.
    fn judge_target(
        &mut self,
        condition: Condition,
        target: &mut World,
        report: &RepairReport,
    ) -> Result<(), String> {
        target.power.cut();
        target.power_on()?;
        let options = StoreOptions { log_place: target.log_place(), ..self.stepped_options() };
        let failed = |error: Error| format!("what was salvaged: {:?}: {error}", error.kind());
        let store = Store::open(target.members(), &options).map_err(failed)?;
        let checked = store.check(&|_, _| ());
        let found = read_tables(&store);
        store.crash();
        let (checked, found) = (checked.map_err(failed)?, found?);
        if !checked.is_sound() {
            return Err(format!("what was salvaged is damaged: {:?}", checked.faults));
        }
        self.judge_salvaged(condition, report, &found)
    }

    fn judge_salvaged(
        &mut self,
        condition: Condition,
        report: &RepairReport,
        tables: &Found,
    ) -> Result<(), String> {
        for (name, records) in tables {
            self.counts.salvaged += records.len() as u64;
            let told = report.tables.iter().find(|table| table.name == *name);
            if told.is_none_or(|told| told.records != records.len() as u64) {
                return Err(format!("salvaged {} records of {name}: {told:?}", records.len()));
            }
            let stranger = |(key, value): &&(Key, Value)| {
                !self.notes(|notes| notes.oracle.was_ever(*key, *value))
            };
            if let Some((key, value)) = records.iter().find(stranger) {
                return Err(format!("salvaged {value:?} for {key:?}, which was never there"));
            }
        }
        let told = |what: &str| report.remarks.iter().any(|remark| remark.contains(what));
        let in_doubt = told("no checkpoint can be read")
            || told("names of tables may be missing")
            || report.log.is_some_and(|log| log.damaged);
        if in_doubt || condition == Condition::Stale {
            return Ok(());
        }
        let keys = self.notes(|notes| notes.oracle.keys());
        let (mut found, mut unknown) = (BTreeMap::new(), BTreeSet::new());
        let mut numbers: Vec<(String, u16)> =
            TABLES.map(str::to_owned).into_iter().zip(0..).collect();
        for slot in 0..SLOTS {
            let name = name_of(slot);
            let Some(records) = tables.get(&name) else { continue };
            let told = report.tables.iter().find(|table| table.name == name);
            let is_sure = |(key, _): &&(Key, Value)| !told.is_some_and(|told| is_lost(told, *key));
            let Some((first, _)) = records.iter().find(is_sure) else {
                // Nothing identifies the table: out-of-date data may belong to an earlier table of
                // that name.
                unknown.insert(key_of(slot));
                unknown.extend(keys.iter().filter(|key| usize::from(key.table) >= TABLES.len()));
                continue;
            };
            let value = self.notes(|notes| notes.catalog.value(slot, first.table));
            found.extend(value.map(|value| (key_of(slot), value)));
            numbers.push((name, first.table));
        }
        for (name, number) in numbers {
            let told = report.tables.iter().find(|table| table.name == name);
            let is_lost = |key: Key| told.is_some_and(|told| is_lost(told, key));
            unknown.extend(keys.iter().filter(|key| key.table == number && is_lost(**key)));
            let records = tables.get(&name).into_iter().flatten().copied();
            found.extend(records.filter(|(key, _)| !is_lost(*key)));
        }
        found.retain(|key, _| !unknown.contains(key));
        self.notes(|notes| notes.oracle.damaged(&found, unknown))
            .map_err(|wrong| format!("salvaged, and not told: {wrong}"))
    }
}

fn is_lost(told: &RepairedTable, key: Key) -> bool {
    let bytes = key.bytes();
    let mut ranges = told.lost.iter().chain(&told.stale);
    ranges.any(|range| range.from <= bytes && range.to.as_ref().is_none_or(|to| bytes < *to))
        || told.large_keys_lost.contains(&bytes)
        || told.large_values_lost > told.large_keys_lost.len() as u64
}

fn read_tables(store: &Store) -> Result<Found, String> {
    let failed = |error: Error| format!("reading what was salvaged: {error}");
    let mut found = Found::new();
    for name in store.table_names().map_err(failed)? {
        let Some(table) = store.existing_table(&name).map_err(failed)? else { continue };
        let records = read_table(&table).map_err(|why| match why {
            Unread::Error(error) => failed(error),
            Unread::Wrong(wrong) => format!("salvaged: {wrong}"),
        })?;
        found.insert(name, records);
    }
    Ok(found)
}
