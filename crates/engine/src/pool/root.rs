//! Roots: the name and frame of a tree, and the way in which an operation notices that the tree is
//! gone.
//!
//! A root is the one page that is reached by the number of its frame alone, for as long as a handle
//! to it exists. Invariant: a frame's owner word names a tree exactly while its root is in that
//! frame. The word is set and cleared under the frame's latch, and ids of trees are not used twice.
//! An operation begins to read the frame, then looks at the word. If the word names the expected
//! tree, the read began before the frame's release, and its version detects that release. Any other
//! word means that the tree is gone for good.

use qpair_format::codec::Codec;
use qpair_format::group::group_key;
use qpair_format::page::{Node, whole_key_len_max};
use qpair_memory::FrameIndex;

use super::Pool;

/// A bound on the number of levels, which no tree reaches.
const LEVELS_MAX: u64 = 12;

/// The mark of a root in a frame's owner word, above the tree's id: its table exists.
const OPEN: u64 = 1 << 32;
/// The mark of a root whose table was dropped, and whose tree is not empty yet.
const DROPPED: u64 = 2 << 32;
/// The owner word of a frame without a root.
const NONE: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// The root is in this frame, pinned.
    Open(FrameIndex),
    /// The root is in this page; the tree was not used since the store was opened.
    Closed(u64),
}

/// An open tree: its root is in a frame, and stays there until the tree was dropped and is empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    pub(crate) id: u32,
    pub(crate) root: FrameIndex,
    /// How values of callers become values of the tree.
    pub(crate) codec: Codec,
    /// The longest key of callers that is a key of the tree. Records with longer keys are in
    /// groups.
    whole_key_len_max: u16,
}

impl Tree {
    /// Returns the tree for callers that have its values as they are stored, and groups as they
    /// are.
    pub(crate) fn new(id: u32, root: FrameIndex) -> Self {
        Self { id, root, codec: Codec::PLAIN, whole_key_len_max: u16::MAX }
    }

    /// Returns the tree for callers whose values become those of the tree as the tree's id says,
    /// and whose records are in groups if their keys are too long for these pages.
    pub(crate) fn coded(self, page_bytes: usize) -> Self {
        let whole_key_len_max = whole_key_len_max(page_bytes) as u16;
        Self { codec: Codec::of_tree(self.id), whole_key_len_max, ..self }
    }

    /// Returns the tree for callers that have its groups as they are.
    pub(crate) fn with_groups(self) -> Self {
        Self { whole_key_len_max: u16::MAX, ..self }
    }

    /// Whether callers see groups as they are.
    pub(crate) fn has_groups(self) -> bool {
        self.whole_key_len_max == u16::MAX
    }

    /// Whether the record of this key is in a group, or this is the key of a group.
    #[inline(always)]
    pub(crate) fn is_long(self, key: &[u8]) -> bool {
        key.len() > usize::from(self.whole_key_len_max)
    }

    /// Returns the key of the group that has a long key's record.
    pub(crate) fn group_key(self, key: &[u8]) -> Vec<u8> {
        group_key(key, self.whole_key_len_max.into())
    }

    /// Returns the part of a long key that its group keeps, or that follows the head in the key of
    /// a group.
    pub(crate) fn rest(self, key: &[u8]) -> &[u8] {
        key.get(usize::from(self.whole_key_len_max)..).unwrap_or_default()
    }

    /// Returns how many of these long keys, from the first one on, have records in one group.
    pub(crate) fn count_of_group(self, keys: &[Vec<u8>]) -> usize {
        let head_len = usize::from(self.whole_key_len_max);
        let head = keys.first().and_then(|key| key.get(..head_len));
        keys.iter().take_while(|key| self.is_long(key) && key.get(..head_len) == head).count()
    }

    fn open_word(&self) -> u64 {
        OPEN | u64::from(self.id)
    }

    fn dropped_word(&self) -> u64 {
        DROPPED | u64::from(self.id)
    }

    /// Notes that the frame has the tree's root from now on. The caller holds the frame's latch.
    pub(crate) fn settle(&self, pool: &Pool) {
        pool.frames.set_owner(self.root, self.open_word());
    }

    /// Notes that the frame is about to be given away. The caller holds the frame's latch.
    pub(crate) fn leave(&self, pool: &Pool) {
        pool.frames.set_owner(self.root, NONE);
    }

    /// Notes that the table is about to be dropped, or, if `dropped` is `false`, that it is not
    /// dropped after all.
    pub(crate) fn note_dropped(&self, pool: &Pool, dropped: bool) {
        let (from, to) = match dropped {
            true => (self.open_word(), self.dropped_word()),
            false => (self.dropped_word(), self.open_word()),
        };
        pool.frames.change_owner(self.root, from, to);
    }

    /// Whether the table exists and was not dropped.
    #[inline(always)]
    pub(crate) fn is_open(&self, pool: &Pool) -> bool {
        pool.frames.owner(self.root) == self.open_word()
    }

    /// Whether the root is in its frame. The root stays there for a while after its table was
    /// dropped.
    #[inline(always)]
    pub(crate) fn is_there(&self, pool: &Pool) -> bool {
        let owner = pool.frames.owner(self.root);
        owner == self.open_word() || owner == self.dropped_word()
    }

    /// Returns the present number of levels above the leaves.
    pub(crate) fn levels(&self, pool: &Pool) -> u64 {
        let root = pool.frames.optimistic(self.root);
        root.map_or(LEVELS_MAX, |root| Node::new(root.bytes()).level().into())
    }
}
