//! Rows: pages that follow one another, of which some are free, until the others have moved.
//!
//! What always holds: from the moment a page of the row would be free it is in use, and of no checkpoint. So nobody is handed it, and nothing of
//! another's is given back with the row.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{Bitmap, Purpose, Space};

/// Pages of a word of the bitmaps.
const WORD: u64 = 64;

/// A row that is being made.
#[derive(Debug)]
pub(super) struct Row {
    pages: Range<u64>,
    /// Those among them that nothing else has any more.
    own: BTreeSet<u64>,
}

impl Row {
    /// Takes a page that somebody gives back, if it is of the row.
    pub(super) fn take(&mut self, page_id: u64) -> bool {
        self.pages.contains(&page_id) && self.own.insert(page_id)
    }
}

impl Space {
    /// Whether so many pages would be free for something new if nothing was kept for images, in a row or not.
    pub(crate) fn could_have(&self, count: u64) -> bool {
        let inner = self.lock();
        inner.used + count + self.kept_by(&inner, 0, Purpose::New) <= self.capacity()
    }

    /// Where `count` pages follow one another of which the fewest have to move, and all can as far as is known.
    pub(crate) fn find_row(&self, count: u64) -> Option<u64> {
        let capacity = self.capacity();
        let (attached, stays) = {
            let inner = self.lock();
            let attached = inner.attached.clone();
            let stays = (0..capacity.div_ceil(WORD) as usize).map(|index| {
                let held = inner.held.iter().fold(0, |word, (_, held)| word | held.word(index));
                inner.detached.word(index) | held | inner.fixed.word(index)
            });
            let stays = Bitmap::from_words(stays);
            (attached, stays)
        };
        let (mut best, mut to_move, mut start) = (None, 0, super::RECORD_PAGES);
        for page_id in super::RECORD_PAGES..capacity {
            if stays.get(page_id) {
                (to_move, start) = (0, page_id + 1);
                continue;
            }
            to_move += u64::from(attached.get(page_id));
            if page_id + 1 - start > count {
                to_move -= u64::from(attached.get(start));
                start += 1;
            }
            if page_id + 1 - start == count && best.is_none_or(|(least, _)| to_move < least) {
                best = Some((to_move, start));
            }
        }
        best.map(|(_, start)| start)
    }

    /// Begins to make a row; `false` if something has come between, or too few pages would be free beside it.
    pub(crate) fn begin_row(&self, pages: Range<u64>) -> bool {
        let mut inner = self.lock();
        let count = pages.end - pages.start;
        let kept = self.kept_by(&inner, 0, Purpose::New);
        let is_ours = |page: u64| !inner.detached.get(page);
        if inner.row.is_some()
            || inner.free(self.capacity()) < count + kept
            || !pages.clone().all(is_ours)
        {
            return false;
        }
        let free: BTreeSet<u64> = pages.clone().filter(|page| !inner.is_used(*page)).collect();
        for page_id in &free {
            inner.taken += u64::from(!inner.is_taken(*page_id));
            inner.used += 1;
            inner.detached.change(*page_id, 1, true);
        }
        inner.row = Some(Row { pages, own: free });
        true
    }

    /// Pages of the row that something else has.
    pub(crate) fn others_in_row(&self) -> Vec<u64> {
        let inner = self.lock();
        let row = inner.row.iter();
        row.flat_map(|row| row.pages.clone().filter(|page| !row.own.contains(page))).collect()
    }

    /// Whether nothing has a page of the row, and no image.
    pub(crate) fn is_row_free(&self) -> bool {
        let inner = self.lock();
        inner.row.as_ref().is_some_and(|row| {
            row.pages.clone().all(|page| row.own.contains(&page) && !inner.is_kept(page))
        })
    }

    /// Pages that no row is made of until somebody gives them back.
    pub(crate) fn note_fixed(&self, pages: &[u64]) {
        let mut inner = self.lock();
        pages.iter().for_each(|page_id| inner.fixed.change(*page_id, 1, true));
    }

    /// Gives back what the row has; who asks for pages in a row comes there first.
    pub(crate) fn end_row(&self) {
        let mut inner = self.lock();
        let Some(row) = inner.row.take() else { return };
        inner.row_cursor = (row.pages.start / WORD) as usize;
        row.own.into_iter().for_each(|page_id| inner.give(page_id, 1));
    }
}
