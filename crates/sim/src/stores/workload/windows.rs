//! Windows of keys are deleted and written again, most often at the front of a table, while some
//! snapshots are kept. The results of ranges are compared with those of gets.

use std::collections::VecDeque;
use std::ops::Range;

use qpair_engine::{Durability, Result, Table, TaskSnapshot, TaskTransaction, yield_now};

use super::transaction::{Transactions, View, bytes_of};
use crate::stores::catalog::SINGLES;
use crate::stores::value::Key;

/// The maximum number of snapshots kept.
const SNAPSHOTS_MAX: usize = 4;
const VALUE_BYTES_MAX: u32 = 40;

/// A snapshot, and the moment before it was taken.
type Kept = (u64, TaskSnapshot);

impl Transactions {
    /// Runs the task. It ends early if another task causes an error, or if no table is available.
    pub(crate) async fn windows(mut self) {
        let number = SINGLES as u16;
        let Some(table) = self.context.notes().catalog.handle(number) else { return };
        let mut kept: VecDeque<Kept> = VecDeque::new();
        for _ in 0..self.context.steps.max(24) {
            let outcome = match self.context.rng.u8(0..12) {
                0 | 1 => self.keep_snapshot(&mut kept),
                2 => {
                    kept.pop_front();
                    Ok(())
                }
                3..7 => self.change_window(number, &table, false).await,
                7..10 => self.change_window(number, &table, true).await,
                _ => self.compare(number, &table, &mut kept).await,
            };
            if let Err(error) = outcome {
                self.error("a task with windows", &error);
                kept.clear();
            }
            yield_now().await;
        }
    }

    fn keep_snapshot(&mut self, kept: &mut VecDeque<Kept>) -> Result<()> {
        let began = self.context.notes().oracle.begins();
        kept.push_back((began, self.store.snapshot()?));
        if kept.len() > SNAPSHOTS_MAX {
            kept.pop_front();
        }
        Ok(())
    }

    /// Draws a range of adjacent keys. Half of the time they are the first ones.
    fn some_window(&mut self) -> Range<u16> {
        let keys = self.context.scenario.keys;
        let rng = &mut self.context.rng;
        let start = if rng.bool() { 0 } else { rng.u16(0..keys) };
        start..rng.u16(start..=keys.min(start.saturating_add(200)))
    }

    /// Deletes or writes a window of keys in a transaction, which compares reads before it commits.
    async fn change_window(&mut self, number: u16, table: &Table, puts: bool) -> Result<()> {
        let keys = self.some_window();
        let from = Key { table: number, index: keys.start };
        let mut transaction = self.store.begin();
        let began = self.context.notes().oracle.begins();
        let mut view = View::default();
        let changed = match puts {
            true => self.put_window(&mut transaction, &mut view, table, from, keys).await,
            false => self.delete_range(&mut transaction, &mut view, from, table, keys).await,
        };
        let changed = match changed {
            Ok(()) => self.compare_in(&mut transaction, &mut view, number, table).await,
            Err(error) => Err(error),
        };
        if let Err(error) = changed {
            transaction.rollback();
            self.has_read(began, view, None);
            return Err(error);
        }
        self.commit(transaction, view, began, false, Durability::Async).await;
        Ok(())
    }

    async fn put_window(
        &mut self,
        transaction: &mut TaskTransaction,
        view: &mut View,
        table: &Table,
        from: Key,
        keys: Range<u16>,
    ) -> Result<()> {
        for key in keys.map(|index| Key { index, ..from }) {
            let len = self.context.rng.u32(0..VALUE_BYTES_MAX);
            let value = self.context.notes().oracle.fresh_value(len);
            transaction.put(table, &key.bytes(), &value.bytes()).await?;
            view.written.insert(key, Some(value));
        }
        Ok(())
    }

    /// Reads a range in a transaction, and then each of its keys.
    async fn compare_in(
        &mut self,
        transaction: &mut TaskTransaction,
        view: &mut View,
        number: u16,
        table: &Table,
    ) -> Result<()> {
        let keys = self.some_window();
        let from = Key { table: number, index: keys.start };
        let range = transaction.range(table, bytes_of(from, &keys))?;
        self.range(view, range, from, keys.clone()).await?;
        for key in keys.map(|index| Key { index, ..from }) {
            let value = transaction.get(table, &key.bytes()).await?;
            self.found(view, key, value.as_deref());
        }
        Ok(())
    }

    /// Reads a range in a kept snapshot, and then each of its keys.
    async fn compare(
        &mut self,
        number: u16,
        table: &Table,
        kept: &mut VecDeque<Kept>,
    ) -> Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        let keys = self.some_window();
        let from = Key { table: number, index: keys.start };
        let (began, snapshot) = &kept[self.context.rng.usize(0..kept.len())];
        let mut view = View::default();
        let range = snapshot.range(table, bytes_of(from, &keys))?;
        self.range(&mut view, range, from, keys.clone()).await?;
        for key in keys.map(|index| Key { index, ..from }) {
            let value = snapshot.get(table, &key.bytes()).await?;
            self.found(&mut view, key, value.as_deref());
        }
        self.has_read(*began, view, Some(snapshot.timestamp()));
        Ok(())
    }
}
