//! The memory of a driver that is wrong, as a device made of software is given it: some to be
//! written, which is opened and closed, and some that may only be read.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use qpair_memory::{DmaMemory, Mapping};
use qpair_pci::PciDevice;

use crate::input::Input;

/// Where it is for the device.
pub const IOVA: u64 = 0x10_0000;
pub const MEMORY_BYTES: usize = 64 << 10;
const READ_ONLY: u64 = 0x20_0000;
const READ_ONLY_BYTES: usize = 8192;

impl Input {
    /// An address: mostly one that means something, such as a multiple of `unit`.
    pub fn address(&mut self, unit: u64) -> u64 {
        let (kind, low) = (self.byte(), u64::from(self.half()));
        match kind % 8 {
            0..4 => IOVA + low % MEMORY_BYTES as u64 / unit * unit,
            4 => IOVA + low,
            5 => READ_ONLY + low % READ_ONLY_BYTES as u64,
            6 => IOVA + MEMORY_BYTES as u64 - 1 - low % 64,
            _ => self.word(),
        }
    }
}

pub struct DriverMemory {
    pub bytes: Arc<Mapping>,
    read_only: Arc<Mapping>,
    is_open: bool,
}

impl DriverMemory {
    /// Zeroes, open for the device.
    pub fn new(device: &impl PciDevice) -> Self {
        static FILES: OnceLock<(Arc<Mapping>, OwnedFd)> = OnceLock::new();
        let (memory, file) = FILES.get_or_init(|| {
            let memory = Mapping::new_file(MEMORY_BYTES).expect("memory").0;
            (memory, Mapping::new_file(READ_ONLY_BYTES).expect("memory").1)
        });
        memory.bytes().zero(0, MEMORY_BYTES);
        let read_only = Mapping::of_file(file.as_fd(), 0, READ_ONLY_BYTES, false).expect("memory");
        let mapped = DmaMemory::of_mapping(read_only.clone());
        device.map_dma(READ_ONLY, mapped).expect("nothing is open");
        let mut memory = Self { bytes: memory.clone(), read_only, is_open: false };
        memory.open(device);
        memory
    }

    pub fn open(&mut self, device: &impl PciDevice) {
        let memory = DmaMemory::of_mapping(self.bytes.clone());
        self.is_open |= device.map_dma(IOVA, memory).is_ok();
    }

    pub fn close(&mut self, device: &impl PciDevice) {
        let closed = device.unmap_dma(IOVA, MEMORY_BYTES as u64).is_ok();
        assert_eq!(closed, self.is_open);
        self.is_open = false;
    }

    /// The device has kept what holds, and keeps nothing.
    pub fn end(self, device: &impl PciDevice) {
        for at in (0..READ_ONLY_BYTES).step_by(8) {
            assert_eq!(self.read_only.bytes().load_u64(at), 0, "written, though only to be read");
        }
        device.unmap_all();
        assert_eq!(Arc::strong_count(&self.read_only), 1, "closed, and not forgotten");
    }
}
