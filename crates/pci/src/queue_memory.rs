//! Memory of queues: one block that the controller can access.
//!
//! Invariant: while a value of these types lives, its block is leased and its arena is open to the
//! function. The owner must drop it only when the controller can no longer access it.

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
    /// Allocates a block of at least `len` bytes.
    ///
    /// # Errors
    /// `Limit` if memory is short; the errors of [`Maps::open`].
    pub fn new(maps: &Arc<Maps>, len: usize) -> Result<Self> {
        let (buffer, iova) = take(maps, len)?;
        Ok(Self { buffer, iova, maps: maps.clone() })
    }

    /// Returns the address of the first byte for the device: a multiple of the page.
    #[inline]
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.iova
    }

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

/// A zeroed block that several threads access at once, for memory that all queues of a controller
/// share.
#[derive(Debug)]
pub struct SharedQueueMemory {
    block: SharedBlock,
    iova: u64,
    maps: Arc<Maps>,
}

impl SharedQueueMemory {
    /// Allocates a block of at least `len` bytes.
    ///
    /// # Errors
    /// As [`QueueMemory::new`].
    pub fn new(maps: &Arc<Maps>, len: usize) -> Result<Self> {
        let (buffer, iova) = take(maps, len)?;
        Ok(Self { block: SharedBlock::new(buffer), iova, maps: maps.clone() })
    }

    /// Returns the address of the first byte for the device: a multiple of the page.
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.iova
    }

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

/// Allocates a block of at least `len` bytes and opens its arena to the device. Returns the block
/// and its address for the device.
fn take(maps: &Arc<Maps>, len: usize) -> Result<(Buffer, u64)> {
    let context = || format!("allocating {len} bytes of memory for queues");
    let arena = Arena::new(len.next_power_of_two().max(4096), 1, maps.arena_options())
        .map_err(|cause| Error::os(cause, context()))?;
    let buffer = arena.lease().ok_or_else(|| Error::new(ErrorKind::Limit, context()))?;
    let iova = maps.open(&arena)?;
    Ok((buffer, iova))
}
