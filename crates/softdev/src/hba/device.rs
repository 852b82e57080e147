//! The controller as a PCI function.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::DmaMemory;
use qpair_mpi_wire::config::PcieDevice;
use qpair_mpi_wire::family;
use qpair_mpi_wire::init::Init;
use qpair_mpi_wire::ioc_status;
use qpair_mpi_wire::registers::{
    ATOMIC_REQUEST_DESCRIPTOR_POST, GONE, MASK_ALL, MASK_REPLY, REQUEST_DESCRIPTOR_POST_HIGH,
    REQUEST_DESCRIPTOR_POST_LOW,
};
use qpair_pci::{IrqEvent, PciDevice, SharedArea, Stepped};
use qpair_scsi_wire::sense::Code;

use super::control::Control;
use super::events::Events;
use super::faults::{Faults, Rule};
use super::lane::{FAULT_CREDIT, Slot};
use super::options::SoftHbaOptions;
use super::strict::{NO_HANDLE, Strict};
use super::timing::Timing;
use super::topology::{Attached, Topology};
use super::transcript::Transcript;
use crate::digest::local_name;
use crate::scsi::{Unit, UnitOptions};
use qpair_pci::model::locked;
use qpair_pci::model::{BAR4_BYTES, CONFIG_BYTES, Config, Identity};
use qpair_pci::model::{DmaTable, LastHit, SharedTable};

/// A SAS3008 of revision 1: revision 2 and up have combined reply queue registers; or a 9500-8e.
/// Mass storage, SAS.
fn identity(is_later: bool) -> Identity {
    let (device, revision, bar0_bytes) = match is_later {
        true => (family::SAS3816, 0, 1 << 20),
        false => (family::SAS3008, 1, 1 << 16),
    };
    Identity { vendor: family::VENDOR, device, revision, class: [0x00, 0x07, 0x01], bar0_bytes }
}
/// A card with `is_later` misreads a register as zero at one read in so many.
const MISREAD_EVERY: u32 = 16;
/// The BARs that there are: registers, and the MSI-X table.
const REGISTERS: u8 = 0;
const VECTORS: u8 = 4;

/// A phy of the topology that has a disk or has room for one.
#[derive(Debug)]
pub(crate) struct Phy {
    pub(crate) unit: Arc<Unit>,
    pub(crate) timing: Arc<Timing>,
    number: u16,
    topology: Topology,
    /// 0: nothing is there; otherwise one more than the times that something was plugged in. Each
    /// time it has another handle.
    plugged: AtomicU32,
    times: AtomicU32,
    /// The lamp at its slot shines.
    pub(crate) is_located: AtomicBool,
    is_empty: bool,
}

impl Phy {
    /// The handle of what is there.
    pub(crate) fn handle(&self) -> Option<u16> {
        let plugged = self.plugged.load(Ordering::Acquire);
        (plugged > 0).then(|| self.topology.disk_handle(self.number, plugged))
    }
}

/// A soft HBA. See the module.
pub struct SoftHba {
    options: SoftHbaOptions,
    address: u64,
    /// Places for disks.
    phys: Vec<Phy>,
    topology: Topology,
    slots: Box<[Slot]>,
    control: Mutex<Control>,
    /// 0, or 1 in the upper half and a fault code in the lower one.
    fault: AtomicU32,
    mask: AtomicU32,
    /// The lower word of a request whose upper one is to come.
    half: AtomicU32,
    reply_free: Mutex<ReplyFree>,
    reply_free_host: AtomicU32,
    /// The memory that is open to the controller. The slots have copies, which are changed while
    /// this lock is held.
    table: Mutex<SharedTable>,
    config: Mutex<Config>,
    /// Reads of registers.
    reads: AtomicU32,
    vector_table: Mutex<Box<[u8]>>,
    interrupts: Box<[Mutex<Option<IrqEvent>>]>,
    interrupted: AtomicU64,
    gone: AtomicBool,
    pub(crate) events: Events,
    faults: Faults,
    strict: Strict,
    transcript: Transcript,
    /// Disks to be pulled, and whether there are some.
    pulls: Mutex<Vec<usize>>,
    has_pulls: AtomicBool,
}

/// The queue of reply frames that the driver gives.
#[derive(Debug, Default)]
struct ReplyFree {
    at: u64,
    entries: u32,
    index: u32,
}

impl SoftHba {
    /// Makes one.
    ///
    /// # Errors
    /// `Invalid` for options that make no sense, `NoSpace` or `Limit` where memory is short, what
    /// the file system says for a file.
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
            let its = UnitOptions::of(disk, &options.serial, number.into(), has_cache);
            let naa = its.naa;
            let unit = Unit::open(its)?;
            let size = (unit.volume.size_bytes(), disk.logical_block_bytes);
            let timing = Timing::new(disk.profile, size, has_cache, naa)?;
            phys.push(Phy {
                unit: Arc::new(unit),
                timing: Arc::new(timing),
                number,
                topology,
                plugged: AtomicU32::new(1),
                times: AtomicU32::new(1),
                is_located: AtomicBool::new(false),
                is_empty: false,
            });
        }
        // Phys that nothing is at have the first disk's unit, which no driver reaches by them.
        if let Some((unit, timing)) = phys.first().map(|phy| (phy.unit.clone(), phy.timing.clone()))
        {
            for number in phys.len()..count {
                phys.push(Phy {
                    unit: unit.clone(),
                    timing: timing.clone(),
                    number: number as u16,
                    topology,
                    plugged: AtomicU32::new(0),
                    times: AtomicU32::new(0),
                    is_located: AtomicBool::new(false),
                    is_empty: true,
                });
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
            vector_table: Mutex::new(vec![0; BAR4_BYTES as usize].into()),
            interrupts: (0..queues).map(|_| Mutex::default()).collect(),
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

    /// Removes disk `number`. Returns `false` if there was no such disk.
    pub fn pull(&self, number: usize) -> bool {
        let Some(phy) = self.phys.get(number) else { return false };
        let Some(handle) = phy.handle() else { return false };
        phy.plugged.store(0, Ordering::Release);
        self.end_parked(|it| it.handle == handle, ioc_status::SCSI_DEVICE_NOT_THERE);
        self.tell_change(number, handle, false);
        true
    }

    /// Inserts disk `number` again after [`Self::pull`], in the state after power on. Returns
    /// `false` if the disk is already there, or does not exist.
    pub fn plug(&self, number: usize) -> bool {
        let Some(phy) = self.phys.get(number) else { return false };
        if phy.is_empty || phy.handle().is_some() {
            return false;
        }
        phy.unit.power_cut(0);
        phy.plugged.store(phy.times.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Release);
        if let Some(handle) = phy.handle() {
            self.tell_change(number, handle, true);
        }
        true
    }

    /// Returns the number of interrupts since the controller was created.
    #[must_use]
    pub fn interrupts(&self) -> u64 {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Whether the locate lamp at the slot of disk `number` is on.
    #[must_use]
    pub fn is_located(&self, number: usize) -> bool {
        self.phys.get(number).is_some_and(|phy| phy.is_located.load(Ordering::Relaxed))
    }

    /// Cuts the power of all disks, and restores it. Each sector that is only in a volatile cache
    /// is lost or kept, as `seed` decides.
    pub fn power_cut(&self, seed: u64) {
        // Between two commands: one that a cache was lost under would say nothing of it.
        let _idle: Vec<_> = self.slots.iter().map(Slot::lock).collect();
        for (phy, number) in self.phys.iter().zip(0u64..) {
            if !phy.is_empty {
                phy.unit.power_cut(seed.wrapping_add(number));
            }
        }
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

    pub(crate) fn phys(&self) -> &[Phy] {
        &self.phys
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The address of an expander.
    pub(crate) fn expander_address(&self, handle: u16) -> u64 {
        local_name(&self.options.serial, handle.into(), 6)
    }

    /// The handle of what is attached somewhere, if it is there.
    pub(crate) fn attached_handle(&self, attached: Option<Attached>) -> Option<u16> {
        match attached? {
            Attached::Other(handle) => Some(handle),
            Attached::Disk(number) => self.phys.get(number)?.handle(),
        }
    }

    #[inline]
    pub(crate) fn phy_of(&self, handle: u16) -> Option<(usize, &Phy)> {
        let number = self.topology.disk_of(handle)?;
        let phy = self.phys.get(number)?;
        (phy.handle() == Some(handle)).then_some((number, phy))
    }

    /// Whether a handle is one that a disk has had or could have.
    pub(crate) fn is_old_handle(&self, handle: u16) -> bool {
        self.topology.is_disk(handle)
    }

    pub(crate) fn handle_max(&self) -> u16 {
        self.topology.handle_max()
    }

    /// The drive behind PCIe.
    pub(crate) fn pcie_device(&self) -> Option<PcieDevice> {
        let handle = self.handle_max() + 1;
        self.options.has_pcie.then(|| PcieDevice { name: self.address + 1, handle })
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        locked(&self.control)
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, SharedTable> {
        locked(&self.table)
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    #[inline]
    pub(crate) fn strict(&self) -> &Strict {
        &self.strict
    }

    #[inline]
    pub(crate) fn transcript(&self) -> &Transcript {
        &self.transcript
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

    /// The controller has failed, and does nothing more until it is reset.
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

    /// Forgets all that a driver has set up. On return no thread reaches its memory.
    pub(crate) fn forget_driver(&self) {
        self.slots.iter().for_each(Slot::forget);
        self.strict.forget();
        *locked(&self.reply_free) = ReplyFree::default();
        self.reply_free_host.store(0, Ordering::Relaxed);
        self.mask.store(MASK_ALL, Ordering::Relaxed);
        self.events.forget();
    }

    /// The links to all disks go down and come back.
    pub(crate) fn reset_units(&self) {
        for phy in self.phys.iter().filter(|phy| !phy.is_empty) {
            phy.unit.reset(Code::NEXUS_LOSS);
            phy.is_located.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn interrupt_mask(&self) -> u32 {
        self.mask.load(Ordering::Relaxed)
    }

    pub(crate) fn set_interrupt_mask(&self, mask: u32) {
        self.mask.store(mask, Ordering::Relaxed);
    }

    pub(crate) fn set_event_masks(&self, masks: [u32; 4]) {
        self.events.set_masks(masks);
    }

    pub(crate) fn next_event(&self) -> Option<Vec<u8>> {
        self.events.next()
    }

    pub(crate) fn pull_later(&self, number: usize) {
        locked(&self.pulls).push(number);
        self.has_pulls.store(true, Ordering::Release);
    }

    pub(crate) fn set_reply_index(&self, queue: u8, index: u32) {
        if self.strict.is_on() {
            self.check_reply_index(queue, index, self.slot(queue.into()));
        }
        if let Some(slot) = self.slot(queue.into()) {
            slot.host_index.store(index, Ordering::Release);
        }
    }

    pub(crate) fn set_reply_free_index(&self, index: u32) {
        let entries = locked(&self.reply_free).entries;
        let is_entry = entries == 0 || index < entries;
        self.strict.check(is_entry, format_args!("{index} of {entries} reply frames are free"));
        self.strict.has_free_replies.store(true, Ordering::Relaxed);
        self.reply_free_host.store(index, Ordering::Release);
    }

    /// Sets the address of the queue of free reply frames; returns `None` if the memory there is
    /// not open to the controller.
    pub(crate) fn set_reply_free(&self, init: &Init) -> Option<()> {
        let entries = u32::from(init.reply_free_entries);
        let table = self.table();
        table.find(init.reply_free, entries * 4, &mut LastHit::default())?;
        *locked(&self.reply_free) = ReplyFree { at: init.reply_free, entries, index: 0 };
        self.reply_free_host.store(0, Ordering::Relaxed);
        Some(())
    }

    /// The low half of the address of a reply frame.
    pub(crate) fn take_reply_frame(&self, table: &DmaTable, _init: &Init) -> Option<u32> {
        let mut free = locked(&self.reply_free);
        if free.entries == 0 || free.index == self.reply_free_host.load(Ordering::Acquire) {
            return None;
        }
        let found = table.find(free.at, free.entries * 4, &mut LastHit::default())?;
        let (bytes, offset) = table.bytes(found)?;
        let low = bytes.load_u32(offset + free.index as usize * 4);
        self.check_reply_frame(low);
        if self.transcript.is_on() {
            let at = free.at + u64::from(free.index) * 4;
            self.transcript.write(format_args!("free {at:x} {low:x}"));
        }
        free.index = if free.index + 1 >= free.entries { 0 } else { free.index + 1 };
        Some(low)
    }

    /// Signals a reply queue's vector, if it is not masked.
    pub(crate) fn interrupt(&self, queue: u8) {
        if self.interrupt_mask() & MASK_REPLY != 0 {
            return;
        }
        if let Some(event) = self.interrupts.get(usize::from(queue))
            && let Some(event) = &*locked(event)
        {
            // What cannot be delivered is counted with the event.
            self.interrupted.fetch_add(u64::from(event.signal()), Ordering::Relaxed);
        }
    }

    /// A request.
    #[inline]
    fn post(&self, word: u64) {
        if self.transcript.is_on() {
            self.transcript.write(format_args!("post {word:x}"));
        }
        if self.strict.is_on() {
            self.check_post(word);
        }
        // Queues that the driver does not use take nothing; what names no queue goes to the first.
        let queue = (word >> 8) as u8;
        let slot = self.slot(queue.into()).or_else(|| self.slot(0));
        if let Some(slot) = slot
            && !slot.post(word, self.options.credit.into())
        {
            self.stop(FAULT_CREDIT);
        }
    }

    fn set_table(&self, held: &mut SharedTable, table: DmaTable) {
        *held = Arc::new(table);
        for slot in &self.slots {
            slot.lock().set_table(held);
        }
    }

    fn run_pulls(&self) {
        self.has_pulls.store(false, Ordering::Release);
        let pulls = std::mem::take(&mut *locked(&self.pulls));
        for number in pulls {
            self.pull(number);
        }
    }
}

impl fmt::Debug for SoftHba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SoftHba {} with {} disks", self.options.serial, self.options.disks.len())
    }
}

fn is_access(offset: u64, len: usize, bar_bytes: u64) -> bool {
    matches!(len, 4 | 8)
        && offset.is_multiple_of(4)
        && offset.checked_add(len as u64).is_some_and(|end| end <= bar_bytes)
}

impl PciDevice for SoftHba {
    fn kind(&self) -> &'static str {
        "hba"
    }

    fn config_bytes(&self) -> u32 {
        CONFIG_BYTES as u32
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        let inside = locked(&self.config).read(offset, into);
        if self.gone.load(Ordering::Acquire) {
            into.fill(0xFF);
        }
        inside
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool {
        if self.gone.load(Ordering::Acquire) {
            return true;
        }
        let written = locked(&self.config).write(offset, bytes);
        if written == Some(true) {
            self.reset();
        }
        written.is_some()
    }

    fn bar_bytes(&self, bar: u8) -> u64 {
        match bar {
            REGISTERS => identity(self.options.is_later).bar0_bytes,
            VECTORS => BAR4_BYTES,
            _ => 0,
        }
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        if !is_access(offset, into.len(), self.bar_bytes(bar)) {
            return false;
        }
        if self.gone.load(Ordering::Acquire) {
            into.fill(GONE as u8);
            return true;
        }
        if bar == VECTORS {
            let len = into.len();
            into.copy_from_slice(&locked(&self.vector_table)[offset as usize..][..len]);
            return true;
        }
        for (offset, word) in (offset..).step_by(4).zip(into.chunks_exact_mut(4)) {
            let misreads = self.options.is_later
                && self.reads.fetch_add(1, Ordering::Relaxed) % MISREAD_EVERY == MISREAD_EVERY - 1;
            let value = if misreads { 0 } else { self.read_register(offset) };
            if self.transcript.is_on() {
                self.transcript.write(format_args!("read {offset:x} {value:x}"));
            }
            word.copy_from_slice(&value.to_le_bytes());
        }
        true
    }

    #[inline]
    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        if !is_access(offset, bytes.len(), self.bar_bytes(bar)) {
            return false;
        }
        if self.gone.load(Ordering::Acquire) {
            return true;
        }
        if bar == VECTORS {
            locked(&self.vector_table)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            return true;
        }
        if let (REQUEST_DESCRIPTOR_POST_LOW, Ok(word)) = (offset, bytes.try_into()) {
            self.post(u64::from_le_bytes(word));
            return true;
        }
        for (offset, word) in (offset..).step_by(4).zip(bytes.as_chunks::<4>().0) {
            let value = u32::from_le_bytes(*word);
            match offset {
                REQUEST_DESCRIPTOR_POST_LOW => self.half.store(value, Ordering::Relaxed),
                REQUEST_DESCRIPTOR_POST_HIGH => {
                    let low = self.half.load(Ordering::Relaxed);
                    self.post(u64::from(low) | u64::from(value) << 32);
                }
                ATOMIC_REQUEST_DESCRIPTOR_POST if self.options.is_later => {
                    self.post(u64::from(value) | u64::from(NO_HANDLE) << 48);
                }
                _ => {
                    if self.transcript.is_on() {
                        self.transcript.write(format_args!("write {offset:x} {value:x}"));
                    }
                    self.write_register(offset, value);
                }
            }
        }
        true
    }

    fn shared_area(&self, _bar: u8) -> Option<SharedArea> {
        // Each store to the request post register is a request: a page of memory would lose all but
        // the last.
        None
    }

    fn shared_file(&self, bar: u8) -> Result<OwnedFd> {
        Err(Error::new(ErrorKind::Invalid, format!("a soft HBA cannot share BAR {bar}")))
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        let mut held = self.table();
        let len = memory.bytes().len();
        let table = held.with(iova, memory)?;
        self.transcript.write(format_args!("map {iova:x} {len:x}"));
        self.set_table(&mut held, table);
        Ok(())
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()> {
        let mut held = self.table();
        let table = held.without(iova, len)?;
        self.transcript.write(format_args!("unmap {iova:x} {len:x}"));
        self.set_table(&mut held, table);
        Ok(())
    }

    fn unmap_all(&self) {
        self.set_table(&mut self.table(), DmaTable::default());
    }

    fn irq_count(&self) -> u32 {
        self.interrupts.len() as u32
    }

    fn set_irq(&self, vector: u32, event: Option<IrqEvent>) -> bool {
        let Some(held) = self.interrupts.get(vector as usize) else { return false };
        let is_set = event.is_some();
        *locked(held) = event;
        if is_set {
            // What was posted while there was no event is told now.
            self.interrupt(vector as u8);
        }
        true
    }

    fn reset(&self) {
        self.transcript.write(format_args!("reset"));
        let mut control = self.control();
        self.forget_driver();
        self.forget_fault();
        self.reset_units();
        *control = Control::default();
        drop(control);
        let identity = identity(self.options.is_later);
        *locked(&self.config) = Config::new(&identity, self.options.queues.into());
        locked(&self.vector_table).fill(0);
    }

    fn end_session(&self) {
        self.unmap_all();
        for event in &self.interrupts {
            *locked(event) = None;
        }
        self.reset();
    }

    #[inline]
    fn step(&self, queue: u16) -> Stepped {
        if self.has_pulls.load(Ordering::Relaxed) {
            self.run_pulls();
        }
        self.step_queue(queue)
    }

    fn step_all(&self) -> Stepped {
        (0..self.queues()).map(|queue| self.step(queue)).fold(Stepped::default(), Stepped::and)
    }
}
