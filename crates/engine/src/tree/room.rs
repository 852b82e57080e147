//! Makes room for a record in its leaf: splits pages, from the one that lacks room upward.

use std::cell::Cell;

use qpair_format::Result;

use super::{Split, SplitOutcome, Tree};
use crate::shared::Shared;
use crate::space::Purpose;
use crate::task::run_at_once;

/// Makes room for a record in the leaf of a key, and first in the pages above if they need it.
/// `purpose` is the purpose of the allocation of new pages.
pub(crate) async fn make_room(
    shared: &Shared,
    tree: Tree,
    key: &[u8],
    needed_bytes: usize,
    purpose: Purpose,
) -> Result<()> {
    make_room_at(shared, (tree, key, false), 0, needed_bytes, purpose).await
}

/// Makes room for a commit that has its timestamp, with pages that were reserved for it. `sorted`
/// is set if the earlier writes are made and the preparation relied on a cut of the leaf at this
/// key.
pub(crate) async fn make_reserved_room(
    shared: &Shared,
    tree: Tree,
    key: &[u8],
    needed_bytes: usize,
    sorted: bool,
) -> Result<()> {
    make_room_at(shared, (tree, key, sorted), 0, needed_bytes, Purpose::Checkpoint).await
}

/// Splits the page of this level that covers the key, unless it has enough room, and first the
/// pages above that need room for the split.
pub(crate) async fn make_room_at(
    shared: &Shared,
    (tree, key, sorted): (Tree, &[u8], bool),
    level: u8,
    needed_bytes: usize,
    purpose: Purpose,
) -> Result<()> {
    let mut todo = vec![(level, needed_bytes)];
    while let Some(&(level, needed_bytes)) = todo.last() {
        let page = ReservedPage::new(shared, purpose)?;
        let split = Split::new(tree, key, level, needed_bytes, &page.id).sorted(sorted);
        // The commit has its rows locked, so others may wait for it.
        match run_at_once(shared, split).await? {
            SplitOutcome::Done => {
                todo.pop();
            }
            SplitOutcome::ParentFull { level, needed_bytes } => todo.push((level, needed_bytes)),
        }
    }
    Ok(())
}

/// A page id that is freed on drop unless it was used.
struct ReservedPage<'a> {
    shared: &'a Shared,
    id: Cell<Option<u64>>,
}

impl<'a> ReservedPage<'a> {
    fn new(shared: &'a Shared, purpose: Purpose) -> Result<Self> {
        Ok(Self { shared, id: Cell::new(Some(shared.space.reserve(1, purpose)?)) })
    }
}

impl Drop for ReservedPage<'_> {
    fn drop(&mut self) {
        if let Some(page_id) = self.id.take() {
            self.shared.space.free(page_id, 1);
        }
        self.shared.space.leave();
    }
}
