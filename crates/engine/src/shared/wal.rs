//! The write-ahead logs of a store: their options, their lengths, and how far they are durable.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};

use qpair_format::log::LogGeometry;
use qpair_memory::locks::Mutex;

use crate::log::{Durability, Durable, ExpectedRecords, Feed, OldLogs};
use crate::log_device::LogDevice;
use crate::sync::{AsyncMutex, Waiters};

#[derive(Clone, Copy, Debug)]
pub(crate) struct LogOptions {
    pub(crate) enabled: bool,
    /// Whether a write of the log waits until it survives power loss.
    pub(crate) flushed: bool,
    /// The number of bytes of log after which a checkpoint begins.
    pub(crate) checkpoint_bytes: u64,
    pub(crate) geometry: LogGeometry,
    /// The durability of changes that are not part of a transaction.
    pub(crate) durability: Durability,
    /// Whether reads that are not part of a transaction wait until the data that they found is
    /// durable.
    pub(crate) reads_wait: bool,
}

impl LogOptions {
    /// Whether there is a log that no worker flushes. A power cut may then undo any commit since
    /// the last checkpoint.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.enabled && !self.flushed
    }
}

/// The log part of an open store. Each worker has its own log; this is the state that all logs
/// share.
pub(crate) struct Wal {
    pub(crate) options: LogOptions,
    pub(crate) device: Option<LogDevice>,
    pub(crate) old_logs: OldLogs,
    /// Whether the workers have their logs, and a checkpoint says where those begin.
    begun: AtomicBool,
    /// One lock for each worker, held by a commit between its timestamp and its record, so that no
    /// other commit comes between.
    pub(crate) timestamping: Vec<Arc<AsyncMutex>>,
    pub(crate) durable: Durable,
    /// The size of each segment of the logs in bytes, once it is settled.
    pub(super) segment_bytes: OnceLock<u32>,
    /// The bytes of the logs since the last checkpoint's instant, with headers and padding.
    /// `bytes_total` counts the bytes of all records.
    pub(crate) bytes: AtomicU64,
    pub(crate) bytes_total: AtomicU64,
    /// Tasks that wait for the logs to become short.
    pub(crate) room: Waiters,
    /// The commits whose records have room in the logs, and are not appended yet.
    pub(crate) expected: ExpectedRecords,
    /// The records that a backup ships.
    pub(crate) feed: Feed,
    /// Writes of the logs. Each made all gathered records durable.
    pub(crate) writes: AtomicU64,
    /// The byte offsets of segments in the store's space that hold nothing any more.
    recycled_segments: Mutex<Vec<u64>>,
    /// The number of times that such segments became free pages because changes found no room.
    pub(crate) recycled_given: AtomicU64,
}

impl Wal {
    pub(super) fn new(options: LogOptions, workers: usize) -> Self {
        Self {
            options,
            device: None,
            old_logs: OldLogs::default(),
            begun: AtomicBool::new(false),
            timestamping: (0..workers).map(|_| Arc::default()).collect(),
            durable: Durable::new(workers),
            segment_bytes: OnceLock::new(),
            bytes: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            room: Waiters::default(),
            expected: ExpectedRecords::default(),
            feed: Feed::new(workers),
            writes: AtomicU64::new(0),
            recycled_segments: Mutex::default(),
            recycled_given: AtomicU64::new(0),
        }
    }

    /// Whether the logs are an eighth longer than the length at which a checkpoint begins: a
    /// checkpoint is under way, and slower than they grow. Commits that have begun may use another
    /// eighth.
    pub(crate) fn are_logs_long(&self) -> bool {
        let most = self.options.checkpoint_bytes;
        self.bytes.load(Ordering::Relaxed).saturating_sub(most) > most / 8
    }

    pub(crate) fn geometry(&self) -> LogGeometry {
        let segment_bytes = self.segment_bytes.get().copied();
        let options = self.options.geometry;
        LogGeometry { segment_bytes: segment_bytes.unwrap_or(options.segment_bytes), ..options }
    }

    /// Whether a program may get data that was found at this timestamp. `waits` is set for callers
    /// that only want durable data.
    #[inline]
    pub(crate) fn may_give(&self, waits: bool, timestamp: u64) -> bool {
        !waits || !self.options.enabled || self.durable.has(timestamp)
    }

    pub(crate) fn recycled_segments(&self) -> MutexGuard<'_, Vec<u64>> {
        self.recycled_segments.lock()
    }

    #[inline(always)]
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn set_begun(&self) {
        self.begun.store(true, Ordering::Release);
    }
}
