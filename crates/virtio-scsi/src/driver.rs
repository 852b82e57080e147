//! The driver in the form that a program registers.

use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_pci::PciFunction;
use qpair_scsi::Driver;
use qpair_scsi::host::Host;
use qpair_virtio::pci::VENDOR;
use qpair_virtio::scsi::{PCI_DEVICE, PCI_DEVICE_TRANSITIONAL};

use crate::host::VirtioScsi;
use crate::options::VirtioScsiOptions;

/// Drives virtio SCSI hosts, all with the same options.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtioScsiDriver(pub VirtioScsiOptions);

fn ids(function: &dyn PciFunction) -> Result<(u16, u16)> {
    let mut word = [0; 4];
    function.read_config(0, &mut word)?;
    let word = u32::from_le_bytes(word);
    Ok((word as u16, (word >> 16) as u16))
}

/// Checks that a function is a virtio-scsi device of the version that this driver supports.
pub(crate) fn check_ids(function: &dyn PciFunction) -> Result<()> {
    let unsupported = |what: &str, (vendor, device): (u16, u16)| {
        let context = format!("{}: {vendor:04x}:{device:04x} is {what}", function.name());
        Error::new(ErrorKind::Unsupported, context)
    };
    match ids(function)? {
        (VENDOR, PCI_DEVICE) => Ok(()),
        ids @ (VENDOR, PCI_DEVICE_TRANSITIONAL) => {
            let what = "a transitional virtio-scsi device, which this driver does not drive";
            Err(unsupported(what, ids).hint("give it to the machine with disable-legacy=on (QEMU)"))
        }
        (0xFFFF, 0xFFFF) => Err(crate::transport::gone(function.name())),
        ids => Err(unsupported("not a virtio-scsi device", ids)),
    }
}

impl Driver<Arc<dyn PciFunction>> for VirtioScsiDriver {
    fn name(&self) -> &str {
        "virtio-scsi"
    }

    /// Also takes transitional devices, so that opening them reports why they are not supported.
    fn takes(&self, function: &Arc<dyn PciFunction>) -> bool {
        ids(&**function).is_ok_and(|(vendor, device)| {
            vendor == VENDOR && matches!(device, PCI_DEVICE | PCI_DEVICE_TRANSITIONAL)
        })
    }

    fn open(&self, function: Arc<dyn PciFunction>) -> Result<Arc<dyn Host>> {
        Ok(VirtioScsi::open(function, self.0)?)
    }
}
