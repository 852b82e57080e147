//! A soft NVMe drive: a controller with a drive of software behind it.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use qpair_block::Result;
use qpair_memory::DmaMemory;
use qpair_nvme_device::NvmeController;
use qpair_pci::{IrqEvent, Listened, PciDevice, SharedArea, Stepped};

use super::drive::Drive;
use super::options::SoftNvmeOptions;
use crate::faults::{Faults, Plan};
use crate::flash::Flash;

/// A soft NVMe drive.
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

/// Passes everything on to the controller.
impl PciDevice for SoftNvme {
    fn kind(&self) -> &'static str {
        self.controller.kind()
    }

    fn config_bytes(&self) -> u32 {
        self.controller.config_bytes()
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        self.controller.read_config(offset, into)
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool {
        self.controller.write_config(offset, bytes)
    }

    fn bar_bytes(&self, bar: u8) -> u64 {
        self.controller.bar_bytes(bar)
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        self.controller.read_bar(bar, offset, into)
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        self.controller.write_bar(bar, offset, bytes)
    }

    fn shared_area(&self, bar: u8) -> Option<SharedArea> {
        self.controller.shared_area(bar)
    }

    fn prefers_calls(&self) -> bool {
        self.controller.prefers_calls()
    }

    fn is_doorbell(&self, bar: u8, offset: u64) -> bool {
        self.controller.is_doorbell(bar, offset)
    }

    fn listen(&self) -> Listened {
        self.controller.listen()
    }

    fn shared_file(&self, bar: u8) -> Result<OwnedFd> {
        self.controller.shared_file(bar)
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        self.controller.map_dma(iova, memory)
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()> {
        self.controller.unmap_dma(iova, len)
    }

    fn unmap_all(&self) {
        self.controller.unmap_all();
    }

    fn irq_count(&self) -> u32 {
        self.controller.irq_count()
    }

    fn set_irq(&self, vector: u32, event: Option<IrqEvent>) -> bool {
        self.controller.set_irq(vector, event)
    }

    fn reset(&self) {
        self.controller.reset();
    }

    fn end_session(&self) {
        self.controller.end_session();
    }

    #[inline]
    fn step(&self, queue: u16) -> Stepped {
        self.controller.step(queue)
    }

    fn step_all(&self) -> Stepped {
        self.controller.step_all()
    }
}
