//! Moves pages to the front of the device, and gives back the space behind them.

use std::sync::atomic::Ordering;

use qpair_format::place::PAGES_MAX;

use super::Space;

/// The number of pages that a file may have beside those in use and a 16th more: pages that move
/// with each checkpoint need two places.
const SLACK_PAGES: u64 = 16;

/// A store of up to this size is made as short as possible at each close.
const SMALL_BYTES: u64 = 16 << 20;

/// The number of bytes that are given back at once: no task is given pages meanwhile.
const CUT_BYTES_MAX: u64 = 64 << 20;

impl Space {
    /// Gives back the space behind the last page of the last durable checkpoint. No page may be
    /// allocated any more.
    ///
    /// # Errors
    /// Returns the device's error; the size is then unchanged.
    pub(crate) fn cut_end_off(&self) -> qpair_block::Result<()> {
        let inner = self.inner.lock();
        if !inner.held.is_empty() {
            return Ok(());
        }
        self.device.shrink(inner.durable_end().min(self.capacity()) * self.page_size)
    }

    /// Returns the page at which the pages of a closed store would end if they were moved to the
    /// front, and how many pages lie behind it. Returns `None` if the file would shrink by less
    /// than half of the pages in use; a small store counts any gain. Also returns `None` while a
    /// backup holds an image.
    pub(crate) fn front(&self) -> Option<(u64, u64)> {
        let inner = self.inner.lock();
        let used = inner.durable.count();
        let front = used + used / 16 + inner.log + SLACK_PAGES;
        let is_small = used * self.page_size <= SMALL_BYTES;
        let is_long = inner.durable_end() > front + if is_small { 0 } else { used / 2 };
        (is_long && inner.held.is_empty()).then(|| {
            let words = front.div_ceil(64) as usize..inner.durable.words_len();
            (front, words.map(|word| u64::from(inner.durable.word(word).count_ones())).sum())
        })
    }

    /// Returns the page at which the pages of the trees would end if they were moved to the front,
    /// and how many pages lie behind it. Returns `None` if the file would shrink by less than half
    /// of the pages in use plus [`SMALL_BYTES`], or while a backup holds an image.
    pub(crate) fn front_of_trees(&self) -> Option<(u64, u64)> {
        let inner = self.inner.lock();
        let used = inner.used.saturating_sub(inner.log);
        let front = used + used / 16 + SLACK_PAGES;
        let is_long = inner.linked.end() > front + used / 2 + SMALL_BYTES / self.page_size;
        (is_long && inner.held.is_empty()).then(|| (front, inner.linked.count_from(front)))
    }

    /// Makes the descriptions of checkpoints end before this page, and new places come from the
    /// front, from now on.
    pub(crate) fn allocate_before(&self, front: u64) {
        self.front.store(front, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        (inner.cursor, inner.row_cursor) = (0, 0);
        inner.fronts = [front; 2];
    }

    /// Whether `count` pages in a row are free before `front`. The next row is then looked for
    /// there first.
    pub(crate) fn has_row_before(&self, front: u64, count: u64) -> bool {
        let front = front.min(self.capacity());
        let mut inner = self.inner.lock();
        let found = inner.find(count, front);
        if let Some(start) = found {
            inner.row_cursor = (start / 64) as usize;
            inner.fronts[1] = front;
        }
        found.is_some()
    }

    /// Lets new places be anywhere again.
    pub(crate) fn allocate_anywhere(&self) {
        self.front.store(u64::MAX, Ordering::Relaxed);
        self.inner.lock().fronts = [0; 2];
    }

    /// Whether a run is in the part that a checkpoint's description may use.
    pub(crate) fn is_before_front(&self, start: u64, count: u64) -> bool {
        start + count <= self.front.load(Ordering::Relaxed)
    }

    /// Returns the page at which the pages of an open store would end if they were moved to the
    /// front, or `None` if the device would hardly be smaller.
    pub(crate) fn front_of_all(&self) -> Option<u64> {
        let inner = self.inner.lock();
        let front = inner.used + inner.used / 16 + SLACK_PAGES;
        (self.capacity() > front).then_some(front)
    }

    /// Returns the number of pages in use that lie at or behind `front`: those of the trees, and
    /// those that belong to no checkpoint.
    pub(crate) fn behind(&self, front: u64) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.linked.count_from(front), inner.unlinked.count_from(front))
    }

    /// Gives back the space behind the last page that may not be handed out, or a part of it.
    /// Returns whether there may be more.
    ///
    /// # Errors
    /// Returns the device's error.
    pub(crate) fn cut_some(&self) -> qpair_block::Result<bool> {
        let _alone = self.resizing.lock();
        let inner = self.inner.lock();
        let (end, capacity) = (inner.end().min(self.capacity()), self.capacity());
        let least = capacity.saturating_sub(CUT_BYTES_MAX / self.page_size);
        if end == capacity {
            return Ok(false);
        }
        let cut = self.device.shrink(end.max(least) * self.page_size);
        // The device keeps whole blocks, or rows of a stripe, and keeps its size after an error.
        let pages = (self.device.size_bytes() / self.page_size).min(PAGES_MAX);
        self.capacity.store(pages, Ordering::Relaxed);
        cut.map(|()| end < least && pages < capacity)
    }
}
