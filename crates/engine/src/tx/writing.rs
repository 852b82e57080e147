//! What a transaction writes: it stays its own until the commit, and each row is locked before.

use std::ops::Bound;

use super::core::Core;
use super::large::LargeValue;
use super::range::{RangeCursor, View, next_into};
use super::reading::find_at;
use super::rows::RowRef;
use super::write_set::Write;
use crate::error::Result;
use crate::overflow::{self, needs_overflow};
use crate::store::Table;
use crate::tree::{Found, Tree};

impl Core {
    pub(crate) async fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_write(table, key, value)?;
        let row = self.lock_row(table.tree(), key).await?;
        self.enter_value(table.tree(), key, row, value).await
    }

    /// [`Core::put`] as far as it goes without waiting; `false` if it does not.
    pub(crate) fn put_inline(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.check_write(table, key, value)?;
        if needs_overflow(self.shared(), key, value) {
            return Ok(false);
        }
        let Some(row) = self.try_lock(table.tree(), key)? else { return Ok(false) };
        if self.is_behind_history() {
            return Ok(false);
        }
        self.enter(table.tree(), key, row, Write::Inline(value))?;
        Ok(true)
    }

    /// [`Core::insert`] as far as it goes without waiting; `None` if it does not.
    pub(crate) fn insert_inline(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<bool>> {
        self.check_write(table, key, value)?;
        if needs_overflow(self.shared(), key, value) {
            return Ok(None);
        }
        let Some(row) = self.try_lock(table.tree(), key)? else { return Ok(None) };
        let is_there = self.is_there_inline(table.tree(), key)?;
        if is_there == Some(false) {
            self.enter(table.tree(), key, row, Write::Inline(value))?;
        }
        Ok(is_there.map(|is_there| !is_there))
    }

    /// [`Core::delete`] as far as it goes without waiting; `None` if it does not.
    pub(crate) fn delete_inline(&mut self, table: &Table, key: &[u8]) -> Result<Option<bool>> {
        self.check_write(table, key, &[])?;
        let Some(row) = self.try_lock(table.tree(), key)? else { return Ok(None) };
        let is_there = self.is_there_inline(table.tree(), key)?;
        if is_there == Some(true) {
            self.enter(table.tree(), key, row, Write::Delete)?;
        }
        Ok(is_there)
    }

    /// [`Core::is_there`] as far as it goes without waiting; `None` too if the older values have to be let pass first.
    fn is_there_inline(&mut self, tree: Tree, key: &[u8]) -> Result<Option<bool>> {
        if self.is_behind_history() {
            return Ok(None);
        }
        if let Some(own) = self.writes.get(tree.id, key) {
            return Ok(Some(own.write != Write::Delete));
        }
        let found = self.find_inline(tree, key, &mut Vec::new())?;
        Ok(found.map(|found| found != Found::Nothing))
    }

    async fn enter_value(
        &mut self,
        tree: Tree,
        key: &[u8],
        row: RowRef,
        value: &[u8],
    ) -> Result<()> {
        if !needs_overflow(self.shared(), key, value) {
            return self.enter(tree, key, row, Write::Inline(value));
        }
        self.inner.begin_change()?;
        let shared = self.inner.shared.clone();
        let (descriptor, reserved) = overflow::write(&shared, value).await?;
        self.large.push(LargeValue::adopt(&self.inner.tx, &reserved)?);
        self.inner.note_listed(descriptor)?;
        self.enter(tree, key, row, Write::Large(&descriptor.encode()))
    }

    /// Whether there is a key, as far as this transaction sees; its row is locked.
    async fn is_there(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        let tree = table.tree();
        if let Some(own) = self.writes.get(tree.id, key) {
            return Ok(own.write != Write::Delete);
        }
        let snapshot = self.snapshot();
        let mut value = Vec::new();
        // The lock keeps the row as it is: there is nothing to compare at the commit.
        let seen = find_at(&self.inner.tx, tree, key, snapshot, &mut value, None, false).await?;
        self.note_seen(tree, key, &seen);
        self.check_snapshot(snapshot)?;
        self.shared().check_table(tree)?;
        Ok(seen.found != Found::Nothing)
    }

    pub(crate) async fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<bool> {
        self.check_write(table, key, value)?;
        let row = self.lock_row(table.tree(), key).await?;
        if self.is_there(table, key).await? {
            return Ok(false);
        }
        self.enter_value(table.tree(), key, row, value).await?;
        Ok(true)
    }

    pub(crate) async fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.check_write(table, key, &[])?;
        let row = self.lock_row(table.tree(), key).await?;
        if !self.is_there(table, key).await? {
            return Ok(false);
        }
        self.enter(table.tree(), key, row, Write::Delete)?;
        Ok(true)
    }

    /// A deletion that does not ask whether there is such a key.
    pub(super) async fn delete_blindly(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.check_write(table, key, &[])?;
        let row = self.lock_row(table.tree(), key).await?;
        self.enter(table.tree(), key, row, Write::Delete)
    }

    /// Deletes what the transaction sees of a range, but no more than `most` records; how many.
    pub(crate) async fn delete_range(
        &mut self,
        table: &Table,
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
        most: u64,
    ) -> Result<u64> {
        /// Keys gathered before they are deleted.
        const PART: u64 = 256;
        self.check_write(table, &[], &[])?;
        let (mut cursor, mut deleted) = (RangeCursor::new(table, from, to), 0);
        loop {
            let mut keys = Vec::new();
            while (keys.len() as u64) < PART.min(most - deleted) {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                let mut view = View::Transaction(self);
                if !next_into(&mut cursor, &mut view, &mut key, &mut value).await? {
                    break;
                }
                keys.push(key);
            }
            if keys.is_empty() {
                return Ok(deleted);
            }
            for key in keys {
                self.delete_blindly(table, &key).await?;
                deleted += 1;
            }
        }
    }

    pub(crate) async fn get_for_update(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        self.lock(table, key).await?;
        self.get_into(table, key, value).await
    }

    pub(crate) async fn compare_and_swap(
        &mut self,
        table: &Table,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.check_write(table, key, new.unwrap_or_default())?;
        let row = self.lock_row(table.tree(), key).await?;
        let mut value = Vec::new();
        let found = self.get_into(table, key, &mut value).await?;
        if found.then_some(value.as_slice()) != expected {
            return Ok(false);
        }
        match new {
            Some(new) => self.enter_value(table.tree(), key, row, new).await?,
            None if found => self.enter(table.tree(), key, row, Write::Delete)?,
            None => {}
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use qpair_block::{RamDevice, RamOptions};

    use crate::{Store, StoreOptions};

    /// Each insertion and deletion went to a worker and back: a transaction of 200,000 deletions took 4 s.
    #[test]
    fn what_is_in_memory_is_inserted_and_deleted_on_the_callers_thread() {
        let ram = RamOptions { size_bytes: 16 << 20, ..RamOptions::default() };
        let options = StoreOptions { format: true, ..StoreOptions::default() };
        let store = Store::open(vec![Arc::new(RamDevice::new(ram).unwrap())], &options).unwrap();
        let table = store.table("t").unwrap();
        table.put(b"there", b"1").unwrap();
        let mut tx = store.begin();
        let core = tx.core().unwrap();
        assert_eq!(core.insert_inline(&table, b"there", b"2").unwrap(), Some(false));
        assert_eq!(core.insert_inline(&table, b"new", b"2").unwrap(), Some(true));
        assert_eq!(core.insert_inline(&table, b"new", b"3").unwrap(), Some(false));
        assert_eq!(core.insert_inline(&table, b"large", &[1; 100_000]).unwrap(), None);
        assert_eq!(core.delete_inline(&table, b"there").unwrap(), Some(true));
        assert_eq!(core.delete_inline(&table, b"there").unwrap(), Some(false));
        assert_eq!(core.delete_inline(&table, b"none").unwrap(), Some(false));
        assert_eq!(core.insert_inline(&table, b"there", b"4").unwrap(), Some(true));
        tx.commit().unwrap();
        assert_eq!(table.get(b"there").unwrap().unwrap(), b"4");
        assert_eq!(table.get(b"new").unwrap().unwrap(), b"2");
    }
}
