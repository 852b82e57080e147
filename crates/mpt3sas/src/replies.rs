//! The controller's answers: a reply queue for each channel and for the core, and the reply frames
//! that all of them share.

use qpair_block::{Buffer, Result};
use qpair_mpi_wire::descriptor::{DESCRIPTOR_BYTES, ReplyDescriptor, UNUSED};
use qpair_mpi_wire::registers::REPLY_FREE_HOST_INDEX;

use crate::registers::Registers;

/// The number of bytes of a reply frame that are read.
pub(crate) const FRAME_BYTES_MAX: usize = 256;

/// A reply queue: a block of the arena of all reply queues, with the block's number.
///
/// Invariant: an entry that was taken is filled with ones again, so that any other value is a new
/// answer.
#[derive(Debug)]
pub(crate) struct ReplyQueue {
    buffer: Buffer,
    entries: u32,
    index: u32,
    told: u32,
}

impl ReplyQueue {
    pub(crate) fn new(buffer: Buffer, entries: u32) -> Self {
        Self { buffer, entries, index: 0, told: 0 }
    }

    pub(crate) fn number(&self) -> u8 {
        self.buffer.block().0 as u8
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Continues where the queue's last owner stopped.
    pub(crate) fn resume(&mut self, index: u32) {
        (self.index, self.told) = (index, index);
    }

    /// Empties the queue, for a controller that was reset.
    pub(crate) fn clear(&mut self) {
        let memory = self.buffer.shared();
        for entry in 0..self.entries as usize {
            memory.store_u64(entry * DESCRIPTOR_BYTES, UNUSED);
        }
        self.resume(0);
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<ReplyDescriptor> {
        let memory = self.buffer.shared();
        let at = self.index as usize * DESCRIPTOR_BYTES;
        // Acquire: data, sense and frame were written before the descriptor.
        let found = ReplyDescriptor::decode(memory.load_u64_acquire(at))?;
        memory.store_u64(at, UNUSED);
        self.index = if self.index + 1 == self.entries { 0 } else { self.index + 1 };
        Some(found)
    }

    /// Whether answers were taken that the controller has not been told of.
    #[inline]
    pub(crate) fn is_ahead(&self) -> bool {
        self.index != self.told
    }

    /// Tells the controller which answers were taken.
    #[inline]
    pub(crate) fn release(&mut self, registers: &Registers) -> Result<()> {
        if !self.is_ahead() {
            return Ok(());
        }
        self.told = self.index;
        registers.tell_replies(self.number(), self.index)
    }
}

/// The reply frames, and the queue by which the controller gets free ones.
#[derive(Debug)]
pub(crate) struct ReplyPool {
    memory: Buffer,
    /// The low half of the address of the first frame.
    low: u32,
    frames: u32,
    frame_bytes: u32,
    index: u32,
    /// The controller's life for which the queue was last filled.
    life: u64,
}

impl ReplyPool {
    pub(crate) fn bytes_of(frames: u32, frame_bytes: u32) -> usize {
        frames as usize * (frame_bytes as usize + 4)
    }

    /// Makes a pool in memory of at least [`ReplyPool::bytes_of`] bytes, all in one window of 4
    /// GiB.
    pub(crate) fn new(memory: Buffer, low: u32, frames: u32, frame_bytes: u32) -> Self {
        Self { memory, low, frames, frame_bytes, index: 0, life: 0 }
    }

    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    fn free_at(&self) -> usize {
        self.frames as usize * self.frame_bytes as usize
    }

    /// Returns the low half of the address of the queue of free frames.
    pub(crate) fn free_low(&self) -> u32 {
        self.low + self.free_at() as u32
    }

    /// Marks all frames as free, for a controller that begins life `life`.
    pub(crate) fn prime(&mut self, life: u64) {
        self.life = life;
        let free_at = self.free_at();
        let (low, frame_bytes) = (self.low, self.frame_bytes);
        let memory = self.memory.shared();
        for frame in 0..self.frames {
            memory.store_u32(free_at + frame as usize * 4, low + frame * frame_bytes);
        }
        // One stays in reserve: a full queue looks like an empty one.
        self.index = self.frames - 1;
    }

    pub(crate) fn tell(&self, registers: &Registers) -> Result<()> {
        registers.write(REPLY_FREE_HOST_INDEX, self.index)
    }

    /// Copies a frame of an answer in life `life`, and returns it to the controller. A controller
    /// in a later life has all frames already. `None` if the frame is not one of the pool's.
    pub(crate) fn take(
        &mut self,
        low: u32,
        life: u64,
        registers: &Registers,
    ) -> Option<[u8; FRAME_BYTES_MAX]> {
        let offset = low.checked_sub(self.low)?;
        if !offset.is_multiple_of(self.frame_bytes) || offset / self.frame_bytes >= self.frames {
            return None;
        }
        let mut frame = [0; FRAME_BYTES_MAX];
        let len = FRAME_BYTES_MAX.min(self.frame_bytes as usize);
        let free_at = self.free_at();
        let memory = self.memory.shared();
        memory.copy_to(offset as usize, &mut frame[..len]);
        if life != self.life {
            return Some(frame);
        }
        memory.store_u32(free_at + self.index as usize * 4, low);
        self.index = if self.index + 1 == self.frames { 0 } else { self.index + 1 };
        // A caller that needs to know whether the controller is gone finds out from the next
        // register read.
        let _ = self.tell(registers);
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use qpair_block::{Arena, ArenaOptions};
    use qpair_pci::InProcess;
    use qpair_softdev::{SoftHba, SoftHbaOptions};

    use super::*;

    /// A channel that found an answer from before a reset would return its frame a second time. The
    /// controller would then write two answers to one frame.
    #[test]
    fn frames_of_an_earlier_life_are_not_given_back() {
        let card = SoftHba::new(SoftHbaOptions::parse("size=1MiB").unwrap()).unwrap();
        let registers = Registers::find(Arc::new(InProcess::new("card", card))).unwrap();
        let arena = Arena::new(4096, 1, ArenaOptions::ordinary_pages()).unwrap();
        let mut pool = ReplyPool::new(arena.lease().unwrap(), 0, 4, 128);
        pool.prime(2);
        assert!(pool.take(128, 1, &registers).is_some());
        assert_eq!(pool.index, 3, "it has all of them");
        assert!(pool.take(128, 2, &registers).is_some());
        assert_eq!(pool.index, 0, "given back");
    }
}
