//! What all workers of a store share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use qpair_block::BlockDevice;

use crate::canary::Canary;
use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;
use crate::space::Space;
use crate::task::Remote;
use crate::tx::Tx;

/// The parts of an open store that every worker and every caller reach.
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) space: Space,
    pub(crate) tx: Tx,
    /// The device behind the pages: page `n` is at `n * page_size`.
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) page_size: usize,
    pub(crate) read_only: bool,
    pub(crate) remotes: Vec<Arc<Remote>>,
    /// A bug planted for the simulation to find.
    pub(crate) canary: Option<Canary>,
    /// The first write or flush that failed; final.
    failure: OnceLock<Error>,
    /// The members say that the store is being changed.
    marked_open: AtomicBool,
    /// No change may begin any more.
    closing: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        pool: Pool,
        space: Space,
        tx: Tx,
        device: Arc<dyn BlockDevice>,
        page_size: usize,
        read_only: bool,
        remotes: Vec<Arc<Remote>>,
    ) -> Self {
        Self {
            pool,
            space,
            tx,
            device,
            page_size,
            read_only,
            remotes,
            canary: None,
            failure: OnceLock::new(),
            marked_open: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        }
    }

    /// Whether this bug is planted.
    pub(crate) fn has_canary(&self, canary: Canary) -> bool {
        self.canary == Some(canary)
    }

    /// Keeps the cause of a failed write or flush: from now on the store is read-only.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
    }

    /// The cause that made the store read-only, if one did.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Whether the store may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if let Some(failure) = self.failure() {
            return Err(Error::with_hint(
                ErrorKind::ReadOnly,
                format!("the store is read-only since a write failed: {failure}"),
                "mend the device, then restore the store from its source: what was written since it was opened may be lost",
            ));
        }
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the store was opened for reading only"));
        }
        Ok(())
    }

    pub(crate) fn is_marked_open(&self) -> bool {
        // Acquire: pairs with `mark_open`, so that changes come after the labels were written.
        self.marked_open.load(Ordering::Acquire)
    }

    pub(crate) fn mark_open(&self) {
        self.marked_open.store(true, Ordering::Release);
    }

    /// Lets no change begin from now on. Those under way go on until they ask [`Shared::is_closing`].
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
        self.space.begin_closing();
    }

    #[inline(always)]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Where a page is on the device, bytes.
    pub(crate) fn offset_bytes(&self, page_id: u64) -> u64 {
        page_id * self.page_size as u64
    }
}
