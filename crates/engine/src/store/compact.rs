//! Compaction of an open store: pages that lie far behind move to the front, and the device is cut off behind the last one in use.
//! See docs/design/space.md.
//!
//! - A page moves as any page that was changed does: it becomes dirty, and its next writer finds it a new place. So a crash leaves what
//!   a crash leaves at any time.
//! - The caller's thread hands out small parts, one at a time, to one worker; so what others read and write goes on between them.

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

/// Pages that move in one task, and inner pages that it looks at for them.
const PART_PAGES: u64 = 1024;
const PART_VISITS: usize = 64;
/// Part of the frames that moving makes dirty before a checkpoint writes them, and bytes of these at most.
const STEP_PART: u64 = 4;
const STEP_BYTES_MAX: u64 = 256 << 20;
/// How often all is gone through: what others write meanwhile may have come to lie behind again.
const ROUNDS_MAX: u32 = 4;

/// What [`Store::compact`] did.
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
    /// Bytes of the store's members before, without superblocks.
    pub bytes_before: u64,
    /// Bytes of them now.
    pub bytes_after: u64,
    /// Pages that were moved.
    pub moved_pages: u64,
    /// Bytes of the logs, and of large values that no checkpoint has, that lie behind where all else would end. Logs move as they go on, and end
    /// when the store is closed.
    pub log_bytes_behind: u64,
    /// Bytes of pages of the trees that lie behind there: large values for which no row is free before it, and what others wrote meanwhile.
    pub bytes_behind: u64,
    /// The time it took.
    pub elapsed: Duration,
}

/// Where a store's compaction has got to.
pub(super) struct Compaction<'a> {
    pub(super) inner: &'a StoreInner,
    progress: &'a dyn Fn(u64, u64) -> ControlFlow<()>,
    pub(super) front: u64,
    moved: u64,
    total: u64,
    /// Pages that were made dirty since the last checkpoint.
    dirty: u64,
}

/// Where a tree's pages of a level are being gone through: those from a key on are left.
struct Walk {
    tree: Tree,
    level: u8,
    key: Option<Vec<u8>>,
}

/// New places are anywhere again, however it ended.
struct Front(Arc<Shared>);

impl Drop for Front {
    fn drop(&mut self) {
        self.0.space.allocate_anywhere();
    }
}

impl Store {
    /// Makes the store's files as short as what is in them, nearly: pages that lie far behind move to the front, and the files are cut off behind
    /// them. Other calls go on meanwhile; one part of the store is read at a time, and written with checkpoints, of which each takes a quarter of
    /// the memory, or 256 MiB. `progress` is told the pages that were moved and those to move, and may break it off; it may also sleep, so that
    /// less is read and written in a second.
    ///
    /// A store needs free pages to be changed ([`StoreReport::free_pages`](super::StoreReport::free_pages)), so the next changes make its files
    /// longer again, by as much as the pages that are dirty in memory need. Stores on block devices, whose size is fixed, stay as they are.
    ///
    /// Large values move by being written anew, if there is a row of free pages for them and no other transaction has their row: a transaction that
    /// writes the same row meets a commit, and may conflict with it.
    ///
    /// Tables that are not open are opened, as long as their roots have little of the memory ([`Store::table`]); pages of others stay where they
    /// are.
    ///
    /// # Errors
    /// `Interrupted` if `progress` broke it off: what was moved stays so, and the store is whole as at any time. `ReadOnly`; `NoSpace` if pages
    /// find no place; `Invalid` on a worker; `Closed`; and what the device says, as of a page that cannot be read.
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
            // With the one before the large values two, since the runs that describe the checkpoints take turns.
            if compaction.dirty > 0 {
                compaction.checkpoint()?;
            }
            self.inner.checkpoint_alone()?;
            let (behind, unlinked) = shared.space.behind(front);
            report.bytes_behind = behind * shared.page_size as u64;
            report.log_bytes_behind = unlinked * shared.page_size as u64;
            while shared.space.cut_some().map_err(|e| Error::block(e, "cutting the store off"))? {}
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
    /// Goes through all trees that are open, the catalog among them.
    fn all(&mut self) -> Result<()> {
        let shared = &self.inner.shared;
        let roots = shared.forest.roots().clone();
        for (id, root) in roots {
            let Root::Open(root) = root else { continue };
            let tree = Tree { id, root };
            let levels = tree.levels(&shared.pool) as u8;
            for level in (levels.min(1)..=levels).rev() {
                match self.level(tree, level) {
                    // It was dropped meanwhile.
                    Err(error) if error.kind() == ErrorKind::NotFound => break,
                    outcome => outcome?,
                }
            }
        }
        let _ = (self.progress)(self.moved, self.moved);
        Ok(())
    }

    /// Goes through the inner pages of a tree's level, and what leaves are right below.
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

    /// Counts pages that were moved. A checkpoint writes them, and gives back where they were, once they are many.
    pub(super) fn note_moved(&mut self, pages: u64) -> Result<()> {
        let shared = &self.inner.shared;
        let step = (u64::from(shared.pool.active()) / STEP_PART)
            .min(STEP_BYTES_MAX / shared.page_size as u64);
        self.moved += pages;
        self.dirty += pages;
        if self.dirty >= step { self.checkpoint() } else { Ok(()) }
    }

    /// Makes a checkpoint of what was moved; new places come from the front again.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        self.inner.checkpoint_alone()?;
        self.inner.shared.space.allocate_before(self.front);
        self.dirty = 0;
        Ok(())
    }

    /// Tells the caller how far it is.
    ///
    /// # Errors
    /// `Interrupted` if the caller breaks it off.
    pub(super) fn told(&self) -> Result<()> {
        match (self.progress)(self.moved, self.total.max(self.moved)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                Err(Error::new(ErrorKind::Interrupted, "compaction was broken off"))
            }
        }
    }
}

impl Walk {
    /// Goes on for a while, and counts pages that were moved; what is left.
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
