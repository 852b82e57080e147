//! Devices that the driver refuses, with their names in the error.

use std::sync::Arc;

use qpair_block::ErrorKind;
use qpair_pci::{InProcess, PciDevice, PciFunction, PciWrapper};
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

impl PciWrapper for Odd {
    fn wrapped(&self) -> &impl PciDevice {
        &*self.sound
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        let inside = self.wrapped().read_config(offset, into);
        if offset == 0 && into.len() >= 4 {
            into[2..4].copy_from_slice(&self.device_id.to_le_bytes());
        }
        inside
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        let inside = self.wrapped().read_bar(bar, offset, into);
        if offset == common::DEVICE_FEATURE {
            let mut word = [0; 4];
            self.wrapped().read_bar(bar, common::DEVICE_FEATURE_SELECT, &mut word);
            let without = (self.without >> (32 * u32::from_le_bytes(word))) as u32;
            let offered = u32::from_le_bytes(into.try_into().unwrap());
            into.copy_from_slice(&(offered & !without).to_le_bytes());
        }
        inside
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
