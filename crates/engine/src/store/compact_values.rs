//! Compaction of large values: those near the end of the device are rewritten, by ordinary commits
//! of their present contents.
//!
//! A value moves only if there are enough adjacent free pages before the front, so that moving
//! never makes the store longer. A row that another transaction has locked is skipped.

use std::ops::Bound;
use std::time::Duration;

use qpair_format::{ErrorKind, Result};

use super::compact::Compaction;
use super::{Store, Table};
use crate::log::Durability;
use crate::shared::Shared;
use crate::task::run;
use crate::tree::{Batch, Direction, Scan, Tree};
use crate::tx::TransactionOptions;

/// The number of leaves that one task looks at.
const PART_LEAVES: usize = 64;

/// How long a rewrite waits for a locked row.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Whether compaction skips a value after this error and continues: others have locked the row or
/// used up the room for older values, the table is gone, or there is no room.
fn stays(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::TimedOut
            | ErrorKind::Conflict
            | ErrorKind::SnapshotLost
            | ErrorKind::NotFound
            | ErrorKind::NoSpace
            | ErrorKind::TooLarge
    )
}

struct Behind {
    key: Vec<u8>,
    pages: u64,
}

impl Compaction<'_> {
    /// Moves the large values of all tables, if pages still lie behind the front after the pages of
    /// the trees have moved.
    pub(super) fn values(&mut self, store: &Store, tables: &[Table]) -> Result<()> {
        self.checkpoint()?;
        match self.inner.shared.space.behind(self.front).0 {
            0 => Ok(()),
            _ => tables.iter().try_for_each(|table| self.values_of(store, table)),
        }
    }

    fn values_of(&mut self, store: &Store, table: &Table) -> Result<()> {
        let table = &table.stored();
        let mut next = Some(Bound::Unbounded);
        while let Some(from) = next {
            let (shared, tree, front) = (self.inner.shared.clone(), table.tree(), self.front);
            let found =
                self.inner.block_on(move || async move { look(&shared, tree, from, front).await });
            let (behind, rest) = match found {
                Ok(found) => found,
                // The table was dropped meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            next = rest;
            for value in behind {
                if self.inner.shared.space.has_row_before(self.front, value.pages) {
                    self.rewrite(store, table, &value)?;
                }
                self.told()?;
            }
        }
        Ok(())
    }

    /// Puts a value again, in other pages.
    fn rewrite(&mut self, store: &Store, table: &Table, value: &Behind) -> Result<()> {
        // The checkpoint that frees the old pages makes this commit durable.
        let options = TransactionOptions {
            durability: Durability::Async,
            lock_timeout: Some(LOCK_TIMEOUT),
            ..TransactionOptions::default()
        };
        let moved = store.transact_with(&options, |tx| match tx.get(table, &value.key)? {
            Some(bytes) => tx.put(table, &value.key, &bytes).map(|()| true),
            None => Ok(false),
        });
        match moved {
            Ok(true) => self.note_moved(value.pages),
            Ok(false) => Ok(()),
            Err(error) if stays(error.kind()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the large values of the next leaves that lie behind the front, and the key from which
/// the remaining leaves begin.
async fn look(
    shared: &Shared,
    tree: Tree,
    mut from: Bound<Vec<u8>>,
    front: u64,
) -> Result<(Vec<Behind>, Option<Bound<Vec<u8>>>)> {
    let (to, mut batch, mut behind) = (Bound::Unbounded, Batch::default(), Vec::new());
    for _ in 0..PART_LEAVES {
        batch.clear();
        run(shared, Scan::new(tree, Direction::Forward, &from, &to, &mut batch)).await?;
        for (key, value, is_large) in (0..batch.len()).map(|index| batch.entry(index)) {
            if is_large && let Some(pages) = shared.pages_of_large_behind(value, front) {
                behind.push(Behind { key: key.to_vec(), pages });
            }
        }
        match batch.next.take() {
            Some(next) => from = next,
            None => return Ok((behind, None)),
        }
    }
    Ok((behind, Some(from)))
}
