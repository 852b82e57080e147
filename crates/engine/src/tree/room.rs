//! Room for a record in its leaf: splits, from the page that lacks it upward.

use std::cell::Cell;

use qpair_format::Result;

use super::{Split, SplitOutcome, Tree};
use crate::shared::Shared;
use crate::space::Purpose;
use crate::task::run_at_once;

/// Makes room for a record in the leaf of a key, and above it first where that is needed. `purpose`: for which the new pages are
/// asked.
pub(crate) async fn make_room(
    shared: &Shared,
    tree: Tree,
    key: &[u8],
    needed_bytes: usize,
    purpose: Purpose,
) -> Result<()> {
    make_room_at(shared, (tree, key, false), 0, needed_bytes, purpose).await
}

/// The same for a commit that has its timestamp: the pages are those that were reserved for it. `sorted`: the writes that come before it are made,
/// and it was counted on that the leaf is cut there.
pub(crate) async fn make_reserved_room(
    shared: &Shared,
    tree: Tree,
    key: &[u8],
    needed_bytes: usize,
    sorted: bool,
) -> Result<()> {
    make_room_at(shared, (tree, key, sorted), 0, needed_bytes, Purpose::Checkpoint).await
}

/// Splits the page of this level that covers the key, unless it has so much room, and those above it where they need room for that.
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
        // A commit has its rows locked.
        match run_at_once(shared, split).await? {
            SplitOutcome::Done => {
                todo.pop();
            }
            SplitOutcome::ParentFull { level, needed_bytes } => todo.push((level, needed_bytes)),
        }
    }
    Ok(())
}

/// A page id that goes back to the free ones unless it was used.
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
