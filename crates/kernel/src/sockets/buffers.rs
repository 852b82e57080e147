//! Buffers of a ring for bytes from sockets (`IORING_REGISTER_PBUF_RING`): a socket takes one when
//! bytes arrive, so sockets that are silent have none.
//!
//! Invariants:
//! - a block whose number is in the kernel's ring is in `blocks`, and nobody reads or writes it;
//! - a block that was taken belongs to a [`Received`], and comes back through the arena.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use qpair_block::{Arena, ArenaOptions, Buffer, Error, Result};

use crate::io_uring::ring::Ring;

/// The number of buffers, a power of two, and the size of one, bytes.
const COUNT: u16 = 16;
pub(super) const BUFFER_BYTES: usize = 64 << 10;
/// The size of the memory that has the kernel's ring, bytes.
const RING_BYTES: usize = 4096;
const _: () = assert!(COUNT as usize * size_of::<BufRingEntry>() <= RING_BYTES);
/// The number of the group of buffers.
pub(super) const GROUP: u16 = 0;

/// Bytes from a socket.
#[derive(Debug)]
pub struct Received {
    block: Buffer,
    len: usize,
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.as_slice().get(..self.len).unwrap_or_default()
    }
}

pub(super) struct Buffers {
    /// The memory of the kernel's ring.
    entries: Buffer,
    arena: Arc<Arena>,
    blocks: Vec<Option<Buffer>>,
    tail: u16,
    /// The numbers without a block.
    free: Vec<u16>,
}

impl Buffers {
    /// Allocates the buffers, and gives them to the ring.
    ///
    /// # Errors
    /// `Limit` without memory; else the error of the registration.
    pub(super) fn register(ring: &mut Ring) -> Result<Self> {
        let memory = |cause| Error::os(cause, "allocating buffers for sockets");
        let options = ArenaOptions::ordinary_pages();
        let page = Arena::new(RING_BYTES, 1, options).map_err(memory)?;
        let entries = page.lease().ok_or_else(|| memory(std::io::ErrorKind::OutOfMemory.into()))?;
        let arena = Arena::new(BUFFER_BYTES, COUNT.into(), options).map_err(memory)?;
        let mut buffers = Self {
            entries,
            arena,
            blocks: (0..COUNT).map(|_| None).collect(),
            tail: 0,
            free: (0..COUNT).rev().collect(),
        };
        let address = buffers.entries.as_ptr() as u64;
        // SAFETY: the memory is that of `entries`, as large as the entries by the assertion above,
        // and zeroed. It lives until `unregister`, or is leaked (`SocketRing::drop`).
        unsafe { ring.queues().submitter().register_buf_ring_with_flags(address, COUNT, GROUP, 0) }
            .map_err(|cause| Error::os(cause, "registering buffers for sockets with io_uring"))?;
        buffers.replenish();
        Ok(buffers)
    }

    /// Takes the buffers back from the ring.
    pub(super) fn unregister(ring: &mut Ring) -> bool {
        ring.queues().submitter().unregister_buf_ring(GROUP).is_ok()
    }

    /// Returns the bytes that the kernel has put into a buffer.
    pub(super) fn take(&mut self, number: u16, len: usize) -> Option<Received> {
        let block = self.blocks.get_mut(usize::from(number))?.take()?;
        self.free.push(number);
        Some(Received { block, len })
    }

    /// Gives the kernel the buffers that nobody uses any more.
    pub(super) fn replenish(&mut self) {
        let before = self.tail;
        while let Some(&number) = self.free.last()
            && let Some(block) = self.arena.lease()
        {
            self.free.pop();
            let at = usize::from(self.tail & (COUNT - 1));
            // SAFETY: the entry lies in the memory of `entries`. The kernel reads it only after the
            // store to the tail below, and at most `COUNT` numbers are in the ring.
            let entry = unsafe { &mut *self.entries.as_ptr().cast::<BufRingEntry>().add(at) };
            entry.set_addr(block.as_ptr() as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(number);
            self.blocks[usize::from(number)] = Some(block);
            self.tail = self.tail.wrapping_add(1);
        }
        if self.tail != before {
            // SAFETY: the tail lies in the first entry, in the memory of `entries`; the kernel only
            // reads it, and no reference to that entry lives.
            let tail = unsafe {
                let tail = BufRingEntry::tail(self.entries.as_ptr().cast());
                AtomicU16::from_ptr(tail.cast_mut())
            };
            // Pairs with the kernel's load of the tail, before it reads entries.
            tail.store(self.tail, Ordering::Release);
        }
    }
}
