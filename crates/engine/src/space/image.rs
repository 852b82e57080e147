//! The images of checkpoints: the pages that must stay as they are, and from when on.

use std::sync::atomic::Ordering;

use super::inner::Inner;
use super::{Bitmap, Purpose, Space};
use qpair_format::bitmap::{EMPTY, PART_WORDS};

/// The number of changed parts of the bitmaps that are counted while the allocator is locked.
const PARTS_AT_ONCE: usize = 4;

impl Space {
    /// Moves a page from one place to another. `of_image` says whether the content written there
    /// belongs to the checkpoint under way.
    pub(crate) fn moved(&self, from: u64, to: u64, of_image: impl FnOnce() -> bool) {
        let mut inner = self.inner.lock();
        // Asked under the lock: the image begins under it.
        if let Some(image) = &mut inner.image
            && of_image()
        {
            image.change(from, 1, false);
            image.change(to, 1, true);
            inner.gain += u64::from(inner.held.is_empty() && inner.durable.get(from));
        }
        inner.give(from, 1);
    }

    /// Begins a checkpoint's image: the pages that are in use now and belong to the trees. `begin`
    /// runs at that very moment.
    pub(crate) fn begin_image(&self, begin: impl FnOnce()) {
        let mut inner = self.inner.lock();
        inner.image = Some(inner.linked.clone());
        // If backups may hold pages for longer, none are counted; pages that leave memory then have
        // fewer places.
        inner.gain = match inner.held.is_empty() {
            true => inner.taken - inner.used,
            false => 0,
        };
        self.unsaved.store(self.frames(), Ordering::Relaxed);
        self.starved.store(false, Ordering::Relaxed);
        begin();
    }

    /// Begins the image of the last durable checkpoint again, without these runs, which were its
    /// own.
    pub(crate) fn begin_same_image(&self, own: impl Iterator<Item = (u64, u64)>) {
        let mut inner = self.inner.lock();
        let mut image = inner.durable.clone();
        own.for_each(|(start, count)| image.change(start, count, false));
        inner.image = Some(image);
    }

    /// Whether a checkpoint is between its instant and its end.
    pub(crate) fn has_image(&self) -> bool {
        self.inner.lock().image.is_some()
    }

    /// Adds the checkpoint's own pages to its image, and returns the image.
    pub(crate) fn end_image(&self, own: [(u64, u64); 2]) -> Bitmap {
        let mut inner = self.inner.lock();
        let pages = own.into_iter().flat_map(|(start, count)| start..start + count);
        inner.taken += pages.filter(|page_id| !inner.is_taken(*page_id)).count() as u64;
        let mut image = inner.image.take().unwrap_or_else(|| inner.durable.clone());
        own.into_iter().for_each(|(start, count)| image.change(start, count, true));
        inner.image = Some(image.clone());
        image
    }

    /// Replaces one image by another, a part of the bitmaps after the other, and counts the pages
    /// that become free. The allocator is locked for a few parts at a time, and not for all parts
    /// of the store. `pair` returns the image to be changed, and the image it becomes.
    fn replace(&self, pair: impl Fn(&mut Inner) -> Option<(&mut Bitmap, &Bitmap)>) {
        let parts = self.capacity().div_ceil(64 * PART_WORDS as u64) as usize;
        let mut part = 0;
        while part < parts {
            let (mut inner, mut changed) = (self.inner.lock(), 0);
            while part < parts && changed < PARTS_AT_ONCE {
                if pair(&mut inner).is_some_and(|(to, from)| !to.shares_part(from, part)) {
                    let before = inner.count_part(part);
                    if let Some((to, from)) = pair(&mut inner) {
                        to.share_part(from, part);
                    }
                    inner.taken -= before - inner.count_part(part);
                    changed += 1;
                }
                part += 1;
            }
        }
    }

    /// Frees the pages that only the previous checkpoint needed, because the checkpoint under way
    /// is durable.
    pub(crate) fn image_is_durable(&self) {
        self.replace(|inner| Some((&mut inner.durable, inner.image.as_ref()?)));
        let mut inner = self.inner.lock();
        inner.image = None;
        inner.kept = if inner.held.is_empty() { 0 } else { inner.taken - inner.used };
        drop(inner);
        self.squeezed.store(false, Ordering::Relaxed);
    }

    pub(crate) fn drop_image(&self) {
        self.replace(|inner| Some((inner.image.as_mut()?, &inner.durable)));
        self.inner.lock().image = None;
        self.keep_nothing_for_unsaved();
    }

    /// Keeps the pages of the last durable checkpoint from being used again until
    /// [`Space::release`].
    pub(crate) fn hold(&self) -> (u64, Bitmap) {
        let mut inner = self.inner.lock();
        let hold = inner.next_hold;
        inner.next_hold += 1;
        let image = inner.durable.clone();
        inner.held.push((hold, image.clone()));
        inner.gain = 0;
        (hold, image)
    }

    /// Ends what [`Space::hold`] began.
    pub(crate) fn release(&self, hold: u64) {
        self.replace(|inner| {
            let held = inner.held.iter_mut().find(|(of, _)| *of == hold);
            held.map(|(_, held)| (held, &EMPTY))
        });
        let mut inner = self.inner.lock();
        inner.held.retain(|(of, _)| *of != hold);
        let unused = if inner.held.is_empty() { 0 } else { inner.taken - inner.used };
        inner.kept = inner.kept.min(unused);
    }

    /// Counts no page as coming free with the checkpoint under way, since a reader may keep the
    /// image before it.
    pub(crate) fn count_no_gain(&self) {
        self.inner.lock().gain = 0;
    }

    /// Whether the pages that are kept beside those in use have at most `bytes_max` bytes, and
    /// enough pages are free for changes. Makes the device larger if that helps.
    pub(crate) fn has_room_beside_readers(&self, bytes_max: u64) -> bool {
        let mut inner = self.inner.lock();
        if (inner.taken - inner.used) * self.page_size > bytes_max {
            return false;
        }
        let needed = self.reserve_of(&inner, 0, Purpose::New);
        inner.free(self.capacity()) >= needed
            || self.grow(&mut inner, needed, Purpose::New).is_ok()
                && inner.free(self.capacity()) >= needed
    }
}
