//! The writes of a transaction: they are private until the commit, and each row is locked first.

use std::ops::Bound;

use qpair_format::Result;

use super::large::LargeValue;
use super::long_keys::LongWrite;
use super::range::{RangeCursor, next_into};
use super::reading::find_at;
use super::state::TxState;
use super::view::View;
use super::write_set::Write;
use crate::overflow::{self, needs_overflow};
use crate::tree::{Found, Tree};
use crate::tx::versions::{BeforeImage, RowRef};

impl TxState {
    pub(crate) async fn put(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_write(tree, key, value)?;
        if tree.is_long(key) {
            return self.write_long(tree, key, LongWrite::Put(value)).await.map(drop);
        }
        let value = &*self.tx.shared.stored(tree, value)?;
        let row = self.lock_row(tree, key).await?;
        self.enter_value(tree, key, row, value).await
    }

    /// Like [`TxState::put`], as far as possible without waiting; returns `false` if it would have
    /// to wait.
    pub(crate) fn put_inline(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        self.check_write(tree, key, value)?;
        if self.is_beyond_page(key) || self.is_full() {
            return Ok(false);
        }
        let value = &*self.tx.shared.stored(tree, value)?;
        if needs_overflow(self.shared(), key, value) {
            return Ok(false);
        }
        let Some(row) = self.try_lock(tree, key)? else { return Ok(false) };
        if self.is_behind_history() || !self.index_inline(tree, key, value)? {
            return Ok(false);
        }
        self.enter(tree, key, row, Write::Inline(value))?;
        Ok(true)
    }

    /// Puts the entry of a record that expires into the index, before the record is put.
    async fn index(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<()> {
        let entry = self.shared().expiry_entry(tree, key, value)?;
        let Some((index, entry)) = entry else { return Ok(()) };
        let row = self.lock_row_too(index, &entry).await?;
        self.enter(index, &entry, row, Write::Inline(&[]))
    }

    /// Like [`TxState::index`], without waiting; returns `false` if it would have to wait.
    fn index_inline(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        let entry = self.shared().expiry_entry(tree, key, value)?;
        let Some((index, entry)) = entry else { return Ok(true) };
        let Some(row) = self.try_lock(index, &entry)? else { return Ok(false) };
        self.enter(index, &entry, row, Write::Inline(&[]))?;
        Ok(true)
    }

    /// Like [`TxState::insert`], as far as possible without waiting; returns `None` if it would
    /// have to wait.
    pub(crate) fn insert_inline(
        &mut self,
        tree: Tree,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<bool>> {
        self.check_write(tree, key, value)?;
        if self.is_beyond_page(key) || self.is_full() {
            return Ok(None);
        }
        let value = &*self.tx.shared.stored(tree, value)?;
        if needs_overflow(self.shared(), key, value) {
            return Ok(None);
        }
        let Some(row) = self.try_lock(tree, key)? else { return Ok(None) };
        let is_there = self.is_there_inline(tree, key)?;
        if is_there == Some(false) {
            if !self.index_inline(tree, key, value)? {
                return Ok(None);
            }
            self.enter(tree, key, row, Write::Inline(value))?;
        }
        Ok(is_there.map(|is_there| !is_there))
    }

    /// Like [`TxState::delete`], as far as possible without waiting; returns `None` if it would
    /// have to wait.
    pub(crate) fn delete_inline(&mut self, tree: Tree, key: &[u8]) -> Result<Option<bool>> {
        self.check_write(tree, key, &[])?;
        if self.is_beyond_page(key) || self.is_full() {
            return Ok(None);
        }
        let Some(row) = self.try_lock(tree, key)? else { return Ok(None) };
        let is_there = self.is_there_inline(tree, key)?;
        if is_there == Some(true) {
            self.enter(tree, key, row, Write::Delete)?;
        }
        Ok(is_there)
    }

    /// Like [`TxState::is_there`], without waiting; returns `None` if it would have to wait for the
    /// page, or until older values have moved to the device.
    fn is_there_inline(&mut self, tree: Tree, key: &[u8]) -> Result<Option<bool>> {
        if self.is_behind_history() {
            return Ok(None);
        }
        if tree.codec.expires() {
            return self.get_inline(tree, key, &mut Vec::new());
        }
        if let Some(own) = self.writes.get(tree.id, key) {
            return Ok(Some(own.write != Write::Delete));
        }
        if self.may_have_spilled(tree, key) {
            return Ok(None);
        }
        let found = self.find_inline(tree, key, &mut Vec::new())?;
        Ok(found.map(|found| found != Found::Nothing))
    }

    /// Whether a key is too long to be whole in a page: one whose record is in a group, or that of
    /// a group.
    fn is_beyond_page(&self, key: &[u8]) -> bool {
        key.len() > self.shared().whole_key_len_max
    }

    pub(super) async fn enter_value(
        &mut self,
        tree: Tree,
        key: &[u8],
        row: RowRef,
        value: &[u8],
    ) -> Result<()> {
        if self.is_beyond_page(key) {
            self.tx.incarnation.note_long_key()?;
        }
        self.index(tree, key, value).await?;
        if !needs_overflow(self.shared(), key, value) {
            return self.enter(tree, key, row, Write::Inline(value));
        }
        self.tx.incarnation.begin_change()?;
        let shared = self.tx.shared.clone();
        let (descriptor, reserved) = overflow::write(&shared, value).await?;
        self.large.push(LargeValue::adopt(&self.tx, &reserved)?);
        self.tx.incarnation.note_listed(descriptor)?;
        self.enter(tree, key, row, Write::Large(&descriptor.encode()))
    }

    /// Whether a key, whose row is locked, has a record that this transaction sees.
    async fn is_there(&mut self, tree: Tree, key: &[u8]) -> Result<bool> {
        if tree.codec.expires() || tree.is_long(key) {
            return self.get_into(tree, key, &mut Vec::new()).await;
        }
        if let Some(own) = self.writes.get(tree.id, key) {
            return Ok(own.write != Write::Delete);
        }
        if let Some(own) = self.find_spilled(tree, key).await? {
            return Ok(own != BeforeImage::Absent);
        }
        let snapshot = self.snapshot();
        let mut value = Vec::new();
        // The lock keeps others from changing the row, so the commit need not validate this read.
        let seen = find_at(&self.tx, tree, key, snapshot, &mut value, None, false).await?;
        self.note_seen(tree, key, &seen);
        self.check_snapshot(snapshot)?;
        self.shared().check_table(tree)?;
        Ok(seen.found != Found::Nothing)
    }

    pub(crate) async fn insert(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        self.check_write(tree, key, value)?;
        if tree.is_long(key) {
            return self.write_long(tree, key, LongWrite::Insert(value)).await;
        }
        let value = &*self.tx.shared.stored(tree, value)?;
        let row = self.lock_row(tree, key).await?;
        if self.is_there(tree, key).await? {
            return Ok(false);
        }
        self.enter_value(tree, key, row, value).await?;
        Ok(true)
    }

    /// Puts a record; returns whether the transaction saw one that is replaced.
    pub(in crate::tx) async fn replace(
        &mut self,
        tree: Tree,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        self.lock(tree, key).await?;
        let there = self.is_there(tree, key).await?;
        self.put(tree, key, value).await?;
        Ok(there)
    }

    pub(crate) async fn delete(&mut self, tree: Tree, key: &[u8]) -> Result<bool> {
        self.check_write(tree, key, &[])?;
        if tree.is_long(key) {
            return self.write_long(tree, key, LongWrite::Delete).await;
        }
        let row = self.lock_row(tree, key).await?;
        if !self.is_there(tree, key).await? {
            return Ok(false);
        }
        self.enter(tree, key, row, Write::Delete)?;
        Ok(true)
    }

    /// Deletes a key without checking whether it has a record.
    pub(crate) async fn delete_blindly(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        self.check_write(tree, key, &[])?;
        if tree.is_long(key) {
            return self.write_long(tree, key, LongWrite::Delete).await.map(drop);
        }
        let row = self.lock_row(tree, key).await?;
        self.enter(tree, key, row, Write::Delete)
    }

    /// Deletes the records of a range that the transaction sees, but at most `most`; returns their
    /// number.
    pub(crate) async fn delete_range(
        &mut self,
        tree: Tree,
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
        most: u64,
    ) -> Result<u64> {
        /// The number of keys that are gathered before they are deleted.
        const PART: u64 = 256;
        self.check_write(tree, &[], &[])?;
        let (mut cursor, mut deleted) = (RangeCursor::new(&self.tx, tree, from, to), 0);
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
            let mut keys = keys.as_slice();
            while let Some(key) = keys.first() {
                let mut count = 1;
                if tree.is_long(key) {
                    count = tree.count_of_group(keys);
                    self.delete_long(tree, &keys[..count]).await?;
                } else {
                    self.delete_blindly(tree, key).await?;
                }
                (keys, deleted) = (&keys[count..], deleted + count as u64);
            }
        }
    }

    pub(crate) async fn get_for_update(
        &mut self,
        tree: Tree,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        self.lock(tree, key).await?;
        self.get_into(tree, key, value).await
    }

    pub(crate) async fn compare_and_swap(
        &mut self,
        tree: Tree,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.check_write(tree, key, new.unwrap_or_default())?;
        if tree.is_long(key) {
            return self.write_long(tree, key, LongWrite::Swap(expected, new)).await;
        }
        let row = self.lock_row(tree, key).await?;
        let mut value = Vec::new();
        let found = self.get_into(tree, key, &mut value).await?;
        if found.then_some(value.as_slice()) != expected {
            return Ok(false);
        }
        match new {
            Some(new) => {
                let new = &*self.tx.shared.stored(tree, new)?;
                self.enter_value(tree, key, row, new).await?;
            }
            None if found => self.enter(tree, key, row, Write::Delete)?,
            None => {}
        }
        Ok(true)
    }
}
