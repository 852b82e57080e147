//! Disks: block devices with a name, a serial number, and counters of what guests did with them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_block::{BlockDevice, IoError, Op};
use qpair_memory::locks::Mutex;

/// A block device with a name, and counters of what guests did with it.
pub struct Disk {
    /// The name of the disk, for people.
    pub name: String,
    /// The serial number that guests see; at most its first 20 bytes count.
    pub serial: String,
    /// The block device that holds the data.
    pub device: Arc<dyn BlockDevice>,
    lanes: Mutex<Lanes>,
}

impl Disk {
    /// Makes a disk of a device. The name is also the serial number.
    #[must_use]
    pub fn new(name: &str, device: Arc<dyn BlockDevice>) -> Arc<Self> {
        let lanes = Mutex::default();
        Arc::new(Self { name: name.to_owned(), serial: name.to_owned(), device, lanes })
    }

    /// Returns the counters of the requests so far. A request is counted before its guest learns
    /// that it has ended.
    #[must_use]
    pub fn counters(&self) -> DiskCounters {
        let lanes = self.lanes.lock();
        let mut sum = lanes.ended;
        for lane in &lanes.live {
            sum.add(lane);
        }
        sum
    }

    /// Adds counters of a queue, which belong to the queue's thread.
    pub(crate) fn attach(&self) -> Arc<LaneCounters> {
        let counters = Arc::default();
        self.lanes.lock().live.push(Arc::clone(&counters));
        counters
    }

    /// Keeps the counts of a queue that ends.
    pub(crate) fn detach(&self, counters: &Arc<LaneCounters>) {
        let mut lanes = self.lanes.lock();
        lanes.live.retain(|lane| !Arc::ptr_eq(lane, counters));
        lanes.ended.add(counters);
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk {} on {}", self.name, self.device.info().name)
    }
}

/// Counters of the queues that are open, and the sum of those that were.
#[derive(Default)]
struct Lanes {
    live: Vec<Arc<LaneCounters>>,
    ended: DiskCounters,
}

/// Counters of what guests have done with a disk.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))] // Queues' counters share no cache line.
pub struct DiskCounters<T = u64> {
    /// Requests taken from rings.
    pub requests: T,
    /// Reads that succeeded.
    pub reads: T,
    /// Bytes read.
    pub read_bytes: T,
    /// Writes that succeeded.
    pub writes: T,
    /// Bytes written.
    pub written_bytes: T,
    /// Flushes that succeeded.
    pub flushes: T,
    /// Discards and write-zeroes that succeeded.
    pub discards: T,
    /// Requests that the device answered with an error.
    pub errors: T,
    /// Failed requests that timed out or that a reset cancelled; `errors` counts them too.
    pub timeouts: T,
    /// Requests whose data was copied, because their segments do not meet the device's alignment,
    /// or because the device does not reach their memory.
    pub bounced: T,
    /// System calls by the channels to the device, with those that signal completions to the
    /// worker. Calls of a transport below a driver, such as a socket, do not count.
    pub system_calls: T,
    /// Notifications to guests that requests have completed.
    pub calls: T,
    /// Kicks by guests that woke a worker.
    pub kicks: T,
}

/// Counters of one queue. Only the queue's thread changes them, so no change needs a locked
/// instruction, and no two threads write to one cache line.
pub(crate) type LaneCounters = DiskCounters<AtomicU64>;

impl DiskCounters {
    fn add(&mut self, lane: &LaneCounters) {
        for (sum, counter) in [
            (&mut self.requests, &lane.requests),
            (&mut self.reads, &lane.reads),
            (&mut self.read_bytes, &lane.read_bytes),
            (&mut self.writes, &lane.writes),
            (&mut self.written_bytes, &lane.written_bytes),
            (&mut self.flushes, &lane.flushes),
            (&mut self.discards, &lane.discards),
            (&mut self.errors, &lane.errors),
            (&mut self.timeouts, &lane.timeouts),
            (&mut self.bounced, &lane.bounced),
            (&mut self.system_calls, &lane.system_calls),
            (&mut self.calls, &lane.calls),
            (&mut self.kicks, &lane.kicks),
        ] {
            *sum += counter.load(Ordering::Relaxed);
        }
    }
}

impl DiskCounters<AtomicU64> {
    /// Counts a request that has ended.
    #[inline]
    pub(crate) fn end(&self, op: Op, len_bytes: u32, result: Result<(), IoError>) {
        if let Err(error) = result {
            add(&self.errors, 1);
            let is_late = matches!(error, IoError::TIMED_OUT | IoError::CANCELED);
            return add(&self.timeouts, is_late.into());
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

/// Adds to a counter that no other thread changes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}
