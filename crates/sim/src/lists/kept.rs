//! The lists of one store, and how they are read and written.

use qpair_block::locks::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fastrand::Rng;
use qpair_engine::{Durability, Error, ErrorKind, Result, Store, Table};
use qpair_isolation::{Element, Isolation, List, Operation, Outcome, State, Transaction};

use super::access::{Reads, Session, Writes, ready};
use super::layout::{self, Layout, Row, TABLES};
use super::recorder::Recorder;

const OPEN_LISTS: u32 = 8;
/// The length of a list at which another list replaces it.
const LIST_LEN_MAX: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Snapshot,
    Serializable,
    Mixed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) layout: Layout,
    pub(crate) level: Level,
    /// The durability of commits; `None`: any.
    pub(crate) durability: Option<Durability>,
    /// Whether each list also has a record of its length. Without it, only the records that a range
    /// finds make two appends conflict, which needs serializable transactions.
    pub(crate) has_heads: bool,
    /// Whether durable commits survive a crash.
    pub(crate) is_durable: bool,
    /// The most bytes of padding in a record.
    pub(crate) padding_max: u16,
}

/// Judges an error: `None` if it is expected, otherwise the reason why it is wrong.
type TakeError = Box<dyn Fn(&Error) -> Option<String> + Send + Sync>;

pub(crate) struct Lists {
    pub(crate) habits: Habits,
    pub(crate) recorder: Recorder,
    tables: Vec<Table>,
    /// The number of previous lists at the place of each open list.
    generations: Vec<AtomicU32>,
    take_error: TakeError,
    wrong: Mutex<Vec<String>>,
    over: AtomicBool,
}

impl Lists {
    /// Opens the lists of a store. Missing tables are created.
    pub(crate) fn open(
        store: &Store,
        habits: Habits,
        recorder: Recorder,
        take_error: impl Fn(&Error) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self> {
        Ok(Self {
            habits,
            recorder,
            tables: Self::tables(store)?,
            generations: (0..OPEN_LISTS).map(|_| AtomicU32::new(0)).collect(),
            take_error: Box::new(take_error),
            wrong: Mutex::new(Vec::new()),
            over: AtomicBool::new(false),
        })
    }

    /// Opens the tables of a store. Missing tables are created.
    pub(crate) fn tables(store: &Store) -> Result<Vec<Table>> {
        TABLES.iter().map(|name| store.table(name)).collect()
    }

    pub(crate) fn is_refusal(error: &Error) -> bool {
        [ErrorKind::Conflict, ErrorKind::TimedOut, ErrorKind::TooLarge, ErrorKind::SnapshotLost]
            .contains(&error.kind())
    }

    pub(crate) fn take_error(&self, doing: &str, error: &Error) {
        if !Self::is_refusal(error)
            && let Some(wrong) = (self.take_error)(error)
        {
            self.wrong(format!("{doing}: {wrong}"));
        }
    }

    /// Records a fault, and stops the tasks.
    pub(crate) fn wrong(&self, what: String) {
        self.wrong.lock().push(what);
        self.stop();
    }

    pub(crate) fn first_wrong(&self) -> Option<String> {
        self.wrong.lock().first().cloned()
    }

    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn some_list(&self, rng: &mut Rng) -> List {
        let slot = rng.u32(0..OPEN_LISTS);
        List(self.generations[slot as usize].load(Ordering::Relaxed) * OPEN_LISTS + slot)
    }

    /// Returns any list, most often one that is still appended to.
    pub(crate) fn some_old_list(&self, rng: &mut Rng) -> List {
        let list = self.some_list(rng);
        match rng.u8(0..8) {
            0 => List(rng.u32(0..=list.0 / OPEN_LISTS) * OPEN_LISTS + list.0 % OPEN_LISTS),
            _ => list,
        }
    }

    fn has_len(&self, list: List, len: usize) {
        if len >= LIST_LEN_MAX {
            let next = list.0 / OPEN_LISTS + 1;
            self.generations[(list.0 % OPEN_LISTS) as usize].fetch_max(next, Ordering::Relaxed);
        }
    }

    pub(crate) fn begin_with(&self, state: &State) {
        for (list, elements) in state {
            let generations = &self.generations[(list.0 % OPEN_LISTS) as usize];
            generations.fetch_max(list.0 / OPEN_LISTS, Ordering::Relaxed);
            self.has_len(*list, elements.len());
        }
    }

    /// Returns the records of one list, or of all lists, in the order of their numbers.
    async fn rows(
        &self,
        (from, tables): (&mut impl Reads, &[Table]),
        list: Option<List>,
        rng: &mut Rng,
    ) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (number, table) in tables[..self.habits.layout.tables()].iter().enumerate() {
            let keys = list.map_or_else(layout::all_keys, layout::keys_of);
            let records = from.range(table, keys, rng.bool()).await?;
            if !records.is_sorted_by(|one, other| one.0 < other.0) {
                self.wrong(format!("a range of {list:?} is not in the order of its keys"));
            }
            for record in &records {
                match Row::parse(number, record) {
                    Some(row) if list.is_none_or(|list| row.list == list) => rows.push(row),
                    _ => self.wrong(format!("a record that nobody wrote: {record:?}")),
                }
            }
        }
        rows.sort_by_key(|row| (row.list, row.index));
        Ok(rows)
    }

    pub(crate) async fn read(
        &self,
        from: &mut impl Reads,
        list: List,
        done: &mut Vec<Operation>,
        rng: &mut Rng,
    ) -> Result<Vec<Row>> {
        let (rows, elements) = match self.habits.layout {
            Layout::Row => {
                let value = from.get(&self.tables[0], &layout::key_of(list)).await?;
                (Vec::new(), self.parse(value.as_deref()))
            }
            _ => {
                let rows = self.rows((from, &self.tables), Some(list), rng).await?;
                let elements = rows.iter().map(|row| row.element).collect();
                (rows, elements)
            }
        };
        done.push(Operation::Read { list, elements, by: self.habits.layout.by() });
        Ok(rows)
    }

    fn parse(&self, value: Option<&[u8]>) -> Vec<Element> {
        let elements = layout::elements_of(value.unwrap_or_default());
        elements.unwrap_or_else(|| {
            self.wrong(format!("a list that nobody wrote: {value:?}"));
            Vec::new()
        })
    }

    pub(crate) async fn append(
        &self,
        to: &mut impl Writes,
        list: List,
        done: &mut Vec<Operation>,
        rng: &mut Rng,
    ) -> Result<()> {
        let element = self.recorder.fresh_element();
        let len = match self.habits.layout {
            Layout::Row => {
                let (table, key) = (&self.tables[0], layout::key_of(list));
                let value = match rng.bool() {
                    true => to.get_for_update(table, &key).await?,
                    false => to.get(table, &key).await?,
                };
                let mut elements = self.parse(value.as_deref());
                done.push(Operation::Read {
                    list,
                    elements: elements.clone(),
                    by: self.habits.layout.by(),
                });
                elements.push(element);
                to.put(table, &key, &layout::value_of(&elements)).await?;
                elements.len()
            }
            _ => {
                let index = self.next_index(to, list, done, rng).await?;
                let row = self.row(list, element, index, rng);
                to.put(&self.tables[row.table], &row.key(), &row.value()).await?;
                index as usize + 1
            }
        };
        done.push(Operation::Append { list, element });
        self.has_len(list, len);
        Ok(())
    }

    /// Returns a record for an element, at a random place among those of its list.
    fn row(&self, list: List, element: Element, index: u32, rng: &mut Rng) -> Row {
        let table = rng.usize(0..self.habits.layout.tables());
        let padding = rng.u16(0..=self.habits.padding_max);
        Row { table, list, slot: rng.u16(..), element, index, padding }
    }

    async fn next_index(
        &self,
        to: &mut impl Writes,
        list: List,
        done: &mut Vec<Operation>,
        rng: &mut Rng,
    ) -> Result<u32> {
        if !self.habits.has_heads {
            let rows = self.read(to, list, done, rng).await?;
            return Ok(rows.len() as u32);
        }
        let (heads, key) = (&self.tables[2], layout::key_of(list));
        let head = match rng.bool() {
            true => to.get_for_update(heads, &key).await?,
            false => to.get(heads, &key).await?,
        };
        let index = head.map_or(0, |head| u32::from_le_bytes(head.try_into().unwrap_or_default()));
        if rng.u8(0..3) != 0 {
            self.read(to, list, done, rng).await?;
        }
        to.put(heads, &key, &(index + 1).to_le_bytes()).await?;
        Ok(index)
    }

    /// Deletes records of a list and writes them again under other keys. The list does not change.
    pub(crate) async fn shift(
        &self,
        to: &mut impl Writes,
        list: List,
        done: &mut Vec<Operation>,
        rng: &mut Rng,
    ) -> Result<()> {
        let mut rows = self.read(to, list, done, rng).await?;
        rows.sort_by_key(|row| (row.table, row.slot, row.element));
        let all = rows.len();
        let some = rng.usize(0..=all);
        match rng.u8(0..4) {
            0 => drop(rows.drain(some..)),
            1 => drop(rows.drain(..some)),
            2 => rows.retain(|_| rng.bool()),
            _ => {}
        }
        if rows.len() == all && rng.bool() {
            // Delete all records first.
            let mut deleted = 0;
            for table in &self.tables[..self.habits.layout.tables()] {
                deleted += to.delete_range(table, layout::keys_of(list)).await?;
            }
            if deleted != rows.len() as u64 {
                self.wrong(format!(
                    "{deleted} records of {list} were deleted, and {} found before",
                    rows.len()
                ));
            }
        } else {
            for row in &rows {
                if !to.delete(&self.tables[row.table], &row.key()).await? {
                    self.wrong(format!("{row:?} was found, and is not there when it is deleted"));
                }
            }
        }
        for row in rows {
            let row = self.row(list, row.element, row.index, rng);
            to.put(&self.tables[row.table], &row.key(), &row.value()).await?;
        }
        Ok(())
    }

    /// Returns all lists that are not empty in a snapshot of this store or of a copy of it.
    pub(crate) async fn state(
        &self,
        (from, tables): (&mut impl Reads, &[Table]),
        rng: &mut Rng,
    ) -> Result<State> {
        let mut state = BTreeMap::new();
        if self.habits.layout == Layout::Row {
            for (key, value) in from.range(&tables[0], layout::all_keys(), rng.bool()).await? {
                match layout::list_of(&key) {
                    Some(list) => drop(state.insert(list, self.parse(Some(&value)))),
                    None => self.wrong(format!("a record that nobody wrote: {key:?}")),
                }
            }
            return Ok(state);
        }
        for row in self.rows((from, tables), None, rng).await? {
            state.entry(row.list).or_insert_with(Vec::new).push(row.element);
        }
        Ok(state)
    }

    /// Returns the current state of all lists that are not empty.
    pub(crate) async fn state_now(&self, session: &impl Session, rng: &mut Rng) -> Result<State> {
        let mut snapshot = session.snapshot()?;
        self.state((&mut snapshot, &self.tables), rng).await
    }

    /// Reads all lists at one moment, and records the read as a transaction.
    pub(crate) async fn read_all(
        &self,
        session: &impl Session,
        process: u32,
        rng: &mut Rng,
    ) -> Result<State> {
        let began = self.recorder.now();
        let mut snapshot = session.snapshot()?;
        let ended = self.recorder.now();
        let state = self.state((&mut snapshot, &self.tables), rng).await?;
        self.has_read(process, (began, ended), state.clone());
        Ok(state)
    }

    /// Reads all lists of a reopened store, or of a copy that was made between two given moments.
    pub(crate) fn read_copy(
        &self,
        copy: &Store,
        process: u32,
        between: Option<(u64, u64)>,
        rng: &mut Rng,
    ) -> Result<State> {
        let tables = Self::tables(copy)?;
        let now = || self.recorder.now();
        let (began, mut snapshot) = (now(), copy.snapshot()?);
        let between = between.unwrap_or_else(|| (began, now()));
        let state = ready(self.state((&mut snapshot, &tables), rng))?;
        self.has_read(process, between, state.clone());
        Ok(state)
    }

    /// Records that all lists were read at a moment between two others.
    pub(crate) fn has_read(&self, process: u32, (began, ended): (u64, u64), mut state: State) {
        let most =
            self.generations.iter().map(|one| one.load(Ordering::Relaxed)).max().unwrap_or(0);
        let operations = (0..(most + 1) * OPEN_LISTS).map(|list| Operation::Read {
            list: List(list),
            elements: state.remove(&List(list)).unwrap_or_default(),
            by: self.habits.layout.by(),
        });
        self.recorder.asks(Transaction {
            process,
            began,
            ended,
            operations: operations.collect(),
            isolation: Isolation::Snapshot,
            outcome: Outcome::Committed,
            durable: false,
        });
    }
}
