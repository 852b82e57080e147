//! A queue of the device in one of its lives: rings, and slots of memory for what goes through them.

use std::sync::Arc;

use qpair_block::Result;
use qpair_memory::SharedBytes;
use qpair_pci::{Maps, QueueMemory};
use qpair_virtio::ring::{Areas, Broken, DriverRing, Layout, Used};

use crate::transport::{Bell, Transport};

pub(crate) struct Virtqueue {
    memory: QueueMemory,
    layout: Layout,
    ring: DriverRing,
    bell: Bell,
}

impl Virtqueue {
    /// Gives the device queue `number`, with `slots_bytes` of memory beside its rings.
    pub(crate) fn new(
        transport: &Transport,
        maps: &Arc<Maps>,
        number: u16,
        layout: Layout,
        slots_bytes: usize,
    ) -> Result<Self> {
        let mut memory = QueueMemory::new(maps, layout.bytes() + slots_bytes)?;
        let ring = DriverRing::new(layout);
        ring.be_quiet(layout.areas(memory.bytes(), 0));
        let bell = transport.enable(number, layout, memory.iova())?;
        Ok(Self { memory, layout, ring, bell })
    }

    #[inline]
    pub(crate) fn areas(&mut self) -> Areas<'_> {
        self.layout.areas(self.memory.bytes(), 0)
    }

    /// All of its memory; slots begin at [`Virtqueue::slots_at`].
    #[inline]
    pub(crate) fn bytes(&mut self) -> SharedBytes<'_> {
        self.memory.bytes()
    }

    #[inline]
    pub(crate) fn slots_at(&self) -> usize {
        self.layout.bytes()
    }

    /// Where a byte of its memory is for the device.
    #[inline]
    pub(crate) fn iova_of(&self, at: usize) -> u64 {
        self.memory.iova() + at as u64
    }

    #[inline]
    pub(crate) fn offer(&mut self, head: u16) {
        let areas = self.layout.areas(self.memory.bytes(), 0);
        self.ring.offer(areas, head);
    }

    /// Hands over all that was offered.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.ring.has_news() {
            let areas = self.layout.areas(self.memory.bytes(), 0);
            if self.ring.publish(areas) {
                self.bell.ring();
            }
        }
    }

    #[inline]
    pub(crate) fn take(&mut self) -> std::result::Result<Option<Used>, Broken> {
        let areas = self.layout.areas(self.memory.bytes(), 0);
        self.ring.take(areas)
    }
}
