//! What a transaction writes: it stays its own until the commit, and each row is locked before.

use std::ops::Bound;

use super::core::Core;
use super::large::LargeValue;
use super::range::{RangeCursor, View, next_into};
use super::reading::find_at;
use super::rows::RowRef;
use super::write_set::Write;
use crate::error::Result;
use crate::overflow;
use crate::store::{Table, needs_overflow};
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
        self.large.push(LargeValue::adopt(&shared, descriptor, &reserved)?);
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
        let seen =
            find_at(&self.inner.shared, tree, key, snapshot, &mut value, None, false).await?;
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
