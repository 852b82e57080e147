//! The unit of a target: a disk as a SCSI logical unit.

use qpair_memory::locks::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

use qpair_scsi_unit::{Facts, Limits, LogicalUnit};
use qpair_scsi_wire::command::opcode;
use qpair_scsi_wire::sense::Code;

use crate::bdevs::hash;
use crate::disk::Disk;

const PRODUCT: &str = "DISK";
/// Commands that a unit may lack: the first if its device does not discard, the last two if it does
/// not write zeroes. All units lack those in between.
const WITHOUT: [u8; 7] = [
    opcode::UNMAP,
    opcode::VERIFY_10,
    opcode::VERIFY_12,
    opcode::VERIFY_16,
    opcode::LOG_SENSE,
    opcode::WRITE_SAME_10,
    opcode::WRITE_SAME_16,
];
/// Names that are assigned locally (NAA 3).
const NAA_LOCAL: u64 = 3 << 60;

#[derive(Debug)]
pub(super) struct Unit {
    pub(super) disk: Arc<Disk>,
    pub(super) logical: LogicalUnit,
    /// The size that the guest was last told.
    size_bytes: AtomicU64,
    /// The number of queues that have a lane to the unit.
    users: Mutex<u32>,
    left: Condvar,
}

impl Unit {
    pub(super) fn new(disk: &Arc<Disk>) -> Self {
        let info = disk.device.info();
        let facts = Facts {
            product: PRODUCT,
            serial: disk.serial.clone(),
            naa: NAA_LOCAL | hash(&disk.serial, 0) >> 4,
            port: None,
            block_bytes: info.logical_block_bytes,
            physical_exponent: 0,
            rotation: 1,
            has_cache: info.volatile_write_cache,
            read_only: info.read_only,
            // The content of discarded blocks is undefined.
            reads_zeroes: false,
            limits: Limits {
                transfer_bytes_max: 4 << 20,
                unmap_bytes_max: if info.discards { 1 << 31 } else { 0 },
                unmap_ranges_max: if info.discards { 256 } else { 0 },
                write_same_bytes_max: if info.writes_zeroes { 1 << 31 } else { 0 },
            },
            now: std::time::Instant::now,
            without: &WITHOUT[usize::from(info.discards)..if info.writes_zeroes { 5 } else { 7 }],
        };
        Self {
            size_bytes: AtomicU64::new(disk.device.size_bytes()),
            disk: disk.clone(),
            logical: LogicalUnit::new(facts),
            users: Mutex::default(),
            left: Condvar::new(),
        }
    }

    /// Returns the current number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.disk.device.size_bytes() / u64::from(self.logical.facts().block_bytes)
    }

    /// Whether the size has changed since the last call. If so, the guest is told with its next
    /// command.
    pub(super) fn has_resized(&self) -> bool {
        let size_bytes = self.disk.device.size_bytes();
        let has_resized = self.size_bytes.swap(size_bytes, Ordering::Relaxed) != size_bytes;
        if has_resized {
            self.logical.attend(Code::CAPACITY_CHANGED);
        }
        has_resized
    }

    /// Waits until no queue has a lane to the unit. Returns false if the time runs out.
    pub(super) fn wait_alone(&self, at_most: Duration) -> bool {
        let users = self.users.lock();
        let waited = self.left.wait_timeout_while(users, at_most, |users| *users > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }
}

/// A queue's hold on a unit.
pub(super) struct Hold(Arc<Unit>);

impl Hold {
    pub(super) fn new(unit: Arc<Unit>) -> Self {
        *unit.users.lock() += 1;
        Self(unit)
    }

    pub(super) fn unit(&self) -> &Arc<Unit> {
        &self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        *self.0.users.lock() -= 1;
        self.0.left.notify_all();
    }
}
