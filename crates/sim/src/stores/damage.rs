//! Damage: the data on the devices differs from the data written. Every read must report this or be
//! correct.
//!
//! - A closed store is damaged and opened. Each record must be unchanged, or an error. Pages that
//!   errors name must also be named by the check of every page.
//! - A store is damaged while it is in use, and the process ends. The store must be recovered, or
//!   opening it must be refused. The oracle knows the permitted values of everything that can be
//!   read.
//! - Then the store is repaired: see [`super::salvage`].

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use qpair_engine::{CheckReport, Error, ErrorKind, Runtime, Store, StoreOptions, Table};
use qpair_sim_block::SimFaults;

use super::catalog::{SLOTS, TABLES, key_of, name_of};
use super::lives::{Cut, Run};
use super::salvage::Condition;
use super::scenario::{Damage, Life};
use super::value::{Key, Value};

#[derive(Default)]
struct Readable {
    found: BTreeMap<Key, Value>,
    unknown: BTreeSet<Key>,
    errors: Vec<Error>,
}

impl Run {
    pub(super) fn stepped_options(&mut self) -> StoreOptions {
        let clock = self.world.clock.clone();
        let runtime = Runtime::Stepped { seed: self.rng.u64(..), clock };
        let log_place = self.world.log_place();
        StoreOptions { runtime, log_place, canary: self.canary, ..self.scenario.store_options() }
    }

    /// Damages the store, if the scenario requires that, and checks how the store reports it.
    pub(super) fn damage(&mut self) -> Result<(), String> {
        let Some(damage) = self.scenario.damage else { return Ok(()) };
        self.counts.damaged += 1;
        let noticed = self.counts.noticed;
        match damage {
            Damage::Nothing if self.expected()?.is_none() => return Ok(()),
            Damage::Nothing => {}
            Damage::Closed => self.damage_closed()?,
            Damage::Running => self.damage_running()?,
            Damage::Stale => self.damage_stale()?,
        }
        self.salvage(match damage {
            Damage::Nothing => Condition::Whole,
            Damage::Stale => Condition::Stale,
            _ if self.counts.noticed > noticed => Condition::Damaged,
            _ => Condition::Doubtful,
        })?;
        match super::runner::take_panics().first() {
            Some(panic) => Err(format!("a panic over damage: {panic}")),
            None => Ok(()),
        }
    }

    /// Opens the store once more, and returns its content when it was closed again.
    pub(super) fn expected(&mut self) -> Result<Option<BTreeMap<Key, Value>>, String> {
        self.begin_well()?;
        let Some(store) = self.open()? else { return Ok(None) };
        let expected = self.read_all(&store).map_err(text_of)?;
        self.notes(|notes| notes.oracle.recovered(&expected.values))?;
        self.notes(|notes| {
            notes.catalog.recovered(&expected.temporary);
            notes.catalog.end_life();
        });
        let values = expected.values;
        drop(expected.temporary);
        store.close().map_err(|error| format!("closing: {error}"))?;
        Ok(Some(values))
    }

    fn damage_closed(&mut self) -> Result<(), String> {
        let Some(expected) = self.expected()? else { return Ok(()) };
        let unit = self.scenario.page_size;
        let done = self.world.change(|contents, rng| change(contents, unit, rng))?;
        done.into_iter().for_each(|done| self.say(done));
        let options = self.stepped_options();
        let refusal = match Store::open(self.world.members(), &options) {
            Ok(store) => {
                let report = store.check(&|_, _| ());
                let readable = self.read_what_can(&store);
                store.crash();
                let report = report.map_err(|error| format!("check: {error}"))?;
                return self.judge_readable(&expected, &readable?, &report);
            }
            Err(error) => error,
        };
        self.refused(&refusal)?;
        // A read-only open shows the damage to its caller.
        let options = StoreOptions { read_only: true, at_checkpoint: true, ..options };
        let store = match Store::open(self.world.members(), &options) {
            Ok(store) => store,
            Err(error) => return self.refused(&error),
        };
        let report = store.check(&|_, _| ());
        store.crash();
        match report.map_err(|error| format!("check: {error}"))? {
            report if report.is_sound() => {
                Err(format!("check is content with a store that does not open: {refusal}"))
            }
            _ => Ok(()),
        }
    }

    fn judge_readable(
        &mut self,
        expected: &BTreeMap<Key, Value>,
        readable: &Readable,
        report: &CheckReport,
    ) -> Result<(), String> {
        self.counts.noticed += u64::from(!report.is_sound());
        self.say(format!("check: {:?}, reading: {:?}", report.faults, readable.errors));
        for (key, value) in &readable.found {
            if expected.get(key) != Some(value) {
                return Err(format!("damaged, {key:?} is {value:?}, not {:?}", expected.get(key)));
            }
        }
        let lost =
            |key: &&Key| !readable.found.contains_key(key) && !readable.unknown.contains(key);
        if let Some(key) = expected.keys().find(lost) {
            return Err(format!("damaged, {key:?} is not there, and nobody says why"));
        }
        for error in &readable.errors {
            let page = page_named(&error.to_string());
            let named = |fault: &String| page.is_none() || page_named(fault) == page;
            if !report.faults.iter().any(named) {
                let faults = &report.faults;
                return Err(format!("check does not name what a read met: {error}: {faults:?}"));
            }
        }
        Ok(())
    }

    fn damage_running(&mut self) -> Result<(), String> {
        let life = Life::damaged(&mut self.rng);
        self.live(life)?;
        self.world.power_on()?;
        self.world.set_faults(SimFaults::default());
        let options = self.stepped_options();
        let store = match Store::open(self.world.members(), &options) {
            Ok(store) => store,
            Err(error) => return self.refused(&error),
        };
        let readable = self.read_what_can(&store);
        store.crash();
        let readable = readable?;
        self.counts.noticed += u64::from(!readable.errors.is_empty());
        let (found, unknown) = (readable.found, readable.unknown);
        self.say(format!("{} records can be read, {} not", found.len(), unknown.len()));
        self.notes(|notes| notes.oracle.damaged(&found, unknown))
    }

    /// Judges an error of opening the damaged store.
    fn refused(&mut self, error: &Error) -> Result<(), String> {
        self.say(format!("not opened: {:?}: {error}", error.kind()));
        let small = self.scenario.is_small();
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::NotAStore | ErrorKind::Member => {
                self.counts.noticed += 1;
                Ok(())
            }
            ErrorKind::NoSpace if small => Ok(()),
            kind => Err(format!("opening a damaged store: {kind:?}: {error}")),
        }
    }

    /// Reads each possible key, and then scans all keys in both directions.
    fn read_what_can(&self, store: &Store) -> Result<Readable, String> {
        let mut readable = Readable::default();
        let all = self.notes(|notes| notes.oracle.keys());
        for (number, name) in (0..).zip(TABLES) {
            let keys: BTreeSet<Key> =
                all.iter().filter(|key| key.table == number).copied().collect();
            match store.existing_table(name) {
                Ok(Some(table)) => readable.read(&table, &keys)?,
                Ok(None) => {}
                Err(error) => readable.fail(error, keys)?,
            }
        }
        for slot in 0..SLOTS {
            let known = self.notes(|notes| {
                let Some(table) = store.existing_table(&name_of(slot))? else { return Ok(None) };
                let first = table.range(..)?.next().transpose()?;
                let first = first.and_then(|(key, _)| Key::parse_any(&key));
                let number = notes.catalog.identify(slot, &table, first);
                let value = number.and_then(|number| notes.catalog.value(slot, number));
                Ok(Some((table, number.zip(value))))
            });
            match known {
                Ok(Some((table, Some((number, value))))) => {
                    readable.found.insert(key_of(slot), value);
                    let keys = all.iter().filter(|key| key.table == number).copied().collect();
                    readable.read(&table, &keys)?;
                }
                Ok(Some((_, None))) => {
                    return Err(format!("damaged, {} was never made", name_of(slot)));
                }
                Ok(None) => {}
                Err(error) => {
                    // The error does not say which of these tables is affected.
                    let any = all.iter().filter(|key| usize::from(key.table) >= TABLES.len());
                    let unknown = any.copied().filter(|key| key.table != key_of(slot).table);
                    readable.fail(error, unknown.chain([key_of(slot)]))?;
                }
            }
        }
        let found = &readable.found;
        readable.unknown.retain(|key| !found.contains_key(key));
        Ok(readable)
    }
}

impl Readable {
    fn fail(&mut self, error: Error, keys: impl IntoIterator<Item = Key>) -> Result<(), String> {
        if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) {
            return Err(format!("damaged: {:?}: {error}", error.kind()));
        }
        self.errors.push(error);
        self.unknown.extend(keys);
        Ok(())
    }

    fn read(&mut self, table: &Table, keys: &BTreeSet<Key>) -> Result<(), String> {
        let mut here = BTreeMap::new();
        for key in keys {
            match table.get(&key.bytes()) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    let value = Value::parse(&bytes)
                        .ok_or_else(|| format!("damaged, {key:?} has bytes that nobody wrote"))?;
                    here.insert(*key, value);
                }
                Err(error) => self.fail(error, [*key])?,
            }
        }
        for reverse in [false, true] {
            self.scan(table, reverse, &here)?;
        }
        self.found.extend(here);
        Ok(())
    }

    /// Compares a scan with the results of single reads.
    fn scan(
        &mut self,
        table: &Table,
        reverse: bool,
        here: &BTreeMap<Key, Value>,
    ) -> Result<(), String> {
        let range = match table.range(..) {
            Ok(range) if reverse => range.reverse(),
            Ok(range) => range,
            Err(error) => return self.fail(error, []),
        };
        let mut met = BTreeSet::new();
        for entry in range {
            let (key, value) = match entry {
                Ok(entry) => entry,
                Err(error) => return self.fail(error, []),
            };
            let (key, value) = (Key::parse_any(&key), Value::parse(&value));
            let (Some(key), Some(value)) = (key, value) else {
                return Err("damaged, a scan has a record that nobody wrote".to_owned());
            };
            let unknown = self.unknown.contains(&key);
            if here.get(&key) != Some(&value) && !unknown || !met.insert(key) {
                let other = here.get(&key);
                return Err(format!("damaged, a scan has {value:?} for {key:?}, not {other:?}"));
            }
        }
        match here.keys().find(|key| !met.contains(key)) {
            Some(key) => Err(format!("damaged, a scan has passed {key:?} by")),
            None => Ok(()),
        }
    }
}

/// Returns the first page that a message names.
fn page_named(text: &str) -> Option<u64> {
    text.split("page ").skip(1).find_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })
}

/// Damages the content of the devices, and returns a description of the damage.
fn change(contents: &mut [Vec<u8>], page_size: usize, rng: &mut Rng) -> Vec<String> {
    let mut done = Vec::new();
    for _ in 0..rng.u8(1..8) {
        let member = rng.usize(0..contents.len());
        let content = &mut contents[member];
        let page = |rng: &mut Rng, content: &[u8]| {
            // Most pages are empty; damage the used ones.
            let pages = content.len() / page_size;
            let page = (0..200).map(|_| rng.usize(0..pages)).find(|page| {
                content[page * page_size..][..page_size].iter().any(|byte| *byte != 0)
            });
            page.unwrap_or(0)
        };
        let (one, other) = (page(rng, content), page(rng, content));
        let at = one * page_size;
        done.push(match rng.u8(0..4) {
            0 => {
                content[at..at + page_size].fill(0);
                format!("member {member}: page {one} is zeroes")
            }
            1 => {
                content.copy_within(other * page_size..(other + 1) * page_size, at);
                format!("member {member}: page {other} is at page {one} too")
            }
            _ => {
                let bit = rng.usize(0..page_size * 8);
                content[at + bit / 8] ^= 1 << (bit % 8);
                format!("member {member}: bit {bit} of page {one} has flipped")
            }
        });
    }
    done
}

fn text_of(cut: Cut) -> String {
    match cut {
        Cut::Excused(why) | Cut::Wrong(why) => why,
    }
}
