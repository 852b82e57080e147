//! The controller as a PCI function.

use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::{DmaMemory, Mapping};
use qpair_nvme_wire::registers::{DOORBELLS, GONE};
use qpair_pci::{IrqEvent, Listened, PciDevice, SharedArea, Stepped};

use super::admin::Admin;
use super::control::Control;
use super::events::Events;
use super::features::Features;
use super::io::Target;
use super::namespace::Namespace;
use super::options::{Doorbells, SoftNvmeOptions};
use super::outer::{Outer, OuterOptions};
use super::queue::Pair;
use super::shadow::Shadow;
use super::step::Slot;
use crate::faults::{Faults, Plan};
use crate::flash::Flash;
use qpair_pci::model::locked;
use qpair_pci::model::{BAR4_BYTES, CONFIG_BYTES, Config, Identity};
use qpair_pci::model::{DmaTable, SharedTable};

/// NVM Express 1.4.
pub(crate) const VERSION: u32 = 0x0001_0400;
/// Revision of the firmware.
pub(crate) const FIRMWARE: &str = "1.0";
/// Bytes of the area of doorbells: two pages, which all drivers that map them expect.
const DOORBELL_BYTES: u64 = 0x2000;
/// Size of a volatile write cache if the profile does not say, bytes.
const CACHE_BYTES: u64 = 64 << 20;
/// An id that is not assigned to any vendor; mass storage, non-volatile memory, NVM Express; registers and doorbells.
pub(crate) const IDENTITY: Identity = Identity {
    vendor: 0x1234,
    device: 0x5150,
    revision: 1,
    class: [0x02, 0x08, 0x01],
    bar0_bytes: 0x4000,
};
/// The BARs that there are: registers, and the MSI-X table.
const REGISTERS: u8 = 0;
const VECTORS: u8 = 4;

/// A soft NVMe controller. See the module.
pub struct SoftNvme {
    options: SoftNvmeOptions,
    namespaces: Vec<Namespace>,
    /// Its namespaces are elsewhere.
    outer: Option<Outer>,
    /// Number 0: the admin queues.
    slots: Box<[Slot]>,
    /// One more than the highest number of a queue that was made.
    slots_in_use: AtomicU32,
    doorbells: Arc<Mapping>,
    /// The file behind them; `None`: it could not be made when it had to be, and is to be made when a caller asks for it.
    doorbell_file: Mutex<Option<OwnedFd>>,
    /// Whether a caller was given the file, and may have it mapped.
    is_doorbell_file_out: AtomicBool,
    control: Mutex<Control>,
    /// CSTS.
    status: AtomicU32,
    gone: AtomicBool,
    /// What is open now. The slots have copies, changed while this lock is held.
    table: Mutex<SharedTable>,
    admin: Mutex<Admin>,
    pub(crate) write_through: AtomicBool,
    pub(crate) entry_sizes: AtomicU32,
    config: Mutex<Config>,
    /// BAR 4: what a driver writes there it reads there; the code that was given the events signals.
    vector_table: Mutex<Box<[u8]>>,
    events: Box<[Mutex<Option<IrqEvent>>]>,
    flash: Flash,
    faults: Mutex<Arc<Faults>>,
    /// Nothing takes time, and nothing goes wrong.
    is_plain: AtomicBool,
    /// Where the time of `flash` begins.
    start: Instant,
}

impl SoftNvme {
    /// Makes one.
    ///
    /// # Errors
    /// `Invalid` for options that make no sense, `NoSpace` or `Limit` where memory is short, what the file system says for a file.
    pub fn new(mut options: SoftNvmeOptions) -> Result<Arc<Self>> {
        options.check()?;
        if options.serial.is_empty() {
            options.serial = format!("QP{:016X}", fastrand::u64(..));
        }
        // What the drive's profile has, or as much as a small drive has.
        let cache_bytes = match (options.volatile_write_cache, options.profile.cache_bytes) {
            (false, _) => 0,
            (true, 0) => CACHE_BYTES,
            (true, bytes) => bytes,
        };
        let (mut namespaces, mut first_byte) = (Vec::new(), 0u64);
        for (asked, nsid) in options.namespaces.iter_mut().zip(1..) {
            let made = Namespace::open(asked, &options.serial, nsid, first_byte, cache_bytes)?;
            asked.size_bytes = made.size_bytes();
            first_byte = first_byte.saturating_add(made.size_bytes());
            namespaces.push(made);
        }
        Self::of(options, namespaces, first_byte, None)
    }

    /// Makes one that has no blocks: the thread that steps it is handed its commands ([`Self::step_handing`]).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn outer(options: OuterOptions) -> Result<Arc<Self>> {
        let of_drive = options.of_drive();
        of_drive.check_controller()?;
        Self::of(of_drive, Vec::new(), 0, Some(Outer::new(options)))
    }

    fn of(
        options: SoftNvmeOptions,
        namespaces: Vec<Namespace>,
        size_bytes: u64,
        outer: Option<Outer>,
    ) -> Result<Arc<Self>> {
        let flash = Flash::new(options.profile, size_bytes, options.faults.seed)?;
        let is_plain = flash.is_instant() && options.faults.is_empty();
        let faults = Mutex::new(Arc::new(Faults::new(options.faults.clone())));
        let (doorbells, doorbell_file) = Mapping::new_file(DOORBELL_BYTES as usize)
            .map_err(|cause| Error::os(cause, "memory for the doorbells of a soft drive"))?;
        let pairs = usize::from(options.queues_max) + 1;
        let vectors = options.queues_max + 1;
        Ok(Arc::new(Self {
            namespaces,
            outer,
            slots: (0..pairs).map(|_| Slot::default()).collect(),
            slots_in_use: AtomicU32::new(1),
            doorbells,
            doorbell_file: Mutex::new(Some(doorbell_file)),
            is_doorbell_file_out: AtomicBool::new(false),
            control: Mutex::default(),
            status: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            table: Mutex::default(),
            admin: Mutex::new(first_admin(&options)),
            write_through: AtomicBool::new(!options.volatile_write_cache),
            entry_sizes: AtomicU32::new(0),
            config: Mutex::new(Config::new(&IDENTITY, vectors)),
            vector_table: Mutex::new(vec![0; BAR4_BYTES as usize].into()),
            events: (0..pairs).map(|_| Mutex::default()).collect(),
            flash,
            faults,
            is_plain: AtomicBool::new(is_plain),
            start: Instant::now(),
            options,
        }))
    }

    /// What it was made of; the serial number and the sizes of files filled in.
    #[must_use]
    pub fn options(&self) -> &SoftNvmeOptions {
        &self.options
    }

    /// The function is pulled out: every register reads as ones, doorbells do nothing, and memory is not accessed any more.
    pub fn remove(&self) {
        self.gone.store(true, Ordering::Release);
        self.disable();
    }

    /// The function is plugged in again after [`Self::remove`] or [`Self::power_cut`], as after power on.
    pub fn insert(&self) {
        self.gone.store(false, Ordering::Release);
        self.reset();
    }

    /// The power fails: what the volatile write caches held is lost, each sector or not as `seed` decides, and the function is gone until
    /// [`Self::insert`].
    pub fn power_cut(&self, seed: u64) {
        self.remove();
        for namespace in &self.namespaces {
            // A medium that cannot be written has lost more than this would take.
            let _ = namespace.lose_cache(seed);
        }
    }

    /// What its profile did since it was made.
    #[must_use]
    pub fn flash(&self) -> &Flash {
        &self.flash
    }

    /// What goes wrong on demand, and how many commands there were.
    #[must_use]
    pub fn faults(&self) -> Arc<Faults> {
        locked(&self.faults).clone()
    }

    /// Other things go wrong from the next command on. Those that wait keep their fate.
    pub fn set_faults(&self, plan: Plan) {
        let mut faults = locked(&self.faults);
        self.is_plain.store(self.flash.is_instant() && plan.is_empty(), Ordering::Relaxed);
        *faults = Arc::new(Faults::new(plan));
    }

    /// Whether nothing takes time, and nothing goes wrong.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.is_plain.load(Ordering::Relaxed)
    }

    /// Nanoseconds since it was made.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX - 1)
    }

    /// A time in nanoseconds since it was made.
    pub(crate) fn instant(&self, at_ns: u64) -> Instant {
        self.start.checked_add(Duration::from_nanos(at_ns)).unwrap_or(self.start)
    }

    /// Whether drivers are offered doorbells in their own memory.
    pub(crate) fn has_shadow_doorbells(&self) -> bool {
        self.options.doorbells == Doorbells::Shadow
    }

    /// Whether a driver of another process may ring doorbells by memory that it has mapped: then it wakes no thread.
    #[must_use]
    pub fn are_doorbells_mapped(&self) -> bool {
        self.is_doorbell_file_out.load(Ordering::Relaxed)
    }

    /// Whether it was removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn outer_namespaces(&self) -> Option<&Outer> {
        self.outer.as_ref()
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    #[inline]
    pub(crate) fn target(&self) -> Target<'_> {
        Target {
            namespaces: &self.namespaces,
            transfer_bytes_max: 4096 << self.options.mdts,
            write_through: self.write_through.load(Ordering::Relaxed),
            flash: &self.flash,
        }
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        locked(&self.control)
    }

    /// What is open now; nothing is opened or closed while it is held.
    pub(crate) fn table(&self) -> MutexGuard<'_, SharedTable> {
        locked(&self.table)
    }

    pub(crate) fn admin(&self) -> MutexGuard<'_, Admin> {
        locked(&self.admin)
    }

    pub(crate) fn first_admin(&self) -> Admin {
        first_admin(&self.options)
    }

    pub(crate) fn first_features(&self) -> Features {
        first_admin(&self.options).features
    }

    /// CSTS.
    #[inline]
    pub(crate) fn status(&self) -> u32 {
        self.status.load(Ordering::Relaxed)
    }

    pub(crate) fn set_status(&self, mask: u32, value: u32) {
        let change = |status: u32| Some(status & !mask | value & mask);
        let _ = self.status.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    /// Numbers of queue pairs, with that of the admin queues.
    pub(crate) fn pairs(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn slot(&self, number: u16) -> Option<&Slot> {
        self.slots.get(usize::from(number))
    }

    pub(crate) fn lock_pair(&self, number: usize) -> Option<MutexGuard<'_, Pair>> {
        self.slots.get(number).map(Slot::lock)
    }

    pub(crate) fn call_attention(&self, number: usize) {
        if let Some(slot) = self.slots.get(number) {
            slot.call_attention();
        }
    }

    /// A queue of that number was made.
    pub(crate) fn use_slot(&self, number: u16) {
        self.slots_in_use.fetch_max(u32::from(number) + 1, Ordering::Relaxed);
    }

    /// One more than the highest number of a queue that was made.
    pub(crate) fn slots_in_use(&self) -> u16 {
        self.slots_in_use.load(Ordering::Relaxed) as u16
    }

    pub(crate) fn forget_queues(&self) {
        self.slots_in_use.store(1, Ordering::Relaxed);
    }

    /// The value of a doorbell: the tail of a submission queue, or the head of a completion queue; where the driver has it in its memory, from
    /// there.
    #[inline(always)]
    pub(crate) fn doorbell_of(
        &self,
        shadow: Option<&Shadow>,
        number: u16,
        is_completion: bool,
    ) -> u32 {
        let shadowed = shadow.and_then(|shadow| shadow.load(number, is_completion));
        shadowed.unwrap_or_else(|| self.doorbell(number, is_completion))
    }

    /// The value of a doorbell of the register page.
    #[inline(always)]
    pub(crate) fn doorbell(&self, number: u16, is_completion: bool) -> u32 {
        self.doorbells.bytes().load_u32_acquire(doorbell_at(number, is_completion))
    }

    pub(crate) fn store_doorbell(&self, number: u16, is_completion: bool, value: u32) {
        self.doorbells.bytes().store_u32_release(doorbell_at(number, is_completion), value);
    }

    pub(crate) fn zero_doorbells(&self) {
        self.doorbells.bytes().zero(0, DOORBELL_BYTES as usize);
    }

    /// MSI-X vectors.
    pub(crate) fn vectors(&self) -> u32 {
        self.events.len() as u32
    }

    /// Signals a vector's event, if it has one.
    #[cold]
    pub(crate) fn signal(&self, vector: u16) {
        if let Some(event) = self.events.get(usize::from(vector))
            && let Some(event) = &*locked(event)
        {
            // What cannot be delivered is counted with the event.
            let _ = event.signal();
        }
    }

    /// Sets what is open, everywhere. On return no thread uses another table.
    fn set_table(&self, held: &mut SharedTable, table: DmaTable) {
        *held = Arc::new(table);
        for slot in &self.slots {
            slot.lock().set_table(held);
        }
        if let Some(outer) = &self.outer {
            outer.tell_of_memory();
        }
    }
}

fn first_admin(options: &SoftNvmeOptions) -> Admin {
    Admin {
        features: Features::new(options.volatile_write_cache, options.queues_max),
        events: Events::default(),
        changed: BTreeSet::new(),
    }
}

#[inline(always)]
pub(crate) fn doorbell_at(number: u16, is_completion: bool) -> usize {
    8 * usize::from(number) + 4 * usize::from(is_completion)
}

/// What registers there are take accesses of 4 and 8 bytes, aligned.
fn is_access(offset: u64, len: usize, bar_bytes: u64) -> bool {
    matches!(len, 4 | 8)
        && offset.is_multiple_of(len as u64)
        && offset.checked_add(len as u64).is_some_and(|end| end <= bar_bytes)
}

impl fmt::Debug for SoftNvme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SoftNvme {}", self.options)
    }
}

impl PciDevice for SoftNvme {
    fn kind(&self) -> &'static str {
        "nvme"
    }

    fn config_bytes(&self) -> u32 {
        CONFIG_BYTES as u32
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        let inside = locked(&self.config).read(offset, into);
        if self.is_gone() {
            into.fill(0xFF);
        }
        inside
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool {
        if self.is_gone() {
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
            REGISTERS => IDENTITY.bar0_bytes,
            VECTORS => BAR4_BYTES,
            _ => 0,
        }
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        if !is_access(offset, into.len(), self.bar_bytes(bar)) {
            return false;
        }
        if self.is_gone() {
            into.copy_from_slice(&GONE.to_le_bytes().repeat(2)[..into.len()]);
            return true;
        }
        let len = into.len();
        if bar == VECTORS {
            into.copy_from_slice(&locked(&self.vector_table)[offset as usize..][..len]);
        } else if (DOORBELLS..DOORBELLS + DOORBELL_BYTES).contains(&offset) {
            self.doorbells.bytes().copy_to((offset - DOORBELLS) as usize, into);
        } else {
            let pair = self.register_pair(offset & !7).to_le_bytes();
            into.copy_from_slice(&pair[(offset & 7) as usize..][..len]);
        }
        true
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        if !is_access(offset, bytes.len(), self.bar_bytes(bar)) {
            return false;
        }
        if self.is_gone() {
            return true;
        }
        if bar == VECTORS {
            locked(&self.vector_table)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            return true;
        }
        for (offset, chunk) in (offset..).step_by(4).zip(bytes.as_chunks::<4>().0) {
            let value = u32::from_le_bytes(*chunk);
            if (DOORBELLS..DOORBELLS + DOORBELL_BYTES).contains(&offset) {
                self.doorbells.bytes().store_u32_release((offset - DOORBELLS) as usize, value);
            } else {
                self.write_register(offset, value);
            }
        }
        true
    }

    fn shared_area(&self, bar: u8) -> Option<SharedArea> {
        let maps = bar == REGISTERS && self.options.doorbells != Doorbells::Trapped;
        let (offset_bytes, len) = (DOORBELLS, DOORBELL_BYTES);
        maps.then_some(SharedArea { offset_bytes, len, file_offset_bytes: 0 })
    }

    fn prefers_calls(&self) -> bool {
        self.has_shadow_doorbells()
    }

    fn is_doorbell(&self, bar: u8, offset: u64) -> bool {
        bar == REGISTERS && (DOORBELLS..DOORBELLS + DOORBELL_BYTES).contains(&offset)
    }

    fn listen(&self) -> Listened {
        self.listen_to_doorbells()
    }

    fn shared_file(&self, bar: u8) -> Result<OwnedFd> {
        if self.shared_area(bar).is_none() {
            let context = format!("a soft drive shares nothing of BAR {bar}");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let failed = |cause| Error::os(cause, "sharing the doorbells of a soft drive");
        let mut held = locked(&self.doorbell_file);
        let file = match held.take() {
            Some(file) => file,
            None => self.doorbells.renew().map_err(failed)?,
        };
        self.is_doorbell_file_out.store(true, Ordering::Relaxed);
        held.insert(file).try_clone().map_err(failed)
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        let mut held = self.table();
        let table = held.with(iova, memory)?;
        self.set_table(&mut held, table);
        Ok(())
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()> {
        let mut held = self.table();
        let table = held.without(iova, len)?;
        self.set_table(&mut held, table);
        Ok(())
    }

    fn unmap_all(&self) {
        self.set_table(&mut self.table(), DmaTable::default());
    }

    fn irq_count(&self) -> u32 {
        self.vectors()
    }

    fn set_irq(&self, vector: u32, event: Option<IrqEvent>) -> bool {
        let Some(held) = self.events.get(vector as usize) else { return false };
        let is_set = event.is_some();
        *locked(held) = event;
        if is_set {
            // What was posted while there was no event is told now.
            for slot in &self.slots {
                let mut pair = slot.lock();
                if let Some(queue) = &mut pair.completion
                    && queue.vector.map(u32::from) == Some(vector)
                {
                    queue.tell_again();
                    slot.call_attention();
                }
            }
        }
        true
    }

    fn reset(&self) {
        self.reset_controller();
        *locked(&self.config) = Config::new(&IDENTITY, self.options.queues_max + 1);
        locked(&self.vector_table).fill(0);
    }

    fn end_session(&self) {
        self.unmap_all();
        for event in &self.events {
            *locked(event) = None;
        }
        self.reset();
        // After the reset: what the driver rings until now is in memory that is looked at no more.
        let mut file = locked(&self.doorbell_file);
        if self.is_doorbell_file_out.swap(false, Ordering::Relaxed) {
            *file = self.doorbells.renew().ok();
        }
    }

    #[inline]
    fn step(&self, queue: u16) -> Stepped {
        self.step_queue(queue)
    }

    fn step_all(&self) -> Stepped {
        let queues = 0..self.slots_in_use();
        queues.map(|number| self.step_queue(number)).fold(Stepped::default(), Stepped::and)
    }
}
