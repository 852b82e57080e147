//! A queue of the device in one of its lives: rings, and slots of memory for its contents.

use std::sync::Arc;

use qpair_block::Result;
use qpair_memory::SharedBytes;
use qpair_pci::{Maps, QueueMemory};
use qpair_virtio::ring::{Areas, Broken, DriverRing, Layout, Used};

use crate::transport::{Bell, Transport};

/// The alignment of slots. A slot's length is a multiple or a divisor of it, so that no slot
/// crosses a page. QEMU counts the part of a response on a second page as data that was moved.
const SLOTS_ALIGNMENT: usize = 256;

pub(crate) struct Virtqueue {
    memory: QueueMemory,
    layout: Layout,
    ring: DriverRing,
    bell: Bell,
}

impl Virtqueue {
    /// Gives the device queue `number`, with `slots_bytes` of memory besides its rings.
    pub(crate) fn new(
        transport: &Transport,
        maps: &Arc<Maps>,
        number: u16,
        layout: Layout,
        slots_bytes: usize,
    ) -> Result<Self> {
        let mut memory = QueueMemory::new(maps, slots_at(layout) + slots_bytes)?;
        let ring = DriverRing::new(layout);
        ring.be_quiet(layout.areas(memory.bytes()));
        let bell = transport.enable(number, layout, memory.iova())?;
        Ok(Self { memory, layout, ring, bell })
    }

    #[inline]
    pub(crate) fn areas(&mut self) -> Areas<'_> {
        self.layout.areas(self.memory.bytes())
    }

    /// Returns all of the queue's memory; slots begin at [`Virtqueue::slots_at`].
    #[inline]
    pub(crate) fn bytes(&mut self) -> SharedBytes<'_> {
        self.memory.bytes()
    }

    #[inline]
    pub(crate) fn slots_at(&self) -> usize {
        slots_at(self.layout)
    }

    /// Returns the address for the device of an offset in the queue's memory.
    #[inline]
    pub(crate) fn iova_of(&self, at: usize) -> u64 {
        self.memory.iova() + at as u64
    }

    #[inline]
    pub(crate) fn offer(&mut self, head: u16) {
        let areas = self.layout.areas(self.memory.bytes());
        self.ring.offer(areas, head);
    }

    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.ring.has_news() {
            let areas = self.layout.areas(self.memory.bytes());
            if self.ring.publish(areas) {
                self.bell.ring();
            }
        }
    }

    #[inline]
    pub(crate) fn take(&mut self) -> std::result::Result<Option<Used>, Broken> {
        let areas = self.layout.areas(self.memory.bytes());
        self.ring.take(areas)
    }
}

#[inline(always)]
fn slots_at(layout: Layout) -> usize {
    layout.bytes().next_multiple_of(SLOTS_ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::TASK_STRIDE;
    use crate::queue::SLOT_BYTES;

    /// A regression: with slots at a multiple of 64, every sixteenth response crossed a page, and
    /// QEMU 7.2 reported 44 bytes more than were requested.
    #[test]
    fn no_slot_lies_across_a_page() {
        for size in (0..=10).map(|log| 1 << log) {
            let start = slots_at(Layout::new(size).unwrap());
            for bytes in [SLOT_BYTES, TASK_STRIDE, qpair_virtio::scsi::EVENT_BYTES] {
                let crosses = |slot: usize| {
                    let at = start + slot * bytes;
                    at / 4096 != (at + bytes - 1) / 4096
                };
                assert!(!(0..usize::from(size)).any(crosses), "{size} slots of {bytes}");
            }
        }
    }
}
