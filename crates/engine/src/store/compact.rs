//! Compaction of an open store: pages near the end of the device move to the front, and the device
//! is truncated behind the last page in use. See docs/design/space.md.
//!
//! - A page moves as any changed page does: it becomes dirty, and its next write goes to a new
//!   place. So a crash during compaction is like a crash at any time.
//! - The caller's thread hands out small parts, one at a time, to one worker, so that reads and
//!   writes of others continue between them.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_format::{Error, ErrorKind, Result};

use super::{Store, StoreInner};
use crate::checkpoint::checkpoint;
use crate::pool::Root;
use crate::shared::Shared;
use crate::task::{Descent, run, run_all};
use crate::tree::{Displace, Tree, Visit};

/// The number of pages that one task moves, and of inner pages that it visits for that.
const PART_PAGES: u64 = 1024;
const PART_VISITS: usize = 64;
/// The divisor for the share of the frames that moving may make dirty before a checkpoint, and a
/// limit in bytes.
const STEP_PART: u64 = 4;
const STEP_BYTES_MAX: u64 = 256 << 20;
/// The number of rounds, at most: meanwhile others may have written pages behind the front again.
const ROUNDS_MAX: u32 = 4;

/// The result of [`Store::compact`].
///
/// ```
/// # let options = qpair_engine::StoreOptions { format: true, ..Default::default() };
/// # let device = std::sync::Arc::new(qpair_block::RamDevice::new(qpair_block::RamOptions::default())?);
/// # let store = qpair_engine::Store::open(vec![device], &options)?;
/// # let table = store.table("t")?;
/// use std::ops::ControlFlow;
///
/// let report = store.compact(&|_moved, _all| ControlFlow::Continue(()))?;
/// assert!(report.bytes_after <= report.bytes_before);
/// # drop(table);
/// # store.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// The size of the store's members before, in bytes, without superblocks.
    pub bytes_before: u64,
    /// The size of the store's members now, in bytes, without superblocks.
    pub bytes_after: u64,
    /// The number of pages that were moved.
    pub moved_pages: u64,
    /// The size of the log segments, and of large values that no checkpoint has, behind the place
    /// where the store would otherwise end, in bytes. Logs move as they grow, and end when the
    /// store is closed.
    pub log_bytes_behind: u64,
    /// The size of the trees' pages behind that place, in bytes: large values for which there are
    /// not enough adjacent free pages before it, and pages that others wrote meanwhile.
    pub bytes_behind: u64,
    /// The time that compaction took.
    pub elapsed: Duration,
}

pub(super) struct Compaction<'a> {
    pub(super) inner: &'a StoreInner,
    progress: &'a dyn Fn(u64, u64) -> ControlFlow<()>,
    pub(super) front: u64,
    moved: u64,
    total: u64,
    /// The number of pages made dirty since the last checkpoint.
    dirty: u64,
}

/// The position of a pass over a tree's pages of a level: pages from `key` on are left.
struct Walk {
    tree: Tree,
    level: u8,
    key: Option<Vec<u8>>,
}

/// A guard that lets pages be allocated anywhere again when the compaction ends.
struct Front(Arc<Shared>);

impl Drop for Front {
    fn drop(&mut self) {
        self.0.space.allocate_anywhere();
    }
}

impl Store {
    /// Makes the store's files nearly as short as their contents: pages near the end move to the
    /// front, and the files are truncated behind them. Other calls continue meanwhile. Compaction
    /// reads one part of the store at a time, and writes it with checkpoints, each of a quarter of
    /// the memory or 256 MiB.
    ///
    /// `progress` receives the number of pages moved and of pages to move, and may break the
    /// compaction off; it may also sleep, to limit the rate of reads and writes.
    ///
    /// A store needs free pages to be changed
    /// ([`StoreReport::free_pages`](super::StoreReport::free_pages)). The next changes therefore
    /// make its files longer again, by as much as the dirty pages in memory need. Stores on block
    /// devices, whose size is fixed, are not changed.
    ///
    /// A large value is moved by rewriting it, if there are enough adjacent free pages for it and
    /// no other transaction has locked its row. A concurrent transaction that writes the same row
    /// may conflict with this commit.
    ///
    /// Tables that are not open are opened, as long as their roots take only a small share of the
    /// memory ([`Store::table`]); pages of other tables are not moved.
    ///
    /// # Errors
    /// `Interrupted` if `progress` broke the compaction off: pages that were moved stay moved, and
    /// the store is consistent. `ReadOnly`; `NoSpace` if there is no place for pages; `Invalid` on
    /// a worker; `Closed`; and errors of the device, for example for a page that cannot be read.
    pub fn compact(&self, progress: &dyn Fn(u64, u64) -> ControlFlow<()>) -> Result<CompactReport> {
        let (began, shared) = (Instant::now(), &self.inner.shared);
        shared.check_caller()?;
        self.inner.incarnation.begin_change()?;
        let bytes_before = shared.device.size_bytes();
        let mut report = CompactReport { bytes_before, ..CompactReport::default() };
        let _front = Front(shared.clone());
        for _ in 0..ROUNDS_MAX {
            if !shared.device.shrinks() {
                break;
            }
            self.inner.checkpoint_alone()?;
            shared.give_recycled_segments();
            let Some(front) = shared.space.front_of_all() else { break };
            shared.space.allocate_before(front);
            let mut compaction = Compaction {
                inner: &self.inner,
                progress,
                front,
                moved: 0,
                total: shared.space.behind(front).0,
                dirty: 0,
            };
            let mut tables = Vec::new();
            for name in self.table_names()?.iter().take(self.inner.opened_for_all_max()) {
                tables.extend(self.existing_table(name)?);
            }
            let moved = compaction.all().and_then(|()| compaction.values(self, &tables));
            report.moved_pages += compaction.moved;
            moved?;
            // Two checkpoints after the trees, since checkpoints alternate between two places for
            // their descriptions. The first may be the one before the large values.
            if compaction.dirty > 0 {
                compaction.checkpoint()?;
            }
            self.inner.checkpoint_alone()?;
            let (behind, unlinked) = shared.space.behind(front);
            report.bytes_behind = behind * shared.page_size as u64;
            report.log_bytes_behind = unlinked * shared.page_size as u64;
            while shared.space.cut_some().map_err(|e| Error::block(e, "truncating the store"))? {}
            if compaction.moved == 0 || behind == 0 {
                break;
            }
        }
        self.inner.check_not_removed()?;
        report.bytes_after = shared.device.size_bytes();
        report.elapsed = began.elapsed();
        Ok(report)
    }
}

impl StoreInner {
    fn checkpoint_alone(&self) -> Result<()> {
        let shared = self.shared.clone();
        self.block_on(move || async move { checkpoint(&shared, false).await })
    }
}

impl Compaction<'_> {
    fn all(&mut self) -> Result<()> {
        let shared = &self.inner.shared;
        let roots = shared.forest.roots().clone();
        for (id, root) in roots {
            let Root::Open(root) = root else { continue };
            let tree = Tree::new(id, root);
            let levels = tree.levels(&shared.pool) as u8;
            for level in (levels.min(1)..=levels).rev() {
                match self.level(tree, level) {
                    // The table was dropped meanwhile.
                    Err(error) if error.kind() == ErrorKind::NotFound => break,
                    outcome => outcome?,
                }
            }
        }
        let _ = (self.progress)(self.moved, self.moved);
        Ok(())
    }

    /// Goes through the inner pages of a tree's level, and through the leaves right below them.
    fn level(&mut self, tree: Tree, level: u8) -> Result<()> {
        let shared = &self.inner.shared;
        let mut walk = Walk { tree, level, key: Some(Vec::new()) };
        while walk.key.is_some() {
            let (of_task, front) = (shared.clone(), self.front);
            let (left, moved) = self.inner.block_on(move || async move {
                let moved = Cell::new(0);
                let left = walk.part(&of_task, front, &moved).await?;
                Ok((left, moved.get()))
            })?;
            walk = left;
            self.note_moved(moved)?;
            self.told()?;
        }
        Ok(())
    }

    /// Counts pages that were moved. Once there are many, makes a checkpoint, which writes them and
    /// frees their old places.
    pub(super) fn note_moved(&mut self, pages: u64) -> Result<()> {
        let shared = &self.inner.shared;
        let step = (u64::from(shared.pool.active()) / STEP_PART)
            .min(STEP_BYTES_MAX / shared.page_size as u64);
        self.moved += pages;
        self.dirty += pages;
        if self.dirty >= step { self.checkpoint() } else { Ok(()) }
    }

    /// Makes a checkpoint of the moved pages; new places are then taken from the front again.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        self.inner.checkpoint_alone()?;
        self.inner.shared.space.allocate_before(self.front);
        self.dirty = 0;
        Ok(())
    }

    /// Reports the progress to the caller.
    ///
    /// # Errors
    /// `Interrupted` if the caller breaks the compaction off.
    pub(super) fn told(&self) -> Result<()> {
        match (self.progress)(self.moved, self.total.max(self.moved)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                Err(Error::new(ErrorKind::Interrupted, "compaction was interrupted"))
            }
        }
    }
}

impl Walk {
    /// Continues the pass for a limited number of pages, and adds the moved pages to `moved`;
    /// returns the rest of the pass.
    async fn part(mut self, shared: &Shared, front: u64, moved: &Cell<u64>) -> Result<Self> {
        let Self { tree, level, .. } = self;
        for _ in 0..PART_VISITS {
            let Some(key) = self.key.take() else { break };
            let (descent, displaced) = (Descent::default(), moved);
            let visit = Visit { tree, key: &key, level, front, displaced, descent };
            let Some(visited) = run(shared, visit).await? else { break };
            let leaves = visited.behind.iter().map(|key| {
                let descent = Descent::default();
                Displace { tree, key, front, displaced, descent }
            });
            run_all(shared, leaves).await?;
            self.key = visited.next;
            if moved.get() >= PART_PAGES {
                break;
            }
        }
        Ok(self)
    }
}
