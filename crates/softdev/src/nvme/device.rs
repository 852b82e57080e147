//! The controller as a PCI function.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use qpair_block::Result;
use qpair_memory::DmaMemory;
use qpair_pci::{PciDevice, SharedArea, Stepped};

use super::options::SoftNvmeOptions;

/// A soft NVMe controller.
#[derive(Debug)]
pub struct SoftNvme {
    options: SoftNvmeOptions,
}

impl SoftNvme {
    /// Makes one.
    ///
    /// # Errors
    /// `Invalid` for options that make no sense, `NoSpace` or `Limit` where memory is short, what the file system says for a file.
    pub fn new(options: SoftNvmeOptions) -> Result<Arc<Self>> {
        options.check()?;
        Ok(Arc::new(Self { options }))
    }

    /// What it was made of; the serial number filled in.
    #[must_use]
    pub fn options(&self) -> &SoftNvmeOptions {
        &self.options
    }

    /// The function is pulled out: every register reads as ones, doorbells do nothing, and memory is not accessed any more.
    pub fn remove(&self) {}

    /// The power fails and comes back: what the volatile write caches held is lost, each sector or not as `seed` decides, and the
    /// controller is as after a reset.
    pub fn power_cut(&self, _seed: u64) {}
}

impl PciDevice for SoftNvme {
    fn kind(&self) -> &'static str {
        "nvme"
    }

    fn config_bytes(&self) -> u32 {
        4096
    }

    fn read_config(&self, _offset: u32, _into: &mut [u8]) -> bool {
        false
    }

    fn write_config(&self, _offset: u32, _bytes: &[u8]) -> bool {
        false
    }

    fn bar_bytes(&self, _bar: u8) -> u64 {
        0
    }

    fn read_bar(&self, _bar: u8, _offset: u64, _into: &mut [u8]) -> bool {
        false
    }

    fn write_bar(&self, _bar: u8, _offset: u64, _bytes: &[u8]) -> bool {
        false
    }

    fn shared_area(&self, _bar: u8) -> Option<SharedArea<'_>> {
        None
    }

    fn map_dma(&self, _iova: u64, _memory: DmaMemory) -> Result<()> {
        Ok(())
    }

    fn unmap_dma(&self, _iova: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn unmap_all(&self) {}

    fn irq_count(&self) -> u32 {
        u32::from(self.options.queues_max) + 1
    }

    fn set_irq(&self, _vector: u32, _event: Option<OwnedFd>) -> bool {
        false
    }

    fn reset(&self) {}

    fn step(&self, _queue: u16) -> Stepped {
        Stepped::default()
    }

    fn step_all(&self) -> Stepped {
        Stepped::default()
    }
}
