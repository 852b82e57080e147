//! The tables of a simulated store: four permanent ones, and some temporary ones.
//!
//! - The permanent tables have the numbers 0 to 3. Each temporary table has a number that no table
//!   had before it, and one of a few names.
//! - For the oracle, a name is a key of the table [`CATALOG`]. The key's value is the number of the
//!   table that has the name.
//! - A table has each name at most once, so a table and its name identify the commit that named it.

use std::collections::{BTreeMap, BTreeSet};

use qpair_engine::Table;

use super::value::{Key, LONG, Value};

/// The names of the permanent tables: first those for single changes, then those for transactions.
pub(crate) const TABLES: [&str; 4] = ["single", "another", "shared", "common"];
/// The number of tables for single changes.
pub(crate) const SINGLES: usize = 2;

/// The number of the first temporary table.
pub(crate) const TEMPORARY: u16 = 16;
/// The number of the oracle's table of names.
pub(crate) const CATALOG: u16 = u16::MAX;
/// The number of names for temporary tables.
pub(crate) const SLOTS: u16 = 3;

pub(crate) fn name_of(slot: u16) -> String {
    format!("temporary-{slot}")
}

/// Returns the oracle's key for a name.
pub(crate) fn key_of(slot: u16) -> Key {
    Key { table: CATALOG, index: slot }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Slot {
    #[default]
    Free,
    Taken(u16),
    /// The last change of the table failed, so its state is not known.
    Doubt,
}

#[derive(Default)]
pub(crate) struct Catalog {
    pub(crate) slots: [Slot; SLOTS as usize],
    last: u16,
    /// Whether half of the temporary tables have long keys.
    long_keys: bool,
    /// The values of the names' keys, by slot and table number.
    values: BTreeMap<(u16, u16), Value>,
    /// The store's own names for trees, which identify an empty table.
    trees: BTreeMap<String, u16>,
    /// The tables whose creation is in doubt, by slot.
    doubtful: BTreeMap<u16, u16>,
    /// The handles of all tables, including dropped ones.
    handles: BTreeMap<u16, Table>,
    open: Vec<u16>,
    /// Tables whose drop was requested.
    dropping: BTreeSet<u16>,
    /// Tables whose drop was acknowledged.
    dropped: BTreeSet<u16>,
}

impl Catalog {
    pub(crate) fn new(long_keys: bool) -> Self {
        Self { long_keys, ..Self::default() }
    }

    /// Begins an incarnation, with new handles for the tables.
    pub(crate) fn begin_life(&mut self, tables: &[Table]) {
        self.dropping.clear();
        self.dropped.clear();
        self.handles = (0..).zip(tables.iter().cloned()).collect();
        self.open = (SINGLES as u16..TABLES.len() as u16).collect();
    }

    /// Returns the number for a new table in a slot, and the value of its name, which is in doubt
    /// at first.
    pub(crate) fn begin_table(&mut self, slot: u16, id: u64) -> (u16, Value) {
        self.last = self.last.max(TEMPORARY - 1) + 1;
        let is_long = self.long_keys && self.last & 2 == 0;
        let number = if is_long { self.last | LONG } else { self.last };
        let value = Value { id, len: number.into() };
        self.values.insert((slot, number), value);
        self.doubtful.insert(slot, number);
        self.slots[usize::from(slot)] = Slot::Doubt;
        (number, value)
    }

    /// Notes that the table was created, or found.
    pub(crate) fn has_table(&mut self, slot: u16, number: u16, table: Table) {
        self.trees.insert(tree_of(&table), number);
        self.doubtful.remove(&slot);
        self.handles.insert(number, table);
        self.slots[usize::from(slot)] = Slot::Taken(number);
    }

    pub(crate) fn open(&mut self, number: u16) {
        self.open.push(number);
    }

    /// Notes that the table in a slot is about to be dropped, and returns its number.
    pub(crate) fn begin_drop(&mut self, slot: u16) -> Option<u16> {
        let Slot::Taken(number) = self.slots[usize::from(slot)] else { return None };
        self.dropping.insert(number);
        self.slots[usize::from(slot)] = Slot::Doubt;
        Some(number)
    }

    pub(crate) fn is_dropped(&mut self, slot: u16, number: u16) {
        self.slots[usize::from(slot)] = Slot::Free;
        self.dropped.insert(number);
    }

    /// Chooses another, free slot that the table in `slot` was never in, for a rename. Returns the
    /// table, the slot, and the value of the new name. Both names are in doubt at first.
    pub(crate) fn begin_rename(&mut self, slot: u16, id: u64) -> Option<(u16, u16, Value)> {
        let Slot::Taken(number) = self.slots[usize::from(slot)] else { return None };
        let to = (0..SLOTS).find(|to| {
            self.slots[usize::from(*to)] == Slot::Free && !self.values.contains_key(&(*to, number))
        })?;
        let value = Value { id, len: number.into() };
        self.values.insert((to, number), value);
        for slot in [slot, to] {
            self.slots[usize::from(slot)] = Slot::Doubt;
        }
        Some((number, to, value))
    }

    pub(crate) fn is_renamed(&mut self, slot: u16, to: u16, number: u16) {
        self.slots[usize::from(slot)] = Slot::Free;
        self.slots[usize::from(to)] = Slot::Taken(number);
    }

    /// Returns a table for transactions; seldom one that was dropped.
    pub(crate) fn some_open(&self, rng: &mut fastrand::Rng) -> u16 {
        let number = self.open[rng.usize(0..self.open.len())];
        match self.dropped.contains(&number) && rng.u8(0..4) != 0 {
            true => SINGLES as u16,
            false => number,
        }
    }

    pub(crate) fn handle(&self, number: u16) -> Option<Table> {
        self.handles.get(&number).cloned()
    }

    /// Whether the drop of a table was requested.
    pub(crate) fn may_be_gone(&self, number: u16) -> bool {
        self.dropping.contains(&number)
    }

    /// Whether the drop of any table was requested in this incarnation.
    pub(crate) fn has_dropped(&self) -> bool {
        !self.dropping.is_empty()
    }

    /// Whether the drop of a table was acknowledged.
    pub(crate) fn is_gone(&self, number: u16) -> bool {
        self.dropped.contains(&number)
    }

    /// Identifies the table that was found under a name by one of its keys; an empty table by its
    /// tree.
    pub(crate) fn identify(&self, slot: u16, table: &Table, first: Option<Key>) -> Option<u16> {
        match first {
            Some(key) => Some(key.table).filter(|number| self.value(slot, *number).is_some()),
            None => {
                let doubtful = self.doubtful.get(&slot);
                self.trees.get(&tree_of(table)).or(doubtful).copied()
            }
        }
    }

    /// Returns the value of a table's name in a slot, if the table ever was there.
    pub(crate) fn value(&self, slot: u16, number: u16) -> Option<Value> {
        self.values.get(&(slot, number)).copied()
    }

    /// Continues with the tables that were found, by slot.
    pub(crate) fn recovered(&mut self, found: &BTreeMap<u16, (u16, Table)>) {
        self.trees.clear();
        self.doubtful.clear();
        self.slots = Default::default();
        for (slot, (number, table)) in found {
            self.has_table(*slot, *number, table.clone());
            self.open.push(*number);
        }
    }

    /// Drops all handles, so that the store can be closed.
    pub(crate) fn end_life(&mut self) {
        self.handles.clear();
    }
}

fn tree_of(table: &Table) -> String {
    format!("{table:?}")
}
