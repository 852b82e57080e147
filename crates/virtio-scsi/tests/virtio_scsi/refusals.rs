//! Devices that the driver refuses, with their names in the error.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use qpair_block::{ErrorKind, Result};
use qpair_memory::DmaMemory;
use qpair_pci::{InProcess, IrqEvent, PciDevice, PciFunction, SharedArea, Stepped};
use qpair_scsi::{Driver, Registry};
use qpair_softdev::{SoftHba, SoftHbaOptions, SoftVirtioScsi};
use qpair_virtio::pci::common;
use qpair_virtio_scsi::VirtioScsiDriver;

use crate::rig::device_options;

/// A soft host with another device id, and without some features.
struct Odd {
    sound: Arc<SoftVirtioScsi>,
    device_id: u16,
    without: u64,
}

impl PciDevice for Odd {
    fn kind(&self) -> &'static str {
        self.sound.kind()
    }
    fn config_bytes(&self) -> u32 {
        self.sound.config_bytes()
    }
    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        let inside = self.sound.read_config(offset, into);
        if offset == 0 && into.len() >= 4 {
            into[2..4].copy_from_slice(&self.device_id.to_le_bytes());
        }
        inside
    }
    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool {
        self.sound.write_config(offset, bytes)
    }
    fn bar_bytes(&self, bar: u8) -> u64 {
        self.sound.bar_bytes(bar)
    }
    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        let inside = self.sound.read_bar(bar, offset, into);
        if offset == common::DEVICE_FEATURE {
            let mut word = [0; 4];
            self.sound.read_bar(bar, common::DEVICE_FEATURE_SELECT, &mut word);
            let without = (self.without >> (32 * u32::from_le_bytes(word))) as u32;
            let offered = u32::from_le_bytes(into.try_into().unwrap());
            into.copy_from_slice(&(offered & !without).to_le_bytes());
        }
        inside
    }
    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        self.sound.write_bar(bar, offset, bytes)
    }
    fn shared_area(&self, bar: u8) -> Option<SharedArea> {
        self.sound.shared_area(bar)
    }
    fn shared_file(&self, bar: u8) -> Result<OwnedFd> {
        self.sound.shared_file(bar)
    }
    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        self.sound.map_dma(iova, memory)
    }
    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()> {
        self.sound.unmap_dma(iova, len)
    }
    fn unmap_all(&self) {
        self.sound.unmap_all();
    }
    fn irq_count(&self) -> u32 {
        0
    }
    fn set_irq(&self, _: u32, _: Option<IrqEvent>) -> bool {
        false
    }
    fn reset(&self) {
        self.sound.reset();
    }
    fn end_session(&self) {
        self.sound.end_session();
    }
    fn step(&self, queue: u16) -> Stepped {
        self.sound.step(queue)
    }
    fn step_all(&self) -> Stepped {
        self.sound.step_all()
    }
}

#[test]
fn what_is_not_driven_is_refused_by_name() {
    for (device_id, without, said) in [
        (0x1004, 0, "1af4:1004 is a transitional virtio-scsi device"),
        (0x1048, 1 << 32, "does not speak virtio 1"),
        (0x1048, 1 << 33, "past the IOMMU"),
    ] {
        let sound = SoftVirtioScsi::new(device_options()).unwrap();
        let function: Arc<dyn PciFunction> =
            Arc::new(InProcess::new("odd", Arc::new(Odd { sound, device_id, without })));
        let driver = VirtioScsiDriver::default();
        assert!(driver.takes(&function), "taken, so that it says why not");
        let error = driver.open(function).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn each_driver_takes_its_own() {
    let mut registry: Registry<Arc<dyn PciFunction>> = Registry::new();
    registry.add_driver(VirtioScsiDriver::default());
    let card = SoftHba::new(SoftHbaOptions::parse("size=1MiB").unwrap()).unwrap();
    assert!(registry.add_device(Arc::new(InProcess::new("hba", card))).is_none());
    let soft = SoftVirtioScsi::new(device_options()).unwrap();
    let host = registry.add_device(Arc::new(InProcess::new("soft", soft))).unwrap().unwrap();
    assert_eq!(host.info().driver, "virtio-scsi");
    assert_eq!(registry.waiting().len(), 1);
}
