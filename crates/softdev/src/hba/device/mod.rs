//! The state of the controller, and its access to its parts.

mod pci;
mod phy;
mod replies;

use qpair_memory::locks::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use qpair_block::Result;
use qpair_mpi_wire::config::PcieDevice;
use qpair_mpi_wire::family;
use qpair_mpi_wire::registers::{MASK_ALL, MASK_REPLY};

use self::replies::ReplyFree;
use super::control::Control;
use super::events::Events;
use super::faults::{Faults, Rule};
use super::lane::Slot;
use super::options::SoftHbaOptions;
use super::strict::Strict;
use super::timing::Timing;
use super::topology::Topology;
use super::transcript::Transcript;
use crate::digest::local_name;
use crate::scsi::Unit;
use qpair_pci::model::{Config, Identity, SharedTable, VectorTable};

pub(crate) use self::phy::Phy;

/// Returns the identity of a SAS3008 of revision 1, since revision 2 and later have combined reply
/// queue registers. With `is_later`, returns that of a 9500-8e. The class is mass storage, SAS.
fn identity(is_later: bool) -> Identity {
    let (device, revision, bar0_bytes) = match is_later {
        true => (family::SAS3816, 0, 1 << 20),
        false => (family::SAS3008, 1, 1 << 16),
    };
    Identity { vendor: family::VENDOR, device, revision, class: [0x00, 0x07, 0x01], bar0_bytes }
}

/// A soft HBA; see the module documentation.
pub struct SoftHba {
    options: SoftHbaOptions,
    address: u64,
    /// The phys to which disks can be attached.
    pub(crate) phys: Vec<Phy>,
    pub(crate) topology: Topology,
    slots: Box<[Slot]>,
    control: Mutex<Control>,
    /// 0 without a fault. After a fault, 1 in the upper half and the fault code in the lower half.
    fault: AtomicU32,
    pub(crate) mask: AtomicU32,
    /// The lower word of a request descriptor whose upper word was not written yet.
    half: AtomicU32,
    reply_free: Mutex<ReplyFree>,
    reply_free_host: AtomicU32,
    /// The memory that is open to the controller. The slots have copies, which change only while
    /// this lock is held.
    table: Mutex<SharedTable>,
    config: Mutex<Config>,
    /// The number of reads of registers.
    reads: AtomicU32,
    vectors: VectorTable,
    interrupted: AtomicU64,
    gone: AtomicBool,
    pub(crate) events: Events,
    pub(crate) faults: Faults,
    pub(crate) strict: Strict,
    pub(crate) transcript: Transcript,
    /// Disks that are to be pulled. The flag says whether there are any.
    pulls: Mutex<Vec<usize>>,
    has_pulls: AtomicBool,
}

impl SoftHba {
    /// Creates a controller.
    ///
    /// # Errors
    /// `Invalid` for options that make no sense, `NoSpace` or `Limit` if memory is short, and the
    /// errors of the file system for a medium in a file.
    pub fn new(mut options: SoftHbaOptions) -> Result<Arc<Self>> {
        options.check()?;
        if options.serial.is_empty() {
            options.serial = format!("QH{:012X}", fastrand::u64(..1 << 48));
        }
        let topology = Topology::new(options.disks.len() as u16, options.has_expanders);
        let count = usize::from(topology.places());
        let mut phys = Vec::new();
        for (disk, number) in options.disks.iter().zip(0u16..) {
            let has_cache = options.volatile_write_cache;
            let unit = Unit::open(disk, &options.serial, number.into(), has_cache)?;
            let naa = unit.logical.facts().naa;
            let size = (unit.volume.size_bytes(), disk.logical_block_bytes);
            let timing = Timing::new(disk.profile, size, has_cache, naa)?;
            phys.push(Phy::new((Arc::new(unit), Arc::new(timing)), number, topology, false));
        }
        // Empty phys share the unit of the first disk, which no driver reaches through them.
        if let Some(disk) = phys.first().map(|phy| (phy.unit.clone(), phy.timing.clone())) {
            for number in phys.len()..count {
                phys.push(Phy::new(disk.clone(), number as u16, topology, true));
            }
        }
        let queues = usize::from(options.queues);
        Ok(Arc::new(Self {
            address: local_name(&options.serial, u32::MAX, 5),
            phys,
            topology,
            slots: (0..queues).map(|_| Slot::default()).collect(),
            control: Mutex::default(),
            fault: AtomicU32::new(0),
            mask: AtomicU32::new(MASK_ALL),
            half: AtomicU32::new(0),
            reply_free: Mutex::default(),
            reply_free_host: AtomicU32::new(0),
            table: Mutex::default(),
            config: Mutex::new(Config::new(&identity(options.is_later), options.queues.into())),
            reads: AtomicU32::new(0),
            vectors: VectorTable::new(options.queues.into()),
            interrupted: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            events: Events::default(),
            faults: Faults::default(),
            strict: Strict::new(options.strict),
            transcript: Transcript::new(options.transcript.as_deref())?,
            pulls: Mutex::default(),
            has_pulls: AtomicBool::new(false),
            options,
        }))
    }

    /// Returns the options of the controller, with the serial number filled in.
    #[must_use]
    pub fn options(&self) -> &SoftHbaOptions {
        &self.options
    }

    /// Replaces the rules of fault injection. They apply from the next command that reads or writes
    /// blocks.
    pub fn set_faults(&self, rules: Vec<Rule>) {
        self.faults.set(rules);
    }

    /// Returns the number of commands that had a fault since the controller was created.
    #[must_use]
    pub fn faults_met(&self) -> u64 {
        self.faults.met()
    }

    /// Sets whether task management requests are accepted and never answered.
    pub fn ignore_tasks(&self, ignore: bool) {
        self.faults.ignore_tasks(ignore);
    }

    /// Makes the next `count` diagnostic resets hang.
    pub fn hang_resets(&self, count: u64) {
        self.faults.hang_resets(count);
    }

    /// Returns the number of interrupts since the controller was created.
    #[must_use]
    pub fn interrupts(&self) -> u64 {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Removes the PCI function: every register reads as all ones, and memory is not accessed any
    /// more.
    pub fn remove(&self) {
        self.gone.store(true, Ordering::Release);
        self.forget_driver();
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the SAS address of an expander.
    pub(crate) fn expander_address(&self, handle: u16) -> u64 {
        local_name(&self.options.serial, handle.into(), 6)
    }

    pub(crate) fn handle_max(&self) -> u16 {
        self.topology.handle_max()
    }

    /// Returns the drive behind PCIe.
    pub(crate) fn pcie_device(&self) -> Option<PcieDevice> {
        let handle = self.handle_max() + 1;
        self.options.has_pcie.then(|| PcieDevice { name: self.address + 1, handle })
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock()
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, SharedTable> {
        self.table.lock()
    }

    pub(crate) fn queues(&self) -> u16 {
        self.slots.len() as u16
    }

    #[inline]
    pub(crate) fn slot(&self, queue: u16) -> Option<&Slot> {
        self.slots.get(usize::from(queue))
    }

    pub(crate) fn call_attention(&self, queue: u16) {
        if let Some(slot) = self.slot(queue) {
            slot.call_attention();
        }
    }

    /// Stops the controller with a fault code. It does nothing more until it is reset.
    #[cold]
    pub(crate) fn stop(&self, code: u16) {
        self.fault.store(1 << 16 | u32::from(code), Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.fault.load(Ordering::Acquire) != 0
    }

    pub(crate) fn fault_code(&self) -> Option<u16> {
        let fault = self.fault.load(Ordering::Acquire);
        (fault != 0).then_some(fault as u16)
    }

    pub(crate) fn forget_fault(&self) {
        self.fault.store(0, Ordering::Release);
    }

    /// Discards all state that a driver has set up. On return, no thread accesses the driver's
    /// memory.
    pub(crate) fn forget_driver(&self) {
        self.slots.iter().for_each(Slot::forget);
        self.strict.forget();
        *self.reply_free.lock() = ReplyFree::default();
        self.reply_free_host.store(0, Ordering::Relaxed);
        self.mask.store(MASK_ALL, Ordering::Relaxed);
        self.events.forget();
    }

    /// Signals the vector of a reply queue, unless it is masked.
    pub(crate) fn interrupt(&self, queue: u8) {
        if self.mask.load(Ordering::Relaxed) & MASK_REPLY != 0 {
            return;
        }
        let is_signalled = self.vectors.signal(queue.into());
        self.interrupted.fetch_add(is_signalled.into(), Ordering::Relaxed);
    }
}

impl fmt::Debug for SoftHba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SoftHba {} with {} disks", self.options.serial, self.options.disks.len())
    }
}
