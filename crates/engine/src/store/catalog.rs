//! Tables by name: a tree of its own, whose records name the other trees' roots.

use std::sync::PoisonError;

use qpair_block::Request;

use super::{Store, StoreInner, Table};
use crate::error::{Error, ErrorKind, Result};
use crate::overflow::{Transfer, scratch_frame};
use crate::page::{Node, NodeInit, NodeMut};
use crate::pool::state;
use crate::task::{latch_free, verify};
use crate::tree::Tree;

/// Longest table name, bytes.
const TABLE_NAME_LEN_MAX: usize = 128;

impl Store {
    /// Opens a table, and makes it if there is none of this name.
    ///
    /// # Errors
    /// `Invalid` for an empty name or one over 128 bytes (or the store's longest key); `ReadOnly` if it would have to be made in a store that
    /// refuses changes; and what the device says.
    pub fn table(&self, name: &str) -> Result<Table> {
        match self.existing_table(name)? {
            Some(table) => Ok(table),
            None => self.make_table(name),
        }
    }

    /// Opens a table if there is one of this name.
    ///
    /// # Errors
    /// `Invalid` for an empty name or one over 128 bytes (or the store's longest key), and what the device says.
    pub fn existing_table(&self, name: &str) -> Result<Option<Table>> {
        // The name is a key of the catalog.
        let longest = TABLE_NAME_LEN_MAX.min(self.key_len_max());
        if name.is_empty() || name.len() > longest {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a table name of {} bytes: in this store it has 1 to {longest}",
                    name.len()
                ),
            ));
        }
        let mut tables = self.inner.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tree)) = tables.iter().find(|(of, _)| of == name) {
            return Ok(Some(Table::new(self.inner.clone(), *tree)));
        }
        let catalog = Table::new(self.inner.clone(), self.inner.catalog()?);
        let Some(record) = catalog.get(name.as_bytes())? else { return Ok(None) };
        let (id, root_page) = decode(&record)?;
        let tree = self.inner.open_tree(id, root_page)?;
        tables.push((name.to_owned(), tree));
        Ok(Some(Table::new(self.inner.clone(), tree)))
    }

    /// Names of all tables, in order.
    ///
    /// # Errors
    /// What the device says.
    pub fn table_names(&self) -> Result<Vec<String>> {
        let catalog = Table::new(self.inner.clone(), self.inner.catalog()?);
        catalog
            .range::<[u8], _>(..)?
            .map(|entry| Ok(String::from_utf8_lossy(&entry?.0).into_owned()))
            .collect()
    }

    fn make_table(&self, name: &str) -> Result<Table> {
        let mut tables = self.inner.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let catalog = Table::new(self.inner.clone(), self.inner.catalog()?);
        if let Some((_, tree)) = tables.iter().find(|(of, _)| of == name) {
            return Ok(Table::new(self.inner.clone(), *tree));
        }
        let mut id = 1;
        for entry in catalog.range::<[u8], _>(..)? {
            id = id.max(decode(&entry?.1)?.0 + 1);
        }
        let _change = self.inner.enter_change()?;
        let (root_page, tree) = self.inner.make_tree(id)?;
        let mut record = id.to_le_bytes().to_vec();
        record.extend_from_slice(&root_page.to_le_bytes());
        if let Err(error) = catalog.put(name.as_bytes(), &record) {
            self.inner.drop_tree(tree)?;
            return Err(error);
        }
        tables.push((name.to_owned(), tree));
        Ok(Table::new(self.inner.clone(), tree))
    }
}

/// Id and root page of the tree that a record of the catalog names.
pub(super) fn decode(record: &[u8]) -> Result<(u32, u64)> {
    let id = record.get(..4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let root = record.get(4..12).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    id.zip(root)
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, "a record of the catalog makes no sense"))
}

impl StoreInner {
    /// The catalog's tree; why not, if a store opened for reading has lost it.
    pub(super) fn catalog(&self) -> Result<Tree> {
        self.catalog.clone()
    }

    /// Makes an empty tree; its root's page, and the tree.
    pub(crate) fn make_tree(&self, id: u32) -> Result<(u64, Tree)> {
        self.begin_change()?;
        let shared = self.shared.clone();
        let page_id = shared.space.allocate(1)?;
        let made = self.block_on(move || async move {
            let frame = scratch_frame().await?;
            let mut page = latch_free(&shared, frame);
            NodeMut::new(page.bytes_mut()).init(NodeInit {
                level: 0,
                tree_id: id,
                page_id,
                lower: &[],
                upper: None,
            });
            shared.pool.frames.set_page_id(frame, page_id);
            shared.pool.frames.set_dirty(frame, true);
            shared.pool.frames.set_state(frame, state::PINNED);
            Ok((page_id, Tree { id, root: frame }))
        });
        made.inspect_err(|_| self.shared.space.free(page_id, 1))
    }

    /// Gives back the root of a tree that was just made, and that nothing refers to.
    fn drop_tree(&self, tree: Tree) -> Result<()> {
        let shared = self.shared.clone();
        self.block_on(move || async move {
            let page = latch_free(&shared, tree.root);
            let page_id = shared.pool.frames.page_id(tree.root);
            shared.pool.release_frame(page);
            crate::overflow::give_scratch(tree.root);
            shared.space.free(page_id, 1);
            Ok(())
        })
    }

    /// Loads the root of a tree and pins it.
    pub(crate) fn open_tree(&self, id: u32, root_page: u64) -> Result<Tree> {
        let shared = self.shared.clone();
        if root_page >= shared.space.high_water() {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("a tree's root at page {root_page}, past the store's end"),
            ));
        }
        self.block_on(move || async move {
            let frame = scratch_frame().await?;
            let frames = &shared.pool.frames;
            let page = latch_free(&shared, frame);
            frames.set_page_id(frame, root_page);
            let buffer = page.begin_read();
            let request =
                Request::read(shared.offset_bytes(root_page), buffer.len() as u32, buffer, 0);
            let completion = Transfer::submit(request).done().await?;
            let Some(buffer) = completion.buffer else {
                return Err(Error::new(ErrorKind::Io, "a read came back without its memory"));
            };
            let page = frames.end_read(buffer);
            let node = Node::new(page.bytes());
            let fault = match completion.result {
                Err(error) => Some(Error::io(error, format!("reading page {root_page}"))),
                Ok(()) => verify(page.as_slice(), root_page).or_else(|| {
                    let is_root = node.tree_id() == id && node.fault().is_none();
                    let what = || format!("page {root_page} is not the root of tree {id}");
                    (!is_root).then(|| Error::new(ErrorKind::Corrupt, what()))
                }),
            };
            frames.set_state(frame, if fault.is_none() { state::PINNED } else { state::SCRATCH });
            shared.pool.end_read(page);
            match fault {
                None => Ok(Tree { id, root: frame }),
                Some(error) => {
                    crate::overflow::give_scratch(frame);
                    Err(error)
                }
            }
        })
    }
}
