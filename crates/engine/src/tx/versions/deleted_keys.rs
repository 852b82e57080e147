//! Deleted keys that snapshots may still see, in order.
//!
//! The keys are in a special tree. Each node knows the span of commits between which its keys
//! existed, so a reader of a snapshot skips all keys that were made after it or deleted before it,
//! however many they are.
//!
//! Invariants: a node's span covers the spans of its keys. Keys are in order. No node but the root
//! is empty. Every key of a child is at or above the child's `low` and below the `low` of the next
//! child. Searches rely on that, so a key that is smaller than every key of a node lowers the `low`
//! of the node's first child.

use std::cmp::Ordering;
use std::ops::{Bound, Range};
use std::sync::Arc;

use super::bounds::Bounds;
use crate::tree::Direction;

/// The number of entries in a node, at most. Small in tests, so that few keys make a deep tree.
const ENTRIES_MAX: usize = if cfg!(test) { 4 } else { 32 };
/// The number of keys that are looked at while the lock is held, at most.
const LOOKED_MAX: usize = 1024;

/// The span in which a key existed, as far as the row table knows: snapshots from `born` on and
/// below `gone` may see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) born: u64,
    pub(super) gone: u64,
}

impl Span {
    /// A span that covers no snapshot.
    const NONE: Self = Self { born: u64::MAX, gone: 0 };

    fn with(self, other: Self) -> Self {
        Self { born: self.born.min(other.born), gone: self.gone.max(other.gone) }
    }
}

/// A filter for keys: deleted by a commit above one timestamp, and existing at another or before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    gone_above: u64,
    born_upto: u64,
}

impl Wanted {
    /// Returns the filter for keys that a snapshot sees.
    pub(crate) fn seen_at(snapshot: u64) -> Self {
        Self { gone_above: snapshot, born_upto: snapshot }
    }

    /// Returns the filter for keys that were deleted after a snapshot, even if they were made after
    /// it as well.
    pub(crate) fn deleted_after(snapshot: u64) -> Self {
        Self { gone_above: snapshot, born_upto: u64::MAX }
    }

    /// Whether a key deleted by a commit of this timestamp, or of an earlier one, may be wanted.
    pub(super) fn is_after(self, newest: u64) -> bool {
        newest > self.gone_above
    }

    fn has(self, span: Span) -> bool {
        span.gone > self.gone_above && span.born <= self.born_upto
    }
}

/// Some of the keys of a range, in its order.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) keys: Vec<Arc<[u8]>>,
    /// The last key that was looked at, unless the whole range was.
    pub(crate) upto: Option<Arc<[u8]>>,
}

#[derive(Debug)]
struct Entry {
    tree: u32,
    key: Arc<[u8]>,
    span: Span,
}

#[derive(Debug)]
struct Child {
    /// The tree of the key `low`.
    tree: u32,
    /// A lower bound of the child's keys.
    low: Arc<[u8]>,
    span: Span,
    node: Node,
}

#[derive(Debug)]
enum Node {
    Leaf(Vec<Entry>),
    Inner(Vec<Child>),
}

/// The deleted keys of some trees.
#[derive(Debug)]
pub(super) struct DeletedKeys {
    root: Node,
    /// Plants [`Canary::DeletedKeysOutOfOrder`](crate::canary::Canary::DeletedKeysOutOfOrder).
    keeps_low: bool,
}

impl DeletedKeys {
    /// Creates an empty set. `keeps_low` plants the bug that a smaller key does not lower its
    /// node's `low`.
    pub(super) fn new(keeps_low: bool) -> Self {
        Self { root: Node::Leaf(Vec::new()), keeps_low }
    }

    /// Adds a key, or extends its span.
    pub(super) fn insert(&mut self, tree: u32, key: Arc<[u8]>, span: Span) {
        if let Some(right) = self.root.insert(tree, key, span, self.keeps_low) {
            let left = std::mem::replace(&mut self.root, Node::Inner(Vec::new()));
            // No key is below the lowest bound.
            self.root = Node::Inner(vec![left.into_child(0, Arc::default()), right]);
        }
    }

    pub(super) fn remove(&mut self, tree: u32, key: &[u8]) {
        self.root.remove(tree, key);
        match &mut self.root {
            Node::Inner(children) if children.is_empty() => self.root = Node::Leaf(Vec::new()),
            Node::Inner(children) if children.len() == 1 => {
                if let Some(only) = children.pop() {
                    self.root = only.node;
                }
            }
            _ => {}
        }
    }

    /// Returns the wanted keys of a range, at most `most`.
    pub(super) fn find(
        &self,
        tree: u32,
        bounds: Bounds<'_>,
        direction: Direction,
        wanted: Wanted,
        most: usize,
        keys: Vec<Arc<[u8]>>,
    ) -> Found {
        let mut search = Search {
            tree,
            bounds,
            direction,
            wanted,
            most,
            looked: 0,
            found: Found { keys, upto: None },
        };
        search.visit(&self.root);
        search.found
    }
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    fn span(&self) -> Span {
        match self {
            Self::Leaf(entries) => {
                entries.iter().fold(Span::NONE, |span, entry| span.with(entry.span))
            }
            Self::Inner(children) => {
                children.iter().fold(Span::NONE, |span, child| span.with(child.span))
            }
        }
    }

    fn into_child(self, tree: u32, low: Arc<[u8]>) -> Child {
        Child { tree, low, span: self.span(), node: self }
    }

    /// Adds a key. Returns the right half if the node was split.
    fn insert(&mut self, tree: u32, key: Arc<[u8]>, span: Span, keeps_low: bool) -> Option<Child> {
        match self {
            Self::Leaf(entries) => match position(entries, tree, &key) {
                Ok(at) => entries[at].span = entries[at].span.with(span),
                Err(at) => entries.insert(at, Entry { tree, key, span }),
            },
            Self::Inner(children) => {
                let at = child_of(children, tree, &key);
                let child = &mut children[at];
                // Only the first child can be given a smaller key: the key that was its first may
                // have been removed.
                if (tree, &*key) < (child.tree, &*child.low) && !keeps_low {
                    (child.tree, child.low) = (tree, key.clone());
                }
                let right = child.node.insert(tree, key, span, keeps_low);
                child.span = match right {
                    Some(_) => child.node.span(),
                    None => child.span.with(span),
                };
                children.splice(at + 1..at + 1, right);
            }
        }
        if self.len() <= ENTRIES_MAX {
            return None;
        }
        Some(match self {
            Self::Leaf(entries) => {
                let right = entries.split_off(ENTRIES_MAX / 2);
                let (tree, low) = (right[0].tree, right[0].key.clone());
                Self::Leaf(right).into_child(tree, low)
            }
            Self::Inner(children) => {
                let right = children.split_off(ENTRIES_MAX / 2);
                let (tree, low) = (right[0].tree, right[0].low.clone());
                Self::Inner(right).into_child(tree, low)
            }
        })
    }

    fn remove(&mut self, tree: u32, key: &[u8]) {
        match self {
            Self::Leaf(entries) => {
                if let Ok(at) = position(entries, tree, key) {
                    entries.remove(at);
                }
            }
            Self::Inner(children) => {
                let at = child_of(children, tree, key);
                let child = &mut children[at];
                child.node.remove(tree, key);
                match child.node.len() {
                    0 => drop(children.remove(at)),
                    _ => child.span = child.node.span(),
                }
            }
        }
    }
}

fn position(entries: &[Entry], tree: u32, key: &[u8]) -> Result<usize, usize> {
    entries.binary_search_by(|entry| (entry.tree, &*entry.key).cmp(&(tree, key)))
}

/// Returns the child that has a key, or would have it. A key below the `low` of all children
/// belongs to the first one.
fn child_of(children: &[Child], tree: u32, key: &[u8]) -> usize {
    children.partition_point(|child| (child.tree, &*child.low) <= (tree, key)).saturating_sub(1)
}

/// A search for the keys of a range.
struct Search<'a> {
    tree: u32,
    bounds: Bounds<'a>,
    direction: Direction,
    wanted: Wanted,
    most: usize,
    looked: usize,
    found: Found,
}

impl Search<'_> {
    /// Returns whether a key is before the range, in it, or after it.
    fn side(&self, tree: u32, key: &[u8]) -> Ordering {
        let (low, high) = self.bounds;
        let is_before = match low {
            Bound::Included(low) => key < low,
            Bound::Excluded(low) => key <= low,
            Bound::Unbounded => false,
        };
        let is_behind = match high {
            Bound::Included(high) => key > high,
            Bound::Excluded(high) => key >= high,
            Bound::Unbounded => false,
        };
        tree.cmp(&self.tree).then(match (is_before, is_behind) {
            (true, _) => Ordering::Less,
            (_, true) => Ordering::Greater,
            _ => Ordering::Equal,
        })
    }

    /// Searches a node; returns whether to continue.
    fn visit(&mut self, node: &Node) -> bool {
        match node {
            Node::Leaf(entries) => {
                let part = self.part(entries, |entry| (entry.tree, &entry.key));
                self.in_order(&entries[part], Self::look)
            }
            Node::Inner(children) => {
                let part = self.part(children, |child| (child.tree, &child.low));
                // The child before the range may reach into it.
                self.in_order(&children[part.start.saturating_sub(1)..part.end], |search, child| {
                    !search.wanted.has(child.span) || search.visit(&child.node)
                })
            }
        }
    }

    /// Returns the entries of a node whose keys are in the range.
    fn part<T>(&self, all: &[T], place: impl Fn(&T) -> (u32, &Arc<[u8]>)) -> Range<usize> {
        let side = |one: &T| {
            let (tree, key) = place(one);
            self.side(tree, key)
        };
        let start = all.partition_point(|one| side(one).is_lt());
        start..start + all[start..].partition_point(|one| side(one).is_eq())
    }

    fn in_order<T>(&mut self, part: &[T], mut visit: impl FnMut(&mut Self, &T) -> bool) -> bool {
        match self.direction {
            Direction::Forward => part.iter().all(|one| visit(self, one)),
            Direction::Reverse => part.iter().rev().all(|one| visit(self, one)),
        }
    }

    fn look(&mut self, entry: &Entry) -> bool {
        self.looked += 1;
        if self.wanted.has(entry.span) {
            self.found.keys.push(entry.key.clone());
        }
        let goes_on = self.found.keys.len() < self.most && self.looked < LOOKED_MAX;
        if !goes_on {
            self.found.upto = Some(entry.key.clone());
        }
        goes_on
    }
}

#[cfg(test)]
mod tests;
