//! Memory of queues: one block that the controller reaches.
//!
//! Invariant: while this lives, the block is leased and its arena is open to the function. It is dropped only when the controller can no
//! longer touch it (that is for its owner to see to).

use std::sync::Arc;

use qpair_block::{Arena, Buffer, Error, ErrorKind, Result};
use qpair_memory::SharedBytes;

use crate::maps::Maps;

/// A zeroed block, contiguous for the device.
#[derive(Debug)]
pub struct QueueMemory {
    buffer: Buffer,
    iova: u64,
    maps: Arc<Maps>,
}

impl QueueMemory {
    /// At least `len` bytes.
    ///
    /// # Errors
    /// `Limit` where memory is short; what [`Maps::open`] says.
    pub fn new(maps: &Arc<Maps>, len: usize) -> Result<Self> {
        let context = || format!("{len} bytes of memory for queues");
        let arena = Arena::new(len.next_power_of_two().max(4096), 1, maps.arena_options())
            .map_err(|cause| Error::os(cause, context()))?;
        let buffer = arena.lease().ok_or_else(|| Error::new(ErrorKind::Limit, context()))?;
        let iova = maps.open(&arena)?;
        Ok(Self { buffer, iova, maps: maps.clone() })
    }

    /// Where its first byte is for the device: a multiple of the page.
    #[inline]
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Its bytes.
    #[inline(always)]
    pub fn bytes(&mut self) -> SharedBytes<'_> {
        self.buffer.shared()
    }
}

impl Drop for QueueMemory {
    fn drop(&mut self) {
        self.maps.close(self.buffer.arena());
    }
}
