//! Memory of queues: one block that the controller reaches.
//!
//! Invariant: while this lives, the block is leased and its arena is open to the function. It is dropped only when the controller can no
//! longer touch it (that is for its owner to see to).

use std::sync::Arc;

use qpair_block::{Arena, Buffer, Error, ErrorKind, Result};
use qpair_memory::{SharedBlock, SharedBytes};

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
        let (buffer, iova) = take(maps, len)?;
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

/// The same, reached by several threads at once: what all queues of a controller share.
#[derive(Debug)]
pub struct SharedQueueMemory {
    block: SharedBlock,
    iova: u64,
    maps: Arc<Maps>,
}

impl SharedQueueMemory {
    /// At least `len` bytes.
    ///
    /// # Errors
    /// As [`QueueMemory::new`].
    pub fn new(maps: &Arc<Maps>, len: usize) -> Result<Self> {
        let (buffer, iova) = take(maps, len)?;
        Ok(Self { block: SharedBlock::new(buffer), iova, maps: maps.clone() })
    }

    /// Where its first byte is for the device: a multiple of the page.
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Its bytes.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'_> {
        self.block.bytes()
    }
}

impl Drop for SharedQueueMemory {
    fn drop(&mut self) {
        self.maps.close(self.block.arena());
    }
}

/// A block of at least `len` bytes, open to the device, and where it is for the device.
fn take(maps: &Arc<Maps>, len: usize) -> Result<(Buffer, u64)> {
    let context = || format!("{len} bytes of memory for queues");
    let arena = Arena::new(len.next_power_of_two().max(4096), 1, maps.arena_options())
        .map_err(|cause| Error::os(cause, context()))?;
    let buffer = arena.lease().ok_or_else(|| Error::new(ErrorKind::Limit, context()))?;
    let iova = maps.open(&arena)?;
    Ok((buffer, iova))
}
