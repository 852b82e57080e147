//! A driver for tests, whose memory the test can access directly.

#[path = "../../tests/serve/narrow.rs"]
mod narrow;

use std::os::fd::AsFd;
use std::sync::Arc;

use qpair_block::{BlockDevice, Mapping, RamDevice, RamOptions};
use qpair_memory::SharedBytes;
use qpair_virtio::ring::{Areas, Descriptor, DriverRing, Layout, Used};

use super::{GuestRing, RingOptions};
use crate::device::Device;
use crate::memory::{GuestMemory, RegionPlace};
use crate::unit::Unit;
pub(crate) use narrow::Narrow;

pub(crate) const SIZE: u16 = 16;
pub(crate) const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7000_0000;
pub(crate) const MEMORY_BYTES: u64 = 1 << 20;
/// The bytes of memory for each ring.
const RING_BYTES: u64 = 0x1000;

pub(crate) fn ram() -> Arc<dyn BlockDevice> {
    let options = RamOptions { size_bytes: 1 << 20, growable: true, ..RamOptions::default() };
    Arc::new(RamDevice::new(options).unwrap())
}

/// A guest's memory of two adjacent regions: data that crosses from one to the other is two
/// segments.
pub(crate) struct Memory {
    memory: Arc<GuestMemory>,
    mapping: Arc<Mapping>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let (mapping, file) = Mapping::new_file(MEMORY_BYTES as usize).unwrap();
        let half = MEMORY_BYTES / 2;
        let place = |offset| RegionPlace {
            guest: GUEST + offset,
            len_bytes: half,
            user: USER + 2 * offset,
            file_offset_bytes: offset,
        };
        let memory = GuestMemory::default().with(place(0), file.as_fd()).unwrap();
        let memory = Arc::new(memory.with(place(half), file.as_fd()).unwrap());
        Self { memory, mapping }
    }

    pub(crate) fn bytes(&self) -> SharedBytes<'_> {
        self.mapping.bytes()
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        self.bytes().copy_from(at as usize, bytes);
    }

    pub(crate) fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.bytes().copy_to(at as usize, &mut bytes);
        bytes
    }

    pub(crate) fn ring(&self, number: u16) -> Ring {
        let layout = Layout::new(SIZE).unwrap();
        assert!(layout.bytes() as u64 <= RING_BYTES);
        let (memory, mapping) = (self.memory.clone(), self.mapping.clone());
        Ring { number, memory, mapping, layout, ring: DriverRing::new(layout) }
    }
}

/// A ring, as the driver sees it.
pub(crate) struct Ring {
    number: u16,
    memory: Arc<GuestMemory>,
    mapping: Arc<Mapping>,
    layout: Layout,
    ring: DriverRing,
}

impl Ring {
    fn at(&self) -> usize {
        usize::from(self.number) * RING_BYTES as usize
    }

    pub(crate) fn areas(&self) -> Areas<'_> {
        areas(&self.mapping, self.layout, self.at())
    }

    pub(crate) fn options(&self) -> RingOptions {
        let layout = self.layout;
        let start = USER + self.at() as u64;
        RingOptions {
            disk: "disk".into(),
            number: self.number,
            size: SIZE,
            addresses: [0, layout.available_at() as u64, layout.used_at() as u64]
                .map(|at| start + at),
            taken: 0,
            event_index: false,
            indirect: true,
            memory: self.memory.clone(),
            kick: None,
            call: Arc::default(),
            error: None,
            inflight: None,
        }
    }

    /// Opens the device's queue for this ring.
    pub(crate) fn open(&self, device: &Arc<impl Device + 'static>) -> Box<dyn Unit> {
        self.open_with(device, self.options())
    }

    pub(crate) fn open_with(
        &self,
        device: &Arc<impl Device + 'static>,
        options: RingOptions,
    ) -> Box<dyn Unit> {
        device.clone().open(self.number, GuestRing::open(options).unwrap()).unwrap()
    }

    pub(crate) fn describe(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        let address = GUEST.wrapping_add(address);
        Descriptor { address, len, flags, next }.store(self.areas().descriptors, index);
    }

    pub(crate) fn offer(&mut self, head: u16) {
        let mapping = self.mapping.clone();
        let areas = areas(&mapping, self.layout, self.at());
        self.ring.offer(areas, head);
        self.ring.publish(areas);
    }

    pub(crate) fn take(&mut self) -> Option<Used> {
        let mapping = self.mapping.clone();
        self.ring.take(areas(&mapping, self.layout, self.at())).unwrap()
    }
}

fn areas(mapping: &Mapping, layout: Layout, at: usize) -> Areas<'_> {
    let mut areas = layout.areas(mapping.bytes());
    for area in [&mut areas.descriptors, &mut areas.available, &mut areas.used] {
        area.at += at;
    }
    areas
}
