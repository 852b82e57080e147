//! Locks on bytes of a simulated device.

use std::ops::Range;
use std::sync::Arc;

use qpair_block::locks::Mutex;
use qpair_block::{ByteLocks, Result};

#[derive(Debug, Default)]
struct Table {
    openings: u64,
    /// The opening, the bytes, and whether the lock is exclusive.
    locks: Vec<(u64, Range<u64>, bool)>,
}

/// The locks of one opening of a device.
#[derive(Debug, Default)]
pub(super) struct SimLocks {
    opening: u64,
    table: Arc<Mutex<Table>>,
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl SimLocks {
    pub(super) fn of_another(&self) -> Self {
        let mut table = self.table.lock();
        table.openings += 1;
        Self { opening: table.openings, table: self.table.clone() }
    }

    fn find(&self, bytes: &Range<u64>, exclusive: bool) -> Option<Range<u64>> {
        let table = self.table.lock();
        let others = table.locks.iter().filter(|(opening, ..)| *opening != self.opening);
        let mut hit = others.filter(|(_, locked, of)| (exclusive || *of) && overlap(locked, bytes));
        hit.next().map(|(_, locked, _)| locked.clone())
    }
}

impl ByteLocks for SimLocks {
    fn lock(&self, bytes: Range<u64>, exclusive: bool) -> Result<bool> {
        if self.find(&bytes, exclusive).is_some() {
            return Ok(false);
        }
        self.unlock(bytes.clone())?;
        self.table.lock().locks.push((self.opening, bytes, exclusive));
        Ok(true)
    }

    fn unlock(&self, bytes: Range<u64>) -> Result<()> {
        let mut table = self.table.lock();
        let own = self.opening;
        let mut rest = Vec::new();
        table.locks.retain(|(opening, locked, exclusive)| {
            if *opening != own || !overlap(locked, &bytes) {
                return true;
            }
            for left in [locked.start..bytes.start, bytes.end..locked.end] {
                if left.start < left.end {
                    rest.push((own, left, *exclusive));
                }
            }
            false
        });
        table.locks.extend(rest);
        Ok(())
    }

    fn locked_by_others(&self, bytes: Range<u64>) -> Result<Option<Range<u64>>> {
        Ok(self.find(&bytes, true))
    }
}

impl Drop for SimLocks {
    fn drop(&mut self) {
        self.table.lock().locks.retain(|(opening, ..)| *opening != self.opening);
    }
}
