//! A writer's side: the checkpoints that it grants, and those whose pages it keeps only for
//! readers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use qpair_memory::locks::Mutex;

use super::Marks;
use crate::space::Space;

/// A checkpoint that is no longer the last one.
#[derive(Debug)]
struct Kept {
    sequence: u64,
    /// The hold on its pages.
    hold: u64,
}

/// The checkpoints that readers may use. Only one checkpoint at a time calls
/// [`KeptImages::follow`].
#[derive(Debug, Default)]
pub(crate) struct KeptImages {
    marks: Option<Marks>,
    /// The number of bytes that may be kept for readers alone.
    bytes_max: u64,
    /// From the oldest on.
    kept: Mutex<Vec<Kept>>,
    /// Whether the store is being closed, so that nothing is kept any more.
    ended: AtomicBool,
    given_up: AtomicU64,
}

impl KeptImages {
    pub(crate) fn new(marks: Option<Marks>, bytes_max: u64) -> Self {
        let mut images = Self::default();
        (images.marks, images.bytes_max) = (marks, bytes_max);
        images
    }

    /// Grants the last checkpoint of a store that was just opened, before anything is changed.
    pub(crate) fn begin(&self, sequence: u64) {
        if let Some(marks) = &self.marks {
            marks.take_all_away();
            marks.grant(sequence);
        }
    }

    /// Grants a checkpoint and does nothing for those before it: half of [`KeptImages::follow`].
    pub(crate) fn grant(&self, sequence: u64) {
        if let Some(marks) = &self.marks {
            marks.grant(sequence);
        }
    }

    /// Whether the pages of the last checkpoint may not become free with the next one.
    pub(crate) fn may_keep(&self, last: u64) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.is_announced(last))
    }

    /// Grants the checkpoint `next`, whose record is on the device, and keeps the pages of those
    /// before it that readers use. Call it before the pages of `last` are free.
    pub(crate) fn follow(&self, space: &Space, last: u64, next: u64) {
        let Some(marks) = &self.marks else { return };
        marks.grant(next);
        let mut kept = self.kept.lock();
        kept.retain(|image| {
            let is_used = is_used(marks, image.sequence);
            if !is_used {
                space.release(image.hold);
            }
            is_used
        });
        if self.ended.load(Ordering::Relaxed) {
            marks.take_away(last);
        } else if last != 0 && is_used(marks, last) {
            kept.push(Kept { sequence: last, hold: space.hold().0 });
        }
    }

    /// Gives up what is kept beyond the limit, or too much for the space that is free. Call it when
    /// the checkpoint is durable.
    pub(crate) fn fit(&self, space: &Space) {
        loop {
            let mut kept = self.kept.lock();
            if kept.is_empty() || space.has_room_beside_readers(self.bytes_max) {
                return;
            }
            let oldest = kept.remove(0);
            self.give_one_up(space, &oldest);
        }
    }

    /// Gives up everything that is kept for readers. Returns whether that was anything.
    pub(crate) fn give_up(&self, space: &Space) -> bool {
        let kept = std::mem::take(&mut *self.kept.lock());
        kept.iter().for_each(|image| self.give_one_up(space, image));
        !kept.is_empty()
    }

    /// Gives up everything, and keeps nothing from now on.
    pub(crate) fn end(&self, space: &Space) {
        self.ended.store(true, Ordering::Relaxed);
        self.give_up(space);
    }

    fn give_one_up(&self, space: &Space, image: &Kept) {
        // Its readers must learn of it before a page is used again.
        if let Some(marks) = &self.marks {
            marks.take_away(image.sequence);
        }
        self.given_up.fetch_add(1, Ordering::Relaxed);
        space.release(image.hold);
    }

    /// Returns the number of checkpoints that are kept for readers now, and of those given up.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.kept.lock().len() as u64, self.given_up.load(Ordering::Relaxed))
    }
}

impl Drop for KeptImages {
    fn drop(&mut self) {
        if let Some(marks) = &self.marks {
            marks.take_all_away();
        }
    }
}

/// Whether readers use a checkpoint; otherwise its grant is taken away.
fn is_used(marks: &Marks, sequence: u64) -> bool {
    if marks.is_announced(sequence) {
        return true;
    }
    marks.take_away(sequence);
    // A reader may have announced itself in between, and have seen the grant.
    let is_used = marks.is_announced(sequence);
    if is_used {
        marks.grant(sequence);
    }
    is_used
}
