//! A soft host and its driver.

use std::sync::Arc;

use qpair_pci::InProcess;
use qpair_scsi::host::{Host, Unit};
use qpair_scsi::{ScsiDisk, ScsiOptions};
use qpair_softdev::hba::DiskOptions;
use qpair_softdev::{SoftVirtioScsi, SoftVirtioScsiOptions};
use qpair_virtio_scsi::{VirtioScsi, VirtioScsiOptions};

pub(crate) struct Rig {
    pub(crate) device: Arc<SoftVirtioScsi>,
    pub(crate) host: Arc<dyn Host>,
}

/// Returns options for a host with disks of 8 MiB.
pub(crate) fn device_options() -> SoftVirtioScsiOptions {
    let disk = DiskOptions { size_bytes: 8 << 20, ..DiskOptions::default() };
    SoftVirtioScsiOptions { disks: vec![disk; 2], ..SoftVirtioScsiOptions::default() }
}

pub(crate) fn driver_options() -> VirtioScsiOptions {
    VirtioScsiOptions { reset_timeout_ms: 200, watch_ms: 5, ..VirtioScsiOptions::default() }
}

pub(crate) fn scsi_options() -> ScsiOptions {
    ScsiOptions { timeout_ms: 40, task_timeout_ms: 20, ..ScsiOptions::default() }
}

impl Rig {
    pub(crate) fn new(options: SoftVirtioScsiOptions) -> Self {
        let device = SoftVirtioScsi::new(options).unwrap();
        let function = Arc::new(InProcess::new("soft virtio-scsi", device.clone()));
        let host = VirtioScsi::open(function, driver_options()).unwrap();
        Self { device, host }
    }

    pub(crate) fn disk(&self, target: u32, options: ScsiOptions) -> Arc<ScsiDisk> {
        let unit = Unit { target, lun: Default::default() };
        Arc::new(ScsiDisk::open(self.host.clone(), unit, "scsi:soft", options).unwrap())
    }
}
