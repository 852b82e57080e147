//! Disks: block devices with a name, a serial number, and counters of what guests did with them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_block::{BlockDevice, IoError, Op};

/// A block device with a name, and counters of what guests did with it.
pub struct Disk {
    /// The name of the disk, for people.
    pub name: String,
    /// The serial number that guests see; at most its first 20 bytes count.
    pub serial: String,
    /// The block device that holds the data.
    pub device: Arc<dyn BlockDevice>,
    /// Counters of the requests so far.
    pub counters: DiskCounters,
}

impl Disk {
    /// Makes a disk of a device. The name is also the serial number.
    #[must_use]
    pub fn new(name: &str, device: Arc<dyn BlockDevice>) -> Arc<Self> {
        let counters = DiskCounters::default();
        Arc::new(Self { name: name.to_owned(), serial: name.to_owned(), device, counters })
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk {} on {}", self.name, self.device.info().name)
    }
}

/// Counters of what guests have done with a disk.
#[derive(Debug, Default)]
pub struct DiskCounters {
    /// Requests taken from rings.
    pub requests: AtomicU64,
    /// Reads that succeeded.
    pub reads: AtomicU64,
    /// Bytes read.
    pub read_bytes: AtomicU64,
    /// Writes that succeeded.
    pub writes: AtomicU64,
    /// Bytes written.
    pub written_bytes: AtomicU64,
    /// Flushes that succeeded.
    pub flushes: AtomicU64,
    /// Discards and write-zeroes that succeeded.
    pub discards: AtomicU64,
    /// Requests that the device answered with an error.
    pub errors: AtomicU64,
    /// Failed requests that timed out or that a reset cancelled; `errors` counts them too.
    pub timeouts: AtomicU64,
    /// Requests whose data was copied, because their segments do not meet the device's alignment,
    /// or because the device does not reach their memory.
    pub bounced: AtomicU64,
    /// Notifications to guests that requests have completed.
    pub calls: AtomicU64,
    /// Kicks by guests that woke a worker.
    pub kicks: AtomicU64,
}

impl DiskCounters {
    #[inline]
    pub(crate) fn count(&self, op: Op, len_bytes: u32, result: Result<(), IoError>) {
        let add = |counter: &AtomicU64, by: u64| {
            counter.fetch_add(by, Ordering::Relaxed);
        };
        if let Err(error) = result {
            add(&self.errors, 1);
            let is_late = matches!(error, IoError::TIMED_OUT | IoError::CANCELED);
            add(&self.timeouts, is_late.into());
            return;
        }
        match op {
            Op::Read => {
                add(&self.reads, 1);
                add(&self.read_bytes, len_bytes.into());
            }
            Op::Write => {
                add(&self.writes, 1);
                add(&self.written_bytes, len_bytes.into());
            }
            Op::Flush => add(&self.flushes, 1),
            Op::Discard | Op::WriteZeroes => add(&self.discards, 1),
        }
    }
}
