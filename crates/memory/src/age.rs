//! The age of a page's content, for readers that may not wait for the page's latch: whether it was
//! changed, and when that was last accounted for.

use crate::sync::Ordering::{Acquire, Release};
use crate::sync::{AtomicBool, AtomicU32};

/// Two words of a frame. The holder of the frame's exclusive latch sets them, and sets the epoch
/// before a change of that epoch makes the page dirty. Any thread may read them.
#[derive(Debug)]
pub(crate) struct Age {
    epoch: AtomicU32,
    dirty: AtomicBool,
}

impl Age {
    pub(crate) fn new() -> Self {
        Self { epoch: AtomicU32::new(0), dirty: AtomicBool::new(false) }
    }

    #[inline(always)]
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Acquire)
    }

    #[inline(always)]
    pub(crate) fn set_dirty(&self, dirty: bool) {
        // Release: a reader that sees it sees the epoch and the page id that were set before it.
        self.dirty.store(dirty, Release);
    }

    #[inline(always)]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Acquire)
    }

    #[inline(always)]
    pub(crate) fn set_epoch(&self, epoch: u32) {
        // Release: a reader that sees the number sees the page id that was set before it.
        self.epoch.store(epoch, Release);
    }

    /// Whether the page was dirty when `epoch` began and has not been changed since. A page that
    /// first becomes dirty during `epoch` does not count.
    #[inline(always)]
    pub(crate) fn is_dirty_before(&self, epoch: u32) -> bool {
        // The order matters: a page that became dirty in `epoch` has that epoch by the time it is
        // seen to be dirty.
        self.is_dirty() && self.epoch() != epoch
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{AtomicU64, Ordering};
    use loom::sync::Arc;
    use loom::thread;

    /// A page that is clean when an epoch begins is never taken for one that was dirty then,
    /// whenever it is changed.
    #[test]
    fn a_page_that_gets_dirty_was_clean_before() {
        loom::model(|| {
            let age = Arc::new(Age::new());
            let change = {
                let age = age.clone();
                thread::spawn(move || {
                    age.set_epoch(1);
                    age.set_dirty(true);
                })
            };
            assert!(!age.is_dirty_before(1));
            change.join().unwrap();
        });
    }

    /// A dirty page is saved to another place, and is clean once it is written there: a reader that
    /// finds it clean sees that place.
    #[test]
    fn a_page_that_gets_clean_is_where_it_was_saved() {
        loom::model(|| {
            let page = Arc::new((Age::new(), AtomicU64::new(7)));
            page.0.set_dirty(true);
            let save = {
                let page = page.clone();
                thread::spawn(move || {
                    page.1.store(8, Ordering::Relaxed);
                    page.0.set_epoch(1);
                    page.0.set_dirty(false);
                })
            };
            if !page.0.is_dirty_before(1) {
                assert_eq!(page.1.load(Ordering::Relaxed), 8);
            }
            save.join().unwrap();
        });
    }
}
