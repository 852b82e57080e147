//! Large values of uncommitted transactions: pages that were written, and that nothing refers to
//! yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use qpair_format::large::Extents;
use qpair_format::{Error, Result};
use qpair_memory::locks::Mutex;

use crate::shared::Shared;
use crate::task::Reserved;
use crate::tx::Tx;

/// The pages of all uncommitted large values, so that a close can free those of transactions that
/// never end.
#[derive(Default)]
pub(crate) struct UncommittedLarge {
    values: Mutex<Values>,
}

#[derive(Default)]
struct Values {
    /// The values by the first page of their descriptors.
    by_start: BTreeMap<u64, Extents>,
    closed: bool,
}

impl UncommittedLarge {
    /// Frees the pages of all values, when the store is being closed.
    pub(in crate::tx) fn free_all(&self, shared: &Shared) {
        let mut values = self.values.lock();
        values.closed = true;
        std::mem::take(&mut values.by_start).values().for_each(|of| shared.free_extents(of));
    }
}

/// The pages of one uncommitted large value. Dropping it frees the pages, unless they are kept.
pub(crate) struct LargeValue {
    tx: Arc<Tx>,
    extents: Extents,
}

impl LargeValue {
    /// Adopts the pages of a value that was written.
    ///
    /// # Errors
    /// `Closed` if the store is being closed.
    pub(super) fn adopt(tx: &Arc<Tx>, reserved: &Reserved) -> Result<Self> {
        let extents = reserved.extents();
        let mut values = tx.large.values.lock();
        if values.closed {
            return Err(Error::closed());
        }
        values.by_start.insert(extents.first_page(), extents.clone());
        drop(values);
        reserved.keep_unlinked();
        Ok(Self { tx: tx.clone(), extents })
    }

    /// Returns the first page of the value's descriptor.
    pub(in crate::tx) fn page_id(&self) -> u64 {
        self.extents.first_page()
    }

    fn remove(&self) -> bool {
        let values = &self.tx.large.values;
        let mut values = values.lock();
        values.by_start.remove(&self.page_id()).is_some()
    }

    /// Keeps the pages, since a leaf will refer to them.
    pub(in crate::tx) fn keep(self) {
        self.tx.shared.link_extents(&self.extents);
        self.remove();
    }
}

impl Drop for LargeValue {
    fn drop(&mut self) {
        if self.remove() {
            self.tx.shared.free_extents(&self.extents);
        }
    }
}
