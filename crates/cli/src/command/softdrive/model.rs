//! The devices that are served: an NVMe drive, or a host bus adapter with disks.

use std::path::Path;

use qpair_pci::PciDevice;
use qpair_softdev::hba::Violations;
use qpair_softdev::{SoftHba, SoftNvme};

/// The properties of a served device that this command needs.
pub(super) trait Model: PciDevice {
    const PARTS: &'static str;

    fn serial(&self) -> &str;

    /// Returns the size in bytes of each part, and of its blocks.
    fn parts(&self) -> Vec<(u64, u32)>;

    fn power_cut(&self, seed: u64);

    /// Pulls the last disk, or plugs it in again. Returns `None` if no disk can be pulled.
    fn pull_or_plug(&self) -> Option<&'static str>;

    /// Returns the number of violations by drivers, with a description of the first, if they are
    /// checked.
    fn violations(&self) -> Violations {
        Violations::default()
    }

    /// Returns lines that show how programs use the device at a socket. The lines for QEMU are the
    /// same for all devices.
    fn uses(socket: &Path) -> Vec<String>;
}

impl Model for SoftNvme {
    const PARTS: &'static str = "namespaces";

    fn serial(&self) -> &str {
        &self.options().serial
    }

    fn parts(&self) -> Vec<(u64, u32)> {
        let namespaces = self.options().namespaces.iter();
        namespaces.map(|it| (it.size_bytes, it.logical_block_bytes)).collect()
    }

    fn power_cut(&self, seed: u64) {
        SoftNvme::power_cut(self, seed);
        self.insert();
    }

    fn pull_or_plug(&self) -> Option<&'static str> {
        None
    }

    fn uses(socket: &Path) -> Vec<String> {
        let path = socket.display();
        let spdk = match (socket.file_name(), socket.parent()) {
            (Some(name), Some(folder)) if name == "cntrl" => {
                format!("  SPDK    -r 'trtype:VFIOUSER traddr:{}'", folder.display())
            }
            _ => "  SPDK    looks for a socket called cntrl: give a folder as --socket".to_owned(),
        };
        vec![
            format!("  qpair   nvme:vfio-user:{path}   as a device, with /nsN for namespace N"),
            spdk,
        ]
    }
}

impl Model for SoftHba {
    const PARTS: &'static str = "disks";

    fn serial(&self) -> &str {
        &self.options().serial
    }

    fn parts(&self) -> Vec<(u64, u32)> {
        self.options().disks.iter().map(|it| (it.size_bytes, it.logical_block_bytes)).collect()
    }

    fn power_cut(&self, seed: u64) {
        SoftHba::power_cut(self, seed);
    }

    fn pull_or_plug(&self) -> Option<&'static str> {
        let last = self.options().disks.len() - 1;
        if self.pull(last) {
            return Some("pulled");
        }
        self.plug(last).then_some("plugged in")
    }

    fn violations(&self) -> Violations {
        SoftHba::violations(self)
    }

    fn uses(socket: &Path) -> Vec<String> {
        vec![format!("  qpair   scsi:vfio-user:{}/0   as a device: disk 0", socket.display())]
    }
}
