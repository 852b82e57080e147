//! Records with keys that are too long for a page, which are in groups: see
//! docs/design/long-keys.md. A group is locked before it is read and changed.

use qpair_format::Result;
use qpair_format::group::{changed, find};

use super::state::TxState;
use super::write_set::Write;
use crate::tree::Tree;
use crate::tx::versions::RowRef;

/// A change of a record in a group.
#[derive(Clone, Copy)]
pub(super) enum LongWrite<'a> {
    Put(&'a [u8]),
    /// Puts the value if there is no record.
    Insert(&'a [u8]),
    Delete,
    /// Replaces the first value by the second one; `None` stands for no record.
    Swap(Option<&'a [u8]>, Option<&'a [u8]>),
}

impl TxState {
    /// Appends the value of a long key to `value`.
    pub(super) async fn get_long(
        &mut self,
        tree: Tree,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut group = Vec::new();
        self.get_into(tree.with_groups(), &tree.group_key(key), &mut group).await?;
        let found = find(&group, tree.rest(key))?;
        value.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    /// Changes the record of a long key; returns whether it was changed. A deletion of a record
    /// that is not there changes nothing.
    pub(super) async fn write_long(
        &mut self,
        tree: Tree,
        key: &[u8],
        write: LongWrite<'_>,
    ) -> Result<bool> {
        Box::pin(async move {
            let group_key = tree.group_key(key);
            let (row, group) = self.lock_group(tree, &group_key).await?;
            let present = find(&group, tree.rest(key))?;
            let new = match write {
                LongWrite::Put(value) => Some(value),
                LongWrite::Insert(_) if present.is_some() => return Ok(false),
                LongWrite::Insert(value) => Some(value),
                LongWrite::Delete if present.is_none() => return Ok(false),
                LongWrite::Delete => None,
                LongWrite::Swap(expected, _) if present != expected => return Ok(false),
                LongWrite::Swap(None, None) => return Ok(true),
                LongWrite::Swap(_, new) => new,
            };
            let group = changed(&group, &[(tree.rest(key), new)])?;
            self.enter_group(tree, &group_key, row, &group).await?;
            Ok(true)
        })
        .await
    }

    /// Removes the records of long keys of one group, in order. All of them are there.
    pub(super) async fn delete_long(&mut self, tree: Tree, keys: &[Vec<u8>]) -> Result<()> {
        let Some(first) = keys.first() else { return Ok(()) };
        self.check_write(tree, first, &[])?;
        Box::pin(async move {
            let group_key = tree.group_key(first);
            let (row, group) = self.lock_group(tree, &group_key).await?;
            let rests: Vec<_> = keys.iter().map(|key| (tree.rest(key), None)).collect();
            let group = changed(&group, &rests)?;
            self.enter_group(tree, &group_key, row, &group).await
        })
        .await
    }

    async fn lock_group(&mut self, tree: Tree, group_key: &[u8]) -> Result<(RowRef, Vec<u8>)> {
        let tree = tree.with_groups();
        let row = self.lock_row(tree, group_key).await?;
        let mut group = Vec::new();
        self.get_into(tree, group_key, &mut group).await?;
        Ok((row, group))
    }

    /// Puts a group whose row is locked, or removes it if it is empty.
    async fn enter_group(
        &mut self,
        tree: Tree,
        group_key: &[u8],
        row: RowRef,
        group: &[u8],
    ) -> Result<()> {
        let tree = tree.with_groups();
        if group.is_empty() {
            return self.enter(tree, group_key, row, Write::Delete);
        }
        let shared = self.tx.shared.clone();
        self.enter_value(tree, group_key, row, &shared.stored(tree, group)?).await
    }
}
