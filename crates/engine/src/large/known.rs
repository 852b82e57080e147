//! The page lists of large values whose records are being replaced or deleted.
//!
//! Invariant: an operation that takes a descriptor out of a leaf knows the value's runs by then,
//! because they become free, or leave the checkpoint, under the leaf's latch. A list is read before
//! the latch is taken again ([`KnownLists::want`]), and stays known until its pages are free.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use qpair_format::large::{Descriptor, Extents};
use qpair_format::{Error, ErrorKind, Result};
use qpair_memory::locks::Mutex;

#[derive(Debug)]
enum State {
    /// A task is reading the list; the wakers wait for it.
    Loading(Vec<Waker>),
    /// The list is known. A damaged list names no pages: `check` finds the pages that are lost.
    Known(Extents),
    Failed(Error),
}

pub(crate) enum Want {
    Known,
    /// The caller must read the list and report it by [`KnownLists::note`].
    Load,
    /// Another task reads the list; the waker is called at its end.
    Wait,
    Failed(Error),
}

#[derive(Debug, Default)]
pub(crate) struct KnownLists {
    /// Whether the store may have values in several runs, as its superblock says.
    may_be: AtomicBool,
    /// The lists by their descriptors' first pages and timestamps.
    lists: Mutex<BTreeMap<(u64, u64), State>>,
}

impl KnownLists {
    pub(crate) fn expect(&self) {
        self.may_be.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn may_be(&self) -> bool {
        self.may_be.load(Ordering::Relaxed)
    }

    /// Asks for a list. Calls the waker later if another task reads the list now.
    pub(crate) fn want(&self, descriptor: Descriptor, waker: &Waker) -> Want {
        let mut lists = self.lists.lock();
        match lists.get_mut(&descriptor.key()) {
            Some(State::Known(_)) => return Want::Known,
            Some(State::Loading(wakers)) => {
                if !wakers.iter().any(|other| other.will_wake(waker)) {
                    wakers.push(waker.clone());
                }
                return Want::Wait;
            }
            Some(State::Failed(_)) | None => {}
        }
        // The next call tries again.
        if let Some(State::Failed(error)) = lists.remove(&descriptor.key()) {
            return Want::Failed(error);
        }
        lists.insert(descriptor.key(), State::Loading(vec![waker.clone()]));
        Want::Load
    }

    pub(crate) fn note(&self, descriptor: Descriptor, read: Result<Option<Extents>>) {
        let state = match read {
            Ok(found) => State::Known(found.unwrap_or(Extents::Listed(Arc::default()))),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                State::Known(Extents::Listed(Arc::default()))
            }
            Err(error) => State::Failed(error),
        };
        let before = self.lists.lock().insert(descriptor.key(), state);
        if let Some(State::Loading(wakers)) = before {
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn get(&self, descriptor: Descriptor) -> Option<Extents> {
        match self.lists.lock().get(&descriptor.key()) {
            Some(State::Known(extents)) => Some(extents.clone()),
            _ => None,
        }
    }

    pub(crate) fn forget(&self, descriptor: Descriptor) {
        self.lists.lock().remove(&descriptor.key());
    }
}
