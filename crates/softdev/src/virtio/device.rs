//! The soft SCSI host as a PCI function.

use qpair_memory::locks::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use qpair_block::Result;
use qpair_memory::DmaMemory;
use qpair_pci::{PciDevice, Stepped};
use qpair_scsi_unit::virtio::EventList;
use qpair_scsi_wire::sense::Code;
use qpair_virtio::pci::{
    Capability, KIND_COMMON, KIND_DEVICE, KIND_ISR, KIND_NOTIFY, VENDOR, common,
};
use qpair_virtio::ring::Broken;
use qpair_virtio::scsi::{
    self, CONTROL_QUEUE, EVENT_QUEUE, Event, PCI_DEVICE, REQUEST_QUEUE, TARGETS_MAX, TASK_BYTES,
    UNITS_MAX, address, event,
};
use qpair_virtio::{STATUS_DRIVER_OK, STATUS_FEATURES_OK, STATUS_NEEDS_RESET};

use super::faults::{VirtioFault, VirtioRule};
use super::options::SoftVirtioScsiOptions;
use super::queue::Queue;
use super::registers::Registers;
use crate::hba::Faults;
use crate::scsi::Unit;
use qpair_pci::model::{BAR4_BYTES, Config, Identity};
use qpair_pci::model::{DmaTable, SharedTable};

/// BAR 0 has the common configuration, the interrupt status, the device configuration, and the
/// notifications.
const IDENTITY: Identity = Identity {
    vendor: VENDOR,
    device: PCI_DEVICE,
    revision: 1,
    class: [0x00, 0x00, 0x01],
    bar0_bytes: 0x4000,
};
const REGISTERS: u8 = 0;
const VECTORS: u8 = 4;
const ISR_AT: u32 = 0x1000;
const DEVICE_AT: u32 = 0x2000;
const NOTIFY_AT: u32 = 0x3000;
const NOTIFY_STRIDE: u32 = 4;

pub(super) struct Slot {
    queue: Mutex<Queue>,
    /// Whether the queue has work: the driver has notified it, or there is an event to deliver.
    attention: AtomicBool,
}

impl Slot {
    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    pub(super) fn call_attention(&self) {
        self.attention.store(true, Ordering::Release);
    }
}

#[derive(Debug)]
struct Disk {
    unit: Arc<Unit>,
    is_plugged: AtomicBool,
}

/// A soft virtio SCSI host.
pub struct SoftVirtioScsi {
    options: SoftVirtioScsiOptions,
    disks: Vec<Disk>,
    registers: Mutex<Registers>,
    /// Whether the driver has started the device, and the device has not stopped.
    is_running: AtomicBool,
    slots: Box<[Slot]>,
    table: Mutex<SharedTable>,
    config: Mutex<Config>,
    events: Mutex<EventList>,
    faults: Faults<VirtioFault>,
}

fn config() -> Config {
    let part = |kind, offset, len, multiplier| {
        Capability { kind, bar: REGISTERS, offset, len, multiplier }.encode()
    };
    let mut config = Config::new(&IDENTITY, 1);
    config.append(&[
        part(KIND_COMMON, 0, common::BYTES as u32, 0),
        part(KIND_ISR, ISR_AT, 1, 0),
        part(KIND_DEVICE, DEVICE_AT, scsi::Config::BYTES as u32, 0),
        part(KIND_NOTIFY, NOTIFY_AT, 0x1000, NOTIFY_STRIDE),
    ]);
    config
}

impl SoftVirtioScsi {
    /// Creates a host.
    ///
    /// # Errors
    /// `Invalid` for options that make no sense; `NoSpace` or `Limit` if memory is short; and the
    /// errors of the file system for a medium in a file.
    pub fn new(mut options: SoftVirtioScsiOptions) -> Result<Arc<Self>> {
        options.check()?;
        if options.serial.is_empty() {
            options.serial = format!("QV{:012X}", fastrand::u64(..1 << 48));
        }
        let mut disks = Vec::new();
        for (disk, number) in options.disks.iter().zip(0u32..) {
            let has_cache = options.volatile_write_cache;
            let unit = Unit::open(disk, &options.serial, number, has_cache)?;
            disks.push(Disk { unit: Arc::new(unit), is_plugged: AtomicBool::new(true) });
        }
        let queues = REQUEST_QUEUE + options.queues;
        let slot = || Slot { queue: Mutex::default(), attention: AtomicBool::new(false) };
        let registers = Registers::new(queues, options.queue_entries, options.has_indirect);
        Ok(Arc::new(Self {
            disks,
            registers: Mutex::new(registers),
            is_running: AtomicBool::new(false),
            slots: (0..queues).map(|_| slot()).collect(),
            table: Mutex::default(),
            config: Mutex::new(config()),
            events: Mutex::default(),
            faults: Faults::default(),
            options,
        }))
    }

    /// Replaces the rules of fault injection. They apply from the next command that reads or writes
    /// blocks.
    pub fn set_faults(&self, rules: Vec<VirtioRule>) {
        self.faults.set(rules);
    }

    /// Sets whether task management requests are accepted and never answered.
    pub fn ignore_tasks(&self, ignore: bool) {
        self.faults.ignore_tasks(ignore);
    }

    /// Removes disk `target`, and notifies the driver.
    pub fn pull(&self, target: u8) {
        self.plug(target, false, event::REMOVED);
    }

    /// Inserts disk `target`, and notifies the driver.
    pub fn plug_in(&self, target: u8) {
        self.plug(target, true, event::RESCAN);
    }

    fn plug(&self, target: u8, is_in: bool, reason: u32) {
        let Some(disk) = self.disks.get(usize::from(target)) else { return };
        if disk.is_plugged.swap(is_in, Ordering::AcqRel) != is_in {
            let kind = event::TRANSPORT_RESET;
            self.tell(Event { kind, address: address(target, 0), reason });
        }
    }

    pub(super) fn faults(&self) -> &Faults<VirtioFault> {
        &self.faults
    }

    pub(super) fn events(&self) -> MutexGuard<'_, EventList> {
        self.events.lock()
    }

    pub(super) fn queues(&self) -> u16 {
        self.slots.len() as u16
    }

    pub(super) fn slot(&self, queue: u16) -> Option<&Slot> {
        self.slots.get(usize::from(queue))
    }

    pub(super) fn disk(&self, target: u8) -> Option<&Unit> {
        let disk = self.disks.get(usize::from(target))?;
        disk.is_plugged.load(Ordering::Acquire).then_some(&*disk.unit)
    }

    /// Stops the device until the driver resets it.
    pub(super) fn break_down(&self) {
        self.is_running.store(false, Ordering::Release);
    }

    fn device_config(&self) -> [u8; scsi::Config::BYTES] {
        scsi::Config::new(self.options.queues, TARGETS_MAX - 1, UNITS_MAX - 1).encode()
    }

    /// Handles a status that the driver has written.
    fn set_status(&self, status: u8) {
        let mut registers = self.registers.lock();
        if status == 0 {
            self.is_running.store(false, Ordering::Release);
            for slot in &self.slots {
                slot.lock().forget();
                slot.attention.store(false, Ordering::Relaxed);
            }
            registers.reset();
            self.disks.iter().for_each(|disk| disk.unit.reset(Code::NEXUS_LOSS));
            return;
        }
        let is_sound = registers.are_features_sound();
        registers.status = if is_sound { status } else { status & !STATUS_FEATURES_OK };
        let starts = STATUS_FEATURES_OK | STATUS_DRIVER_OK;
        if registers.status & starts == starts && !self.is_running.load(Ordering::Acquire) {
            let has_indirect = registers.has_indirect();
            let mut all_open = true;
            for (slot, registers) in self.slots.iter().zip(&registers.queues) {
                if registers.is_enabled {
                    all_open &= slot.lock().begin(registers, has_indirect);
                }
            }
            self.is_running.store(all_open, Ordering::Release);
        }
    }

    fn status(&self, registers: &Registers) -> u8 {
        let is_down =
            registers.status & STATUS_DRIVER_OK != 0 && !self.is_running.load(Ordering::Acquire);
        registers.status | if is_down { STATUS_NEEDS_RESET } else { 0 }
    }

    fn step_queue(&self, number: u16, queue: &mut Queue) -> std::result::Result<bool, Broken> {
        let mut progress = false;
        if number == EVENT_QUEUE {
            while !self.events().is_empty()
                && let Some((head, memory)) = queue.take()?
            {
                if let Some(event) = self.events().pop() {
                    let len = queue.write(&memory.written, &event.encode());
                    queue.give(head.into(), len);
                }
            }
            return Ok(false);
        }
        while self.is_running.load(Ordering::Acquire)
            && let Some((head, memory)) = queue.take()?
        {
            progress = true;
            if number != CONTROL_QUEUE {
                self.run_command(queue, head, memory);
                continue;
            }
            let mut task = [0; TASK_BYTES];
            if !queue.read(&memory.read, &mut task) {
                return Err(Broken);
            }
            if let Some(answer) = self.run_task(&task) {
                let len = queue.write(&memory.written, &[answer]);
                queue.give(head.into(), len);
            }
        }
        Ok(progress)
    }

    fn is_access(&self, bar: u8, offset: u64, len: usize) -> bool {
        let end = offset.checked_add(len as u64);
        (1..=8).contains(&len) && end.is_some_and(|end| end <= self.bar_bytes(bar))
    }

    fn set_table(&self, held: &mut SharedTable, table: DmaTable) {
        *held = Arc::new(table);
        let registers = self.registers.lock();
        for (slot, registers) in self.slots.iter().zip(&registers.queues) {
            slot.lock().set_table(held, registers);
        }
    }
}

impl fmt::Debug for SoftVirtioScsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.options;
        write!(f, "SoftVirtioScsi {} with {} disks", options.serial, options.disks.len())
    }
}

impl PciDevice for SoftVirtioScsi {
    fn kind(&self) -> &'static str {
        "virtio-scsi"
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        self.config.lock().read(offset, into)
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool {
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
        if !self.is_access(bar, offset, into.len()) {
            return false;
        }
        into.fill(0);
        if bar != REGISTERS {
            return true;
        }
        if let Some(at) = offset.checked_sub(DEVICE_AT.into()) {
            let config = self.device_config();
            let at = at as usize;
            if let Some(bytes) = config.get(at..at + into.len()) {
                into.copy_from_slice(bytes);
            }
            return true;
        }
        if offset >= common::BYTES {
            return true;
        }
        let registers = self.registers.lock();
        let value = match offset {
            common::STATUS => Some(self.status(&registers).into()),
            _ => registers.read(offset, into.len()),
        };
        let Some(value) = value else { return false };
        let len = into.len();
        into.copy_from_slice(&u64::to_le_bytes(value)[..len]);
        true
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        if !self.is_access(bar, offset, bytes.len()) {
            return false;
        }
        if bar != REGISTERS {
            return true;
        }
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let value = u64::from_le_bytes(wide);
        if offset >= NOTIFY_AT.into() {
            if let Some(slot) = self.slot(value as u16) {
                slot.call_attention();
            }
            return true;
        }
        match offset {
            common::STATUS => self.set_status(value as u8),
            ..common::BYTES => return self.registers.lock().write(offset, bytes.len(), value),
            _ => {}
        }
        true
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        let mut held = self.table.lock();
        let table = held.with(iova, memory)?;
        self.set_table(&mut held, table);
        Ok(())
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()> {
        let mut held = self.table.lock();
        let table = held.without(iova, len)?;
        self.set_table(&mut held, table);
        Ok(())
    }

    fn unmap_all(&self) {
        self.set_table(&mut self.table.lock(), DmaTable::default());
    }

    fn reset(&self) {
        self.set_status(0);
        *self.config.lock() = config();
    }

    fn step(&self, queue: u16) -> Stepped {
        let Some(slot) = self.slot(queue) else { return Stepped::default() };
        let is_called = slot.attention.load(Ordering::Acquire);
        if !is_called || !self.is_running.load(Ordering::Acquire) {
            return Stepped::default();
        }
        slot.attention.store(false, Ordering::Relaxed);
        let mut held = slot.lock();
        let done = self.step_queue(queue, &mut held);
        drop(held);
        if done.is_err() {
            self.break_down();
        }
        if queue == EVENT_QUEUE && !self.events().is_empty() {
            slot.call_attention();
        }
        Stepped { progress: done.unwrap_or(true), due: None }
    }

    fn step_all(&self) -> Stepped {
        (0..self.queues()).map(|queue| self.step(queue)).fold(Stepped::default(), Stepped::and)
    }
}
