//! The controller as a PCI function.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};

use qpair_memory::locks::Mutex;

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::{DmaMemory, Mapping};
use qpair_nvme_wire::registers::{CSTS_READY, DOORBELLS, GONE};
use qpair_pci::{IrqEvent, Listened, PciDevice, SharedArea, Stepped};

use crate::admin_state::AdminState;
use crate::backend::{Backend, NamespaceInfo};
use crate::control::Control;
use crate::features::Features;
use crate::options::{ControllerOptions, Doorbells};
use crate::queue::Pair;
use crate::shadow::Shadow;
use crate::step::Slot;
use qpair_pci::model::{BAR4_BYTES, Config, Identity, VectorTable, is_access};
use qpair_pci::model::{DmaTable, SharedTable};

/// NVM Express 1.4.
pub(crate) const VERSION: u32 = 0x0001_0400;
pub(crate) const FIRMWARE: &str = "1.0";
/// The size of the doorbell area in bytes: two pages, which all drivers that map it expect.
const DOORBELL_BYTES: u64 = 0x2000;
/// A vendor id that is not assigned; the class of mass storage, non-volatile memory, NVM Express;
/// the size of registers and doorbells.
pub(crate) const IDENTITY: Identity = Identity {
    vendor: 0x1234,
    device: 0x5150,
    revision: 1,
    class: [0x02, 0x08, 0x01],
    bar0_bytes: 0x4000,
};
/// The BARs of the function: registers, and the MSI-X table.
const REGISTERS: u8 = 0;
const VECTORS: u8 = 4;

pub struct NvmeController<B: Backend> {
    pub(crate) options: ControllerOptions,
    backend: B,
    /// The namespaces that drivers know.
    namespaces: Mutex<Vec<NamespaceInfo>>,
    /// Number 0: the admin queues.
    slots: Box<[Slot<B::Queue>]>,
    /// One more than the highest number of a queue that was created.
    slots_in_use: AtomicU32,
    doorbells: Arc<Mapping>,
    /// The file behind the doorbells. `None` if it could not be created, which is tried again when
    /// a caller needs it.
    doorbell_file: Mutex<Option<OwnedFd>>,
    /// Whether a caller has the file, and may have mapped it.
    is_doorbell_file_out: AtomicBool,
    control: Mutex<Control>,
    /// CSTS.
    status: AtomicU32,
    gone: AtomicBool,
    /// The table of open memory. The slots have copies, which are changed while this lock is held.
    table: Mutex<SharedTable>,
    admin: Mutex<AdminState>,
    pub(crate) write_through: AtomicBool,
    pub(crate) entry_sizes: AtomicU32,
    config: Mutex<Config>,
    vectors: VectorTable,
}

impl<B: Backend> NvmeController<B> {
    /// Creates a controller with a backend.
    ///
    /// # Errors
    /// `Invalid` for options that are not valid; `NoSpace` or `Limit` if memory is short.
    pub fn new(options: ControllerOptions, backend: B) -> Result<Self> {
        options.check()?;
        let (doorbells, doorbell_file) =
            Mapping::new_file(DOORBELL_BYTES as usize).map_err(|cause| {
                Error::os(cause, "allocating memory for the doorbells of an NVMe controller")
            })?;
        let pairs = usize::from(options.queues_max) + 1;
        Ok(Self {
            namespaces: Mutex::new(backend.namespaces()),
            backend,
            slots: (0..pairs).map(|_| Slot::default()).collect(),
            slots_in_use: AtomicU32::new(1),
            doorbells,
            doorbell_file: Mutex::new(Some(doorbell_file)),
            is_doorbell_file_out: AtomicBool::new(false),
            control: Mutex::default(),
            status: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            table: Mutex::default(),
            admin: Mutex::new(AdminState::new(&options)),
            write_through: AtomicBool::new(!options.volatile_write_cache),
            entry_sizes: AtomicU32::new(0),
            config: Mutex::new(Config::new(&IDENTITY, options.queues_max + 1)),
            vectors: VectorTable::new(options.queues_max + 1),
            options,
        })
    }

    #[inline]
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Compares the backend's namespaces with those that drivers know, and notifies a driver that
    /// has enabled the event.
    pub fn namespaces_changed(&self) {
        let now = self.backend.namespaces();
        let before = std::mem::replace(&mut *self.namespaces.lock(), now.clone());
        if self.status() & CSTS_READY == 0 {
            return;
        }
        if self.admin().namespaces_changed(&before, &now) {
            self.call_attention(0);
        }
    }

    /// Removes the function, as if it were unplugged. Every register then reads as ones, doorbells
    /// do nothing, and memory is not accessed any more.
    pub fn remove(&self) {
        self.gone.store(true, Ordering::Release);
        self.disable();
        self.backend.removed();
    }

    /// Plugs the function in again after [`Self::remove`]. Its state is that after power on.
    pub fn insert(&self) {
        self.gone.store(false, Ordering::Release);
        self.reset();
    }

    pub(crate) fn has_shadow_doorbells(&self) -> bool {
        self.options.doorbells == Doorbells::Shadow
    }

    /// Whether a driver of another process may ring doorbells in memory that it has mapped. These
    /// wake no thread.
    #[must_use]
    pub fn are_doorbells_mapped(&self) -> bool {
        self.is_doorbell_file_out.load(Ordering::Relaxed)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Returns the largest transfer in bytes.
    #[inline]
    pub(crate) fn transfer_bytes_max(&self) -> u32 {
        self.options.transfer_bytes_max()
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock()
    }

    /// Locks the table of open memory. Nothing is opened or closed while it is held.
    pub(crate) fn table(&self) -> MutexGuard<'_, SharedTable> {
        self.table.lock()
    }

    pub(crate) fn admin(&self) -> MutexGuard<'_, AdminState> {
        self.admin.lock()
    }

    pub(crate) fn first_admin(&self) -> AdminState {
        AdminState::new(&self.options)
    }

    pub(crate) fn first_features(&self) -> Features {
        AdminState::new(&self.options).features
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

    /// Returns the number of queue pairs, including the admin queues.
    pub(crate) fn pairs(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn slot(&self, number: u16) -> Option<&Slot<B::Queue>> {
        self.slots.get(usize::from(number))
    }

    pub(crate) fn lock_pair(&self, number: usize) -> Option<MutexGuard<'_, Pair<B::Queue>>> {
        self.slots.get(number).map(Slot::lock)
    }

    pub(crate) fn call_attention(&self, number: usize) {
        if let Some(slot) = self.slots.get(number) {
            slot.call_attention();
        }
    }

    pub(crate) fn use_slot(&self, number: u16) {
        self.slots_in_use.fetch_max(u32::from(number) + 1, Ordering::Relaxed);
    }

    pub(crate) fn slots_in_use(&self) -> u16 {
        self.slots_in_use.load(Ordering::Relaxed) as u16
    }

    pub(crate) fn forget_queues(&self) {
        self.slots_in_use.store(1, Ordering::Relaxed);
    }

    /// Returns the value of a doorbell: the tail of a submission queue, or the head of a completion
    /// queue. Reads the driver's memory if the driver has its doorbells there.
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

    /// Returns the value of a doorbell of the register page.
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

    pub(crate) fn vectors(&self) -> u32 {
        self.vectors.count()
    }

    #[cold]
    pub(crate) fn signal(&self, vector: u16) {
        self.vectors.signal(vector);
    }

    /// Sets the table of open memory in all slots. On return no thread uses an earlier table.
    fn set_table(&self, held: &mut SharedTable, table: DmaTable) {
        *held = Arc::new(table);
        for slot in &self.slots {
            slot.lock().set_table(held);
        }
        self.backend.memory_changed(held);
    }
}

#[inline(always)]
pub(crate) fn doorbell_at(number: u16, is_completion: bool) -> usize {
    8 * usize::from(number) + 4 * usize::from(is_completion)
}

impl<B: Backend> fmt::Debug for NvmeController<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, backend, .. } = self;
        f.debug_struct("NvmeController")
            .field("options", options)
            .field("backend", backend)
            .finish()
    }
}

impl<B: Backend> PciDevice for NvmeController<B> {
    fn kind(&self) -> &'static str {
        "nvme"
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        let inside = self.config.lock().read(offset, into);
        if self.is_gone() {
            into.fill(0xFF);
        }
        inside
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool {
        if self.is_gone() {
            return true;
        }
        let written = self.config.lock().write(offset, bytes);
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
        if !is_access(offset, into.len(), into.len() as u64, self.bar_bytes(bar)) {
            return false;
        }
        if self.is_gone() {
            into.copy_from_slice(&GONE.to_le_bytes().repeat(2)[..into.len()]);
            return true;
        }
        let len = into.len();
        if bar == VECTORS {
            self.vectors.read(offset, into);
        } else if (DOORBELLS..DOORBELLS + DOORBELL_BYTES).contains(&offset) {
            self.doorbells.bytes().copy_to((offset - DOORBELLS) as usize, into);
        } else {
            let pair = self.register_pair(offset & !7).to_le_bytes();
            into.copy_from_slice(&pair[(offset & 7) as usize..][..len]);
        }
        true
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        if !is_access(offset, bytes.len(), bytes.len() as u64, self.bar_bytes(bar)) {
            return false;
        }
        if self.is_gone() {
            return true;
        }
        if bar == VECTORS {
            self.vectors.write(offset, bytes);
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
            let context = format!("an NVMe controller cannot share BAR {bar}");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let failed = |cause| Error::os(cause, "sharing the doorbells of an NVMe controller");
        let mut held = self.doorbell_file.lock();
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
        let Some(is_set) = self.vectors.set(vector, event) else { return false };
        if is_set {
            // Notify the driver of entries that were posted while there was no event.
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
        *self.config.lock() = Config::new(&IDENTITY, self.options.queues_max + 1);
        self.vectors.reset();
    }

    fn end_session(&self) {
        self.unmap_all();
        self.vectors.remove_events();
        self.reset();
        // After the reset: what the driver rings until now is in memory that is looked at no more.
        let mut file = self.doorbell_file.lock();
        if self.is_doorbell_file_out.swap(false, Ordering::Relaxed) {
            *file = self.doorbells.renew().ok();
        }
    }

    #[inline]
    fn step(&self, queue: u16) -> Stepped {
        self.step_queue(queue)
    }

    fn step_all(&self) -> Stepped {
        self.step_queue(0).and(self.step_io())
    }
}
