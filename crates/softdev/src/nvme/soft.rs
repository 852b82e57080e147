//! A soft NVMe drive: a controller with a drive of software behind it.

use std::fmt;
use std::sync::Arc;

use qpair_block::Result;
use qpair_nvme_device::NvmeController;
use qpair_pci::{PciDevice, PciWrapper};

use super::drive::Drive;
use super::options::SoftNvmeOptions;
use crate::faults::{Faults, Plan};
use crate::flash::Flash;

pub struct SoftNvme {
    options: SoftNvmeOptions,
    controller: NvmeController<Drive>,
}

impl SoftNvme {
    /// Creates a drive.
    ///
    /// # Errors
    /// `Invalid` for options that make no sense; `NoSpace` or `Limit` if memory is short; and the
    /// errors of the file system for a medium in a file.
    pub fn new(mut options: SoftNvmeOptions) -> Result<Arc<Self>> {
        options.check()?;
        if options.serial.is_empty() {
            options.serial = format!("QP{:016X}", fastrand::u64(..));
        }
        let drive = Drive::open(&mut options)?;
        let controller = NvmeController::new(options.controller(), drive)?;
        Ok(Arc::new(Self { options, controller }))
    }

    /// Returns the options, with the serial number and the sizes of files filled in.
    #[must_use]
    pub fn options(&self) -> &SoftNvmeOptions {
        &self.options
    }

    /// Removes the PCI function: every register reads as all ones, doorbells do nothing, and memory
    /// is not accessed any more.
    pub fn remove(&self) {
        self.controller.remove();
    }

    /// Inserts the PCI function again after [`Self::remove`] or [`Self::power_cut`]. It is in the
    /// state after power on.
    pub fn insert(&self) {
        self.controller.insert();
    }

    /// Cuts the power, and removes the function until [`Self::insert`]. Each sector that is only in
    /// a volatile write cache is lost or kept, as `seed` decides.
    pub fn power_cut(&self, seed: u64) {
        self.controller.backend().arm_power_cut(seed);
        self.remove();
    }

    /// Returns the model of the drive's flash, which counts what it did.
    #[must_use]
    pub fn flash(&self) -> &Flash {
        &self.controller.backend().flash
    }

    /// Returns the plan of faults, which counts commands.
    #[must_use]
    pub fn faults(&self) -> Arc<Faults> {
        self.controller.backend().faults()
    }

    /// Replaces the plan of faults, from the next command on. Commands that already wait keep their
    /// outcome.
    pub fn set_faults(&self, plan: Plan) {
        self.controller.backend().set_faults(plan);
    }

    /// Whether a driver in another process may ring doorbells through mapped memory. Ringing a
    /// mapped doorbell wakes no thread.
    #[must_use]
    pub fn are_doorbells_mapped(&self) -> bool {
        self.controller.are_doorbells_mapped()
    }
}

impl fmt::Debug for SoftNvme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SoftNvme {}", self.options)
    }
}

impl PciWrapper for SoftNvme {
    fn wrapped(&self) -> &impl PciDevice {
        &self.controller
    }
}
