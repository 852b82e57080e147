//! What is given to a guest.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_block::{BlockDevice, IoError, Op};

/// A device with a name, and what was done with it.
pub struct Disk {
    /// Its name, for people.
    pub name: String,
    /// Its serial number, which the guest sees: 20 bytes at most count.
    pub serial: String,
    /// What has the data.
    pub device: Arc<dyn BlockDevice>,
    /// What was done so far.
    pub counters: DiskCounters,
}

impl Disk {
    /// Of a device. Its name is its serial number.
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

/// What guests have done with a disk.
#[derive(Debug, Default)]
pub struct DiskCounters {
    /// Requests taken from rings.
    pub requests: AtomicU64,
    /// Reads that succeeded, and their bytes.
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
    /// Of these, those that the device's driver had no answer to in time, or that a reset took
    /// back.
    pub timeouts: AtomicU64,
    /// Requests that were copied, since their segments did not lie as the device wants them, or the
    /// device does not reach their memory.
    pub bounced: AtomicU64,
    /// Signals to guests.
    pub calls: AtomicU64,
    /// Kicks by guests that a worker woke up for.
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
