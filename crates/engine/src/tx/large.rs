//! Large values of transactions that are not committed: pages that were written, and that nothing refers to yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::overflow::{Descriptor, ReservedRun};
use crate::shared::Shared;

/// The runs of pages of all uncommitted large values, so that a close can free those of transactions that never end.
#[derive(Default)]
pub(crate) struct UncommittedLarge {
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    by_start: BTreeMap<u64, u64>,
    closed: bool,
}

impl UncommittedLarge {
    /// Frees all of them: the store is being closed.
    pub(super) fn free_all(&self, shared: &Shared) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.closed = true;
        for (start, pages) in std::mem::take(&mut runs.by_start) {
            shared.space.free(start, pages);
        }
    }
}

/// The pages of one large value; they are free again unless they are kept.
pub(crate) struct LargeValue {
    shared: Arc<Shared>,
    page_id: u64,
    pages: u64,
}

impl LargeValue {
    /// Takes over the pages of a value that was written.
    ///
    /// # Errors
    /// `Closed` if the store is being closed.
    pub(super) fn adopt(
        shared: &Arc<Shared>,
        descriptor: Descriptor,
        reserved: &ReservedRun,
    ) -> Result<Self> {
        let (page_id, pages) = (descriptor.page_id, u64::from(descriptor.pages));
        let mut runs = shared.tx.large.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.closed {
            return Err(Error::closed());
        }
        runs.by_start.insert(page_id, pages);
        drop(runs);
        reserved.keep_detached();
        Ok(Self { shared: shared.clone(), page_id, pages })
    }

    pub(super) fn page_id(&self) -> u64 {
        self.page_id
    }

    fn remove(&self) -> bool {
        let mut runs = self.shared.tx.large.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.by_start.remove(&self.page_id).is_some()
    }

    /// A leaf will refer to the pages.
    pub(super) fn keep(self) {
        self.shared.space.attach(self.page_id, self.pages);
        self.remove();
    }
}

impl Drop for LargeValue {
    fn drop(&mut self) {
        if self.remove() {
            self.shared.space.free(self.page_id, self.pages);
        }
    }
}
