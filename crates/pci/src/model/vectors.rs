//! The MSI-X vectors of a model.

use std::sync::Mutex;

use super::config::BAR4_BYTES;
use super::lock::locked;
use crate::irq_event::IrqEvent;

/// The vectors of a model: BAR 4, which has the MSI-X table, and the events of the vectors.
///
/// A driver reads back what it writes into the table. The code that was given the events sends the
/// signals.
pub struct VectorTable {
    table: Mutex<Box<[u8]>>,
    events: Box<[Mutex<Option<IrqEvent>>]>,
}

impl VectorTable {
    /// Makes a table of `vectors` vectors.
    #[must_use]
    pub fn new(vectors: u16) -> Self {
        Self {
            table: Mutex::new(vec![0; BAR4_BYTES as usize].into()),
            events: (0..vectors).map(|_| Mutex::default()).collect(),
        }
    }

    /// Returns the number of vectors.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.events.len() as u32
    }

    /// Reads BAR 4, in which the range lies.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let len = into.len();
        into.copy_from_slice(&locked(&self.table)[offset as usize..][..len]);
    }

    /// Writes BAR 4, in which the range lies.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        locked(&self.table)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Sets or removes the event of a vector. Returns whether it has one now; `None` if there is no
    /// such vector.
    pub fn set(&self, vector: u32, event: Option<IrqEvent>) -> Option<bool> {
        let held = self.events.get(vector as usize)?;
        let is_set = event.is_some();
        *locked(held) = event;
        Some(is_set)
    }

    /// Signals a vector's event. Returns false if it has none, or if the signal cannot be delivered
    /// now, which the event counts.
    pub fn signal(&self, vector: u16) -> bool {
        let event = self.events.get(usize::from(vector)).map(locked);
        event.is_some_and(|event| event.as_ref().is_some_and(IrqEvent::signal))
    }

    /// Resets the table, as a reset of the function does.
    pub fn reset(&self) {
        locked(&self.table).fill(0);
    }

    /// Removes all events, as the end of a session does.
    pub fn remove_events(&self) {
        self.events.iter().for_each(|event| *locked(event) = None);
    }
}

/// Whether a BAR permits an access: it has 4 or 8 bytes, and begins at a multiple of `alignment`.
#[inline]
#[must_use]
pub fn is_access(offset: u64, len: usize, alignment: u64, bar_bytes: u64) -> bool {
    matches!(len, 4 | 8)
        && offset.is_multiple_of(alignment)
        && offset.checked_add(len as u64).is_some_and(|end| end <= bar_bytes)
}
