//! The registers, memory and interrupts of the controller, as a PCI function.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use qpair_block::Result;
use qpair_memory::DmaMemory;
use qpair_mpi_wire::registers::{
    ATOMIC_REQUEST_DESCRIPTOR_POST, GONE, REQUEST_DESCRIPTOR_POST_HIGH, REQUEST_DESCRIPTOR_POST_LOW,
};
use qpair_pci::model::{BAR4_BYTES, Config, DmaTable, SharedTable, is_access};
use qpair_pci::{IrqEvent, PciDevice, Stepped};

use super::{SoftHba, identity};
use crate::hba::control::Control;
use crate::hba::lane::FAULT_CREDIT;
use crate::hba::strict::NO_HANDLE;

/// A card with `is_later` misreads a register as zero in one of this many reads.
const MISREAD_EVERY: u32 = 16;
/// The BARs of the registers and of the MSI-X table.
const REGISTERS: u8 = 0;
const VECTORS: u8 = 4;

impl SoftHba {
    /// Takes a request descriptor.
    #[inline]
    fn post(&self, word: u64) {
        if self.transcript.is_on() {
            self.transcript.write(format_args!("post {word:x}"));
        }
        if self.strict.is_on() {
            self.check_post(word);
        }
        // Queues that the driver does not use take no requests. A request that names no queue goes
        // to the first one.
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
}

/// No area is mapped into drivers: each store to the request post register is a request, and a page
/// of memory would lose all but the last.
impl PciDevice for SoftHba {
    fn kind(&self) -> &'static str {
        "hba"
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        let inside = self.config.lock().read(offset, into);
        if self.gone.load(Ordering::Acquire) {
            into.fill(0xFF);
        }
        inside
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool {
        if self.gone.load(Ordering::Acquire) {
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
            REGISTERS => identity(self.options.is_later).bar0_bytes,
            VECTORS => BAR4_BYTES,
            _ => 0,
        }
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        if !is_access(offset, into.len(), 4, self.bar_bytes(bar)) {
            return false;
        }
        if self.gone.load(Ordering::Acquire) {
            into.fill(GONE as u8);
            return true;
        }
        if bar == VECTORS {
            self.vectors.read(offset, into);
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
        if !is_access(offset, bytes.len(), 4, self.bar_bytes(bar)) {
            return false;
        }
        if self.gone.load(Ordering::Acquire) {
            return true;
        }
        if bar == VECTORS {
            self.vectors.write(offset, bytes);
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
        self.vectors.count()
    }

    fn set_irq(&self, vector: u32, event: Option<IrqEvent>) -> bool {
        let Some(is_set) = self.vectors.set(vector, event) else { return false };
        if is_set {
            // Requests may have been posted while there was no event; signal them now.
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
        *self.config.lock() = Config::new(&identity, self.options.queues.into());
        self.vectors.reset();
    }

    fn end_session(&self) {
        self.unmap_all();
        self.vectors.remove_events();
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
