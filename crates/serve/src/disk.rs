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

/// Counts of one queue, which its thread adds to the disk's counters now and then: the disk's lines
/// belong to all threads that serve it.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The number of counts since the last time that they were added.
    changes: u64,
    requests: u64,
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    flushes: u64,
    discards: u64,
    errors: u64,
    timeouts: u64,
}

impl Tally {
    /// Counts a request taken from a ring.
    #[inline]
    pub(crate) fn take(&mut self) {
        self.changes += 1;
        self.requests += 1;
    }

    /// Counts a request that has ended.
    #[inline]
    pub(crate) fn end(&mut self, op: Op, len_bytes: u32, result: Result<(), IoError>) {
        self.changes += 1;
        if let Err(error) = result {
            self.errors += 1;
            self.timeouts += u64::from(matches!(error, IoError::TIMED_OUT | IoError::CANCELED));
            return;
        }
        match op {
            Op::Read => {
                self.reads += 1;
                self.read_bytes += u64::from(len_bytes);
            }
            Op::Write => {
                self.writes += 1;
                self.written_bytes += u64::from(len_bytes);
            }
            Op::Flush => self.flushes += 1,
            Op::Discard | Op::WriteZeroes => self.discards += 1,
        }
    }

    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// Adds the counts to the disk's, and begins again.
    pub(crate) fn add_to(&mut self, counters: &DiskCounters) {
        let Self {
            changes: _,
            requests,
            reads,
            read_bytes,
            writes,
            written_bytes,
            flushes,
            discards,
            errors,
            timeouts,
        } = std::mem::take(self);
        for (counter, by) in [
            (&counters.requests, requests),
            (&counters.reads, reads),
            (&counters.read_bytes, read_bytes),
            (&counters.writes, writes),
            (&counters.written_bytes, written_bytes),
            (&counters.flushes, flushes),
            (&counters.discards, discards),
            (&counters.errors, errors),
            (&counters.timeouts, timeouts),
        ] {
            if by > 0 {
                counter.fetch_add(by, Ordering::Relaxed);
            }
        }
    }
}
