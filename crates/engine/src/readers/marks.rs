//! Announcements and grants of checkpoints: locks on bytes far behind the store's data.

use std::ops::Range;
use std::sync::Arc;

use qpair_block::ByteLocks;

/// The bit of an offset that is set in all marks, so that they lie behind any data.
const FAR: u64 = 1 << 62;
/// The bit of the offset of a grant.
const GRANT: u64 = 1 << 61;
/// The number of bits for the sequence of a checkpoint, below those for the store.
const SEQUENCE_BITS: u32 = 32;
const STORE_BITS: u32 = 29;

/// The marks of a store's checkpoints, as this opening of its first member sees and sets them. If
/// the system refuses a lock, the checkpoint counts as neither announced nor granted, which is safe
/// for both sides.
#[derive(Debug)]
pub(crate) struct Marks {
    locks: Arc<dyn ByteLocks>,
    store: u64,
}

impl Marks {
    pub(crate) fn new(locks: Arc<dyn ByteLocks>, store_id: [u8; 16]) -> Self {
        let mut half = [0; 8];
        half.copy_from_slice(&store_id[..8]);
        let store = u64::from_le_bytes(half) >> (64 - STORE_BITS) << SEQUENCE_BITS;
        Self { locks, store: FAR | store }
    }

    fn bytes(&self, kind: u64, sequence: u64) -> Range<u64> {
        let at = self.store | kind | (sequence & ((1 << SEQUENCE_BITS) - 1));
        at..at + 1
    }

    /// Returns the bytes of all checkpoints of the store.
    fn all(&self, kind: u64) -> Range<u64> {
        let start = self.bytes(kind, 0).start;
        start..start + (1 << SEQUENCE_BITS)
    }

    /// Whether another process has a mark among `bytes`. A lock that reaches beyond the marks is of
    /// another kind: on NFS, the lock of the whole store has all bytes.
    fn is_marked(&self, kind: u64, bytes: Range<u64>) -> bool {
        let all = self.all(kind);
        let found = self.locks.locked_by_others(bytes);
        matches!(found, Ok(Some(found)) if all.start <= found.start && found.end <= all.end)
    }

    /// Says that this reader uses a checkpoint.
    pub(super) fn announce(&self, sequence: u64) {
        let _ = self.locks.lock(self.bytes(0, sequence), false);
    }

    pub(super) fn withdraw(&self, sequence: u64) {
        let _ = self.locks.unlock(self.bytes(0, sequence));
    }

    /// Whether a reader in another process uses a checkpoint.
    pub(super) fn is_announced(&self, sequence: u64) -> bool {
        self.is_marked(0, self.bytes(0, sequence))
    }

    /// Says that this writer keeps the pages of a checkpoint.
    pub(super) fn grant(&self, sequence: u64) {
        let _ = self.locks.lock(self.bytes(GRANT, sequence), true);
    }

    /// Takes all grants away, also those of a store that had this opening of the device before.
    pub(super) fn take_all_away(&self) {
        let _ = self.locks.unlock(self.all(GRANT));
    }

    pub(super) fn take_away(&self, sequence: u64) {
        let _ = self.locks.unlock(self.bytes(GRANT, sequence));
    }

    /// Whether a writer that is alive keeps the pages of a checkpoint.
    pub(super) fn is_granted(&self, sequence: u64) -> bool {
        self.is_marked(GRANT, self.bytes(GRANT, sequence))
    }

    /// Whether a writer keeps the pages of a checkpoint after this one.
    pub(super) fn is_newer_granted(&self, sequence: u64) -> bool {
        self.is_marked(GRANT, self.bytes(GRANT, sequence).end..self.all(GRANT).end)
    }
}

#[cfg(test)]
mod tests {
    use qpair_block::BlockDevice;
    use qpair_block::time::SimClock;
    use qpair_sim_block::{SimDevice, SimOptions};

    use super::*;

    #[test]
    fn marks_are_of_one_store_and_seen_by_others() {
        let device = SimDevice::new(SimOptions::new(1, &SimClock::new())).unwrap();
        let marks = |device: &SimDevice, id| Marks::new(device.byte_locks().unwrap(), [id; 16]);
        let (other, tool) = (device.opened_again(), device.opened_again());
        let (writer, reader) = (marks(&device, 1), marks(&other, 1));
        writer.grant(7);
        writer.grant(8);
        assert!(reader.is_granted(7) && reader.is_newer_granted(7) && !reader.is_newer_granted(8));
        assert!(!writer.is_granted(7), "its own");
        // A store that was made in the same place has the same sequences.
        assert!(!marks(&other, 2).is_granted(7));
        reader.announce(7);
        assert!(writer.is_announced(7) && !writer.is_announced(8));
        writer.take_away(7);
        assert!(!reader.is_granted(7) && reader.is_granted(8));
        writer.take_all_away();
        reader.withdraw(7);
        assert!(!reader.is_granted(8) && !writer.is_announced(7));
        // A lock of the whole file is no mark.
        let tool = tool.byte_locks().unwrap();
        assert!(tool.lock(0..u64::MAX, true).unwrap());
        assert!(!reader.is_granted(7) && !reader.is_newer_granted(7) && !writer.is_announced(7));
    }
}
