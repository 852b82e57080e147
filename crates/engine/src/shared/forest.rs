//! The trees of a store: their roots, and those that are being dropped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};

use qpair_format::codec::Codec;
use qpair_format::values::TREE_NUMBER_MAX;
use qpair_format::{Error, Result};
use qpair_memory::locks::Mutex;

use super::Shared;
use super::merging::Merging;
use crate::pool::{Root, Tree};
use crate::sync::AsyncMutex;

pub(crate) struct Forest {
    /// The roots of all trees, by tree id; 0 is the catalog. Trees without a name are being
    /// dropped.
    pub(super) roots: Mutex<BTreeMap<u32, Root>>,
    /// The number of the next table's tree. No number is used twice in an incarnation of the store:
    /// handles of a dropped table, and its records in the log, must not be taken for those of
    /// another table.
    next_tree: AtomicU32,
    /// Held by a task that loads the root of a tree.
    pub(crate) opening: Arc<AsyncMutex>,
    /// Whether any table was dropped since the store was opened.
    has_dropped: AtomicBool,
    /// Dropped tables whose pages are being given back.
    dropping: Mutex<Vec<u32>>,
    /// The places in the image of dropped trees' roots that left memory since the checkpoint under
    /// way began.
    retired: Mutex<BTreeMap<u32, u64>>,
    pub(crate) merging: Arc<Merging>,
}

impl Default for Forest {
    fn default() -> Self {
        Self {
            roots: Mutex::default(),
            next_tree: AtomicU32::new(1),
            opening: Arc::default(),
            has_dropped: AtomicBool::new(false),
            dropping: Mutex::default(),
            retired: Mutex::default(),
            merging: Arc::default(),
        }
    }
}

impl Forest {
    pub(crate) fn roots(&self) -> MutexGuard<'_, BTreeMap<u32, Root>> {
        self.roots.lock()
    }

    /// Returns the number of trees whose root is in memory, where it stays.
    pub(crate) fn count_open(&self) -> usize {
        self.roots().values().filter(|root| matches!(root, Root::Open(_))).count()
    }

    /// Returns an id that no tree has, nor had since the store was opened.
    pub(crate) fn new_tree_id(&self, codec: Codec) -> u32 {
        codec.tree_id(self.next_tree.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn skip_tree_id(&self, id: u32) {
        self.next_tree.fetch_max((id & TREE_NUMBER_MAX) + 1, Ordering::Relaxed);
    }

    /// Notes that a dropped table's pages are being given back (`begun`), or that all were.
    pub(crate) fn note_dropping(&self, tree: u32, begun: bool) {
        let mut dropping = self.dropping.lock();
        dropping.retain(|other| *other != tree);
        if begun {
            dropping.push(tree);
        }
    }

    pub(crate) fn dropping(&self) -> usize {
        self.dropping.lock().len()
    }

    pub(crate) fn has_dropped(&self) -> bool {
        self.has_dropped.load(Ordering::Acquire)
    }
}

impl Shared {
    /// Notes that a table is about to be dropped. Call it before the timestamp of the drop is
    /// taken, so that a commit with a later one sees it.
    pub(crate) fn note_dropped(&self, tree: Tree) {
        tree.note_dropped(&self.pool, true);
        self.forest.has_dropped.store(true, Ordering::Release);
    }

    /// Notes that the table is not dropped after all.
    pub(crate) fn forget_dropped(&self, tree: Tree) {
        tree.note_dropped(&self.pool, false);
    }

    /// Removes the root of a dropped tree, which is about to leave memory. Returns `false` if it
    /// has left already. The caller is inside the barrier and has the root latched.
    pub(crate) fn forget_root(&self, tree: Tree) -> bool {
        let mut roots = self.forest.roots();
        if roots.remove(&tree.id).is_none() {
            return false;
        }
        if self.checkpointing.epochs.epoch().saving {
            let place = self.pool.frames.page_id(tree.root);
            self.forest.retired.lock().insert(tree.id, place);
        }
        true
    }

    /// Returns all trees and their roots at the instant of a checkpoint, when the barrier is
    /// closed.
    pub(crate) fn begin_image_of_roots(&self) -> BTreeMap<u32, Root> {
        let roots = self.forest.roots();
        self.forest.retired.lock().clear();
        roots.clone()
    }

    /// Returns the places that the image has for the roots at its instant. Call it when all pages
    /// are saved, and while [`crate::pool::Checkpoints`] still says that they are being saved.
    pub(crate) fn places_of_roots(&self, at_instant: BTreeMap<u32, Root>) -> BTreeMap<u32, u64> {
        // A task that releases a root holds this lock, so the root stays in its frame until then.
        let now = self.forest.roots();
        let retired = self.forest.retired.lock();
        let place = |(tree, root)| match root {
            Root::Closed(page_id) => (tree, page_id),
            Root::Open(frame) => match retired.get(&tree) {
                Some(page_id) if !now.contains_key(&tree) => (tree, *page_id),
                // A root leaves its place only for an image, so the image has the root at its
                // present place.
                _ => (tree, self.pool.frames.page_id(frame)),
            },
        };
        at_instant.into_iter().map(place).collect()
    }

    /// Refuses the use of a table that was dropped. A reader calls this after its read: the table
    /// may be half empty by then.
    #[inline(always)]
    pub(crate) fn check_table(&self, tree: Tree) -> Result<()> {
        if tree.is_open(&self.pool) { Ok(()) } else { Err(Error::table_dropped()) }
    }
}
