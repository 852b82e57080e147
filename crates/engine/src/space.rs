//! Which pages are free, and where new ones come from.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use qpair_block::BlockDevice;

use crate::error::{Error, Result};

/// Least and most bytes by which the device is made larger at once.
const GROWTH_BYTES_MIN: u64 = 1 << 20;
const GROWTH_BYTES_MAX: u64 = 1 << 30;

/// The allocator of page ids: free runs first, then fresh pages at the high-water mark.
#[derive(Debug)]
pub(crate) struct Space {
    device: Arc<dyn BlockDevice>,
    page_size: u64,
    /// Pages at or above this id were never used. Changed under the lock; read without.
    high_water: AtomicU64,
    free: Mutex<Runs>,
}

/// Free runs of pages.
#[derive(Debug, Default)]
struct Runs {
    /// First page to number of pages; runs never touch.
    by_start: BTreeMap<u64, u64>,
    pages: u64,
    /// Reservations that will be kept or given back.
    pending: u64,
    /// Nothing is reserved any more.
    closing: bool,
}

impl Runs {
    fn insert(&mut self, mut start: u64, mut count: u64) {
        self.pages += count;
        if let Some((&before, &len)) = self.by_start.range(..start).next_back()
            && before + len == start
        {
            self.by_start.remove(&before);
            start = before;
            count += len;
        }
        if let Some(len) = self.by_start.remove(&(start + count)) {
            count += len;
        }
        self.by_start.insert(start, count);
    }

    fn take(&mut self, count: u64) -> Option<u64> {
        let (&start, &len) = self.by_start.iter().find(|(_, len)| **len >= count)?;
        self.by_start.remove(&start);
        if len > count {
            self.by_start.insert(start + count, len - count);
        }
        self.pages -= count;
        Some(start)
    }
}

impl Space {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, page_size: usize, high_water: u64) -> Self {
        Self {
            device,
            page_size: page_size as u64,
            high_water: high_water.into(),
            free: Mutex::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Runs> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn high_water(&self) -> u64 {
        self.high_water.load(Ordering::Relaxed)
    }

    pub(crate) fn free_pages(&self) -> u64 {
        self.lock().pages
    }

    /// The free runs, first page and count, in order.
    pub(crate) fn free_runs(&self) -> Vec<(u64, u64)> {
        self.lock().by_start.iter().map(|(start, count)| (*start, *count)).collect()
    }

    /// Allocates `count` pages in a row. Space that this returns is reserved on the device.
    ///
    /// # Errors
    /// `NoSpace`, or `Closed` if the store is being closed; nothing is allocated then.
    pub(crate) fn allocate(&self, count: u64) -> Result<u64> {
        let mut free = self.lock();
        if free.closing {
            return Err(Error::closed());
        }
        if let Some(start) = free.take(count) {
            return Ok(start);
        }
        self.extend(count)
    }

    /// Allocates `count` fresh pages at the high-water mark, even if freed ones would do.
    pub(crate) fn allocate_fresh(&self, count: u64) -> Result<u64> {
        let _free = self.lock();
        self.extend(count)
    }

    /// Moves the high-water mark; the lock is held.
    fn extend(&self, count: u64) -> Result<u64> {
        let start = self.high_water.load(Ordering::Relaxed);
        let end_bytes = (start + count) * self.page_size;
        let size_bytes = self.device.size_bytes();
        if end_bytes > size_bytes {
            let step = (size_bytes / 4).clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX);
            let wanted = end_bytes.max(size_bytes + step);
            self.device
                .grow(wanted)
                .or_else(
                    |error| {
                        if wanted > end_bytes { self.device.grow(end_bytes) } else { Err(error) }
                    },
                )
                .map_err(|error| {
                    Error::block(error, format!("growing the store to {end_bytes} bytes"))
                })?;
        }
        self.high_water.store(start + count, Ordering::Relaxed);
        Ok(start)
    }

    /// Notes that somebody is about to allocate pages, and to refer to them or give them back: a close waits for
    /// [`Space::leave`].
    ///
    /// # Errors
    /// `Closed` if the store is being closed.
    pub(crate) fn enter(&self) -> Result<()> {
        let mut free = self.lock();
        if free.closing {
            return Err(Error::closed());
        }
        free.pending += 1;
        Ok(())
    }

    /// The end of what [`Space::enter`] began.
    pub(crate) fn leave(&self) {
        self.lock().pending -= 1;
    }

    /// [`Space::enter`] and [`Space::allocate`] in one.
    pub(crate) fn reserve(&self, count: u64) -> Result<u64> {
        self.enter()?;
        self.allocate(count).inspect_err(|_| self.leave())
    }

    /// Lets nobody enter from now on.
    pub(crate) fn begin_closing(&self) {
        self.lock().closing = true;
    }

    /// How many have entered and not left.
    pub(crate) fn pending(&self) -> u64 {
        self.lock().pending
    }

    /// Gives pages back.
    pub(crate) fn free(&self, start: u64, count: u64) {
        self.lock().insert(start, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_merge_and_split() {
        let mut runs = Runs::default();
        for start in [10, 30, 20] {
            runs.insert(start, 10);
        }
        assert_eq!(runs.by_start, BTreeMap::from([(10, 30)]));
        assert_eq!(runs.take(4), Some(10));
        assert_eq!(runs.take(40), None);
        runs.insert(50, 1);
        assert_eq!(runs.take(26), Some(14));
        assert_eq!((runs.pages, runs.take(1)), (1, Some(50)));
    }
}
