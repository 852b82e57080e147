//! The state that all workers of a store share, in parts: each part has one owner, and no part
//! knows another. Code that joins two parts is a method of [`Shared`], in a file of its own.

mod checkpointing;
mod coding;
mod expiry;
mod flushes;
mod forest;
mod large;
mod lifecycle;
mod merging;
mod segments;
mod wal;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use qpair_block::BlockDevice;
use qpair_format::page::whole_key_len_max;
use qpair_format::place::page_of;
use qpair_format::{Error, ErrorKind, Result};

use crate::canary::Planted;
use crate::metrics::Counters;
use crate::oracle::TimestampOracle;
use crate::pool::{Around, Checkpoints, Pool, StallTimeout};
use crate::readers::{KeptImages, Witness};
use crate::space::Space;
use crate::sync::WorkerHandle;

use checkpointing::Checkpointing;
use coding::Compressed;
pub(crate) use expiry::Definition;
use expiry::Expiry;
pub use expiry::WallClock;
use flushes::Flushes;
use forest::Forest;
use large::LargeValues;
use lifecycle::Lifecycle;
pub use lifecycle::Recovered;
pub(crate) use wal::LogOptions;
use wal::Wal;

pub(crate) struct Shared {
    /// The device behind the pages: page `n` is at `n * page_size`.
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) page_size: usize,
    /// The number of bytes of a page that hold content: the page size, less the tag of an encrypted
    /// store.
    pub(crate) page_bytes: usize,
    /// The longest key that is whole in these pages.
    pub(crate) whole_key_len_max: usize,
    pub(crate) pool: Pool,
    pub(crate) space: Space,
    pub(crate) oracle: TimestampOracle,
    pub(crate) wal: Wal,
    pub(crate) forest: Forest,
    pub(crate) checkpointing: Checkpointing,
    pub(crate) large: LargeValues,
    pub(crate) compressed: Compressed,
    pub(crate) expiry: Expiry,
    pub(crate) flushes: Flushes,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) worker_handles: Vec<Arc<WorkerHandle>>,
    pub(crate) counters: Counters,
    pub(crate) planted: Planted,
    /// The checkpoints that readers in other processes may use.
    pub(crate) kept_images: KeptImages,
    /// In a store that is read beside another process: whether its checkpoint is still there.
    pub(crate) witness: Option<Box<Witness>>,
}

impl Shared {
    pub(crate) fn new(
        pool: Pool,
        space: Space,
        device: Arc<dyn BlockDevice>,
        page_size: usize,
        worker_handles: Vec<Arc<WorkerHandle>>,
        log: LogOptions,
    ) -> Self {
        let workers = worker_handles.len();
        Self {
            device,
            page_size,
            page_bytes: space.page_bytes,
            whole_key_len_max: whole_key_len_max(space.page_bytes),
            pool,
            oracle: TimestampOracle::new(0),
            wal: Wal::new(log, workers),
            forest: Forest::default(),
            checkpointing: Checkpointing::new(space.barrier()),
            large: LargeValues::default(),
            compressed: Compressed::default(),
            expiry: Expiry::default(),
            flushes: Flushes::default(),
            lifecycle: Lifecycle::default(),
            worker_handles,
            counters: Counters::new(workers),
            planted: Planted::default(),
            kept_images: KeptImages::default(),
            witness: None,
            space,
        }
    }

    /// Returns the allocator of new places, and the checkpoints that places are chosen for.
    pub(crate) fn places(&self) -> (&Space, &Checkpoints) {
        (&self.space, &self.checkpointing.epochs)
    }

    pub(crate) fn around(&self) -> Around<'_> {
        Around {
            space: &self.space,
            checkpoints: &self.checkpointing.epochs,
            roots: &self.forest.roots,
            failure: &self.lifecycle.failure,
        }
    }

    /// Returns the timestamp of the last commit that is completely in the trees.
    pub(crate) fn last_timestamp(&self) -> u64 {
        self.oracle.applied()
    }

    /// Returns a timestamp that no future commit is below.
    pub(crate) fn next_timestamp(&self) -> u64 {
        self.last_timestamp() + 1
    }

    /// Stores the cause of a failed write or flush. From now on the store is read-only. Tasks that
    /// wait for commits or pages get the error: sleeping workers look for it in their next turn.
    pub(crate) fn fail(&self, error: Error) {
        if self.lifecycle.failure.set(error).is_ok() {
            self.worker_handles.iter().for_each(|handle| handle.wake_up());
            self.wal.room.wake_all();
        }
    }

    /// Whether a commit that has its timestamp and met `error` tries again. It does if it found no
    /// frame and the device works. Its pages have reserved places; if those were not enough, more
    /// are available from here on. It does not try again where no frame will ever come.
    pub(crate) fn waits_on(&self, error: &Error, stall_timeout: &mut StallTimeout) -> bool {
        if error.kind() != ErrorKind::NoMemory || self.lifecycle.failure().is_some() {
            return false;
        }
        self.space.note_starved();
        let evictions = self.pool.evictions.load(Ordering::Relaxed);
        stall_timeout.waits_on(Instant::now(), evictions, self.space.has_image())
    }

    /// Closes the barrier and waits until no commit is inside.
    ///
    /// # Errors
    /// Returns the failure of the store, if the barrier was opened again because of one.
    pub(crate) async fn close_barrier(&self) -> Result<()> {
        match self.checkpointing.barrier.close().await {
            true => Ok(()),
            false => Err(self.lifecycle.failure().cloned().unwrap_or_else(Error::closed)),
        }
    }

    /// Lets no change begin from now on. Changes under way continue until they ask
    /// [`Lifecycle::is_closing`].
    pub(crate) fn begin_closing(&self) {
        self.lifecycle.set_closing();
        self.space.begin_closing();
    }

    pub(crate) fn offset_bytes(&self, place: u64) -> u64 {
        page_of(place) * self.page_size as u64
    }
}
