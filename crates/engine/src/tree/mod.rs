//! The B+-tree: operations on pages in frames. Each operation is synchronous and can return the
//! condition that it waits for.
//!
//! A page covers the keys from its lower fence up to, not including, its upper fence. Each page is
//! referred to from one place, its parent. The root keeps its frame as long as the tree exists;
//! when the root splits, its content moves down.

mod below;
mod descend;
mod displace;
mod fill;
mod get;
mod merge;
mod prefetch;
mod put;
mod range_end;
mod reach;
mod read_ahead;
mod remove;
mod room;
mod root;
mod sample;
mod scan;
mod sparse;
mod split;
mod undo;

pub(crate) use below::{Absent, Arrival, Below, Fetch, Fetched, Resident};
pub(crate) use displace::{Displace, Visit};
pub(crate) use fill::{Fill, FillRecord, FillSpace, Filled};
pub(crate) use get::{Found, Get, Seen};
pub(crate) use merge::{Merge, Merged};
pub(crate) use prefetch::{SIDE_BY_SIDE, prefetch, prefetch_again};
pub(crate) use put::{Beside, Change, Lack, Prepare, Prepared, Put, PutOutcome};
pub(crate) use range_end::{RangeEnd, Record};
pub(crate) use reach::Reach;
pub(crate) use read_ahead::{Pace, ReadAhead};
pub(crate) use remove::{Remove, Removed};
pub(crate) use room::{make_reserved_room, make_room, make_room_at};
pub(crate) use sample::Sample;
pub(crate) use scan::{Batch, Direction, Scan};
pub(crate) use sparse::{Sparse, merge_later, merge_sparse};
pub(crate) use split::{Split, SplitOutcome};
pub(crate) use undo::{NoUndo, UndoSink, descriptor};

use qpair_format::page::Node;
use qpair_memory::{FrameIndex, OptimisticFrame, Version};

pub(crate) use crate::pool::Tree;

/// A leaf and the version it had: a place to continue from, as long as the version does not change.
pub(crate) type Leaf = (FrameIndex, Version);

/// The position of a key in a leaf, or the position it would have. Valid as long as the leaf's
/// version does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CursorHint {
    pub(crate) leaf: Leaf,
    position: u16,
    found: bool,
}

impl CursorHint {
    fn new(page: OptimisticFrame<'_>, (position, found): (usize, bool)) -> Self {
        Self { leaf: (page.index(), page.version()), position: position as u16, found }
    }

    /// Returns the position of a key and whether it is there. Uses the cursor hint if it belongs to
    /// the page's present version, and searches otherwise.
    #[inline(always)]
    fn find_in(cursor_hint: Option<Self>, page: OptimisticFrame<'_>, key: &[u8]) -> (usize, bool) {
        match cursor_hint {
            Some(cursor_hint) if cursor_hint.leaf == (page.index(), page.version()) => {
                (usize::from(cursor_hint.position), cursor_hint.found)
            }
            _ => Node::new(page.bytes()).lower_bound(key),
        }
    }
}
