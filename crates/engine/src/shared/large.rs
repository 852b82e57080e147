//! Unlinks and frees the pages of large values whose records were replaced or deleted.

use qpair_memory::locks::Mutex;

use qpair_format::large::{Descriptor, Extents};

use super::Shared;
use crate::large::KnownLists;

#[derive(Default)]
pub(crate) struct LargeValues {
    /// The page lists of large values that have several runs of pages.
    pub(crate) lists: KnownLists,
    /// Descriptors of replaced values that no reader needs any more. They are held until a
    /// checkpoint if the log is not flushed.
    held: Mutex<Vec<Box<[u8]>>>,
}

impl LargeValues {
    /// Returns the number of replaced large values that are held until a checkpoint is durable.
    pub(crate) fn count_held(&self) -> usize {
        self.held.lock().len()
    }
}

impl Shared {
    /// Returns the pages of the value that an encoded descriptor leads to, if they are known. An
    /// invalid descriptor has no pages; `check` finds pages that are lost.
    fn known_extents(&self, encoded: &[u8]) -> Option<(Descriptor, Extents)> {
        let descriptor = Descriptor::decode(encoded, self.page_bytes).ok()?;
        let extents = match descriptor.run() {
            Some(run) => (run.end <= self.space.capacity()).then_some(Extents::Run(run)),
            None => self.large.lists.get(descriptor),
        };
        extents.map(|extents| (descriptor, extents))
    }

    /// Returns the number of pages of a large value if some of them lie at or behind `front`;
    /// `None` if none does, as far as is known.
    pub(crate) fn pages_of_large_behind(&self, encoded: &[u8], front: u64) -> Option<u64> {
        let (_, extents) = self.known_extents(encoded)?;
        let pages = extents.runs().map(|run| run.end - run.start).sum();
        extents.runs().any(|run| run.end > front).then_some(pages)
    }

    /// Unlinks the pages of a large value from the trees. Snapshots may still read them.
    pub(crate) fn unlink_large(&self, encoded: &[u8]) {
        let found = self.known_extents(encoded);
        let runs = found.iter().flat_map(|(_, extents)| extents.runs());
        runs.for_each(|run| self.space.unlink(run.start, run.end - run.start));
    }

    /// Gives back the pages of a large value of a dropped table. If no worker flushes the log, a
    /// power cut may undo the drop until a checkpoint has it, and the values must be whole then.
    pub(crate) fn give_large_up(&self, descriptor: &[u8]) {
        if self.wal.options.is_unflushed() && !self.space.is_urgent() {
            self.unlink_large(descriptor);
            self.large.held.lock().push(descriptor.into());
        } else {
            self.free_large(descriptor);
        }
    }

    /// Frees the pages of large values that no reader needs any more, once their replacement counts
    /// as durable.
    pub(crate) fn free_large_once_durable(&self, large: Vec<Box<[u8]>>) {
        if self.wal.options.is_unflushed() {
            // What counts as durable there is only written.
            self.large.held.lock().extend(large);
        } else {
            large.iter().for_each(|descriptor| self.free_large(descriptor));
        }
    }

    /// Frees the pages of the first `count` held values. Call it when a checkpoint is durable that
    /// began when `count` values were held.
    pub(crate) fn free_large_held(&self, count: usize) {
        let held: Vec<_> = self.large.held.lock().drain(..count).collect();
        held.iter().for_each(|descriptor| self.free_large(descriptor));
    }

    /// Frees the pages of a large value that no reader can reach any more.
    pub(crate) fn free_large(&self, encoded: &[u8]) {
        let Some((descriptor, extents)) = self.known_extents(encoded) else { return };
        // Forget the list before its pages can belong to another value.
        if descriptor.listed {
            self.large.lists.forget(descriptor);
        }
        self.free_extents(&extents);
    }

    pub(crate) fn free_extents(&self, extents: &Extents) {
        extents.runs().for_each(|run| self.space.free(run.start, run.end - run.start));
    }

    pub(crate) fn link_extents(&self, extents: &Extents) {
        extents.runs().for_each(|run| self.space.link(run.start, run.end - run.start));
    }
}
