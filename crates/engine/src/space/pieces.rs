//! Allocates pages for large values: in a row, or in pieces if no row is free.

use std::ops::Range;
use std::sync::Arc;

use qpair_format::Result;
use qpair_format::large::{Extents, Listed, runs_per_page};

use super::inner::Inner;
use super::{Purpose, Space};

impl Space {
    /// Calls [`Space::enter`], and allocates pages for a large value that belong to no checkpoint.
    /// They are in a row if there is such a row, or growing the device makes one; otherwise they
    /// are in pieces, with pages for the list of them.
    ///
    /// # Errors
    /// `NoSpace` if too few pages are free, wherever they are.
    pub(crate) fn reserve_value(&self, count: u64) -> Result<Extents> {
        self.enter()?;
        let mut inner = self.inner.lock();
        let row = match count <= self.run_pages_max {
            true => self.allocate_locked(&mut inner, count, Purpose::New),
            false => {
                let kept = self.reserve_of(&inner, 0, Purpose::New);
                self.grow(&mut inner, kept + 2 * count, Purpose::New)
                    .and_then(|()| Err(self.no_row(count)))
            }
        };
        let reserved = match row {
            Ok(start) => {
                inner.unlink(start, count);
                Ok(Extents::Run(start..start + count))
            }
            Err(error) => self.take_pieces(&mut inner, count).ok_or(error),
        };
        drop(inner);
        reserved.inspect_err(|_| self.leave())
    }

    /// Takes pages from the longest pieces first, down to single pages.
    fn take_pieces(&self, inner: &mut Inner, count: u64) -> Option<Extents> {
        let capacity = self.capacity();
        let kept = self.reserve_of(inner, 0, Purpose::New);
        let room = inner.free(capacity).saturating_sub(kept);
        let mut listed = Listed::default();
        let (mut missing, mut len) = (if room > count { count } else { 0 }, self.run_pages_max);
        while missing > 0 {
            len = len.min(missing);
            match inner.find(len, capacity) {
                Some(start) => {
                    inner.take(start, len);
                    missing -= len;
                    match listed.value.last_mut() {
                        Some(last)
                            if last.end == start
                                && start + len - last.start <= self.run_pages_max =>
                        {
                            last.end += len;
                        }
                        _ => listed.value.push(start..start + len),
                    }
                }
                None if len > 1 => len = len.div_ceil(2),
                None => break,
            }
        }
        let lists = listed.value.len().div_ceil(runs_per_page(self.page_bytes)).max(1);
        if room < count + lists as u64 || missing > 0 {
            listed.value.iter().for_each(|run| inner.give(run.start, run.end - run.start));
            self.note_short((count + lists as u64).saturating_sub(room).max(1));
            return None;
        }
        for _ in 0..lists {
            // There are enough free pages for all of them.
            let page_id = inner.find(1, capacity)?;
            inner.take(page_id, 1);
            listed.lists.push(page_id);
        }
        self.note_low(inner, kept);
        let extents = Extents::Listed(Arc::new(listed));
        let unlink = |run: Range<u64>| inner.unlink(run.start, run.end - run.start);
        extents.runs().for_each(unlink);
        Some(extents)
    }
}
