//! The controller's registers (Base §3.1.3), and the effects of writing them.

use std::sync::atomic::Ordering;

use qpair_nvme_wire::PAGE_BYTES;
use qpair_nvme_wire::registers::{
    ACQ, AQA, ASQ, CAP, CC, CC_ENABLE, CC_SHUTDOWN_MASK, CSTS, CSTS_FATAL, CSTS_READY,
    CSTS_SHUTDOWN_COMPLETE, CSTS_SHUTDOWN_MASK, CSTS_SHUTDOWN_OCCURRING, Capabilities, INTMC,
    INTMS, VS,
};

use crate::backend::{Backend, Ticket};
use crate::device::{NvmeController, VERSION};
use crate::queue::{CompletionQueue, ENTRY_BYTES, SubmissionQueue};
use crate::ring::Ring;

/// The longest time until the controller is ready, in milliseconds, as it reports it. It is ready
/// at once, but some drivers take 0 as no limit.
const READY_TIMEOUT_MS: u32 = 10_000;
/// The bits of CC for command set, page size and arbitration: all must be 0.
const CC_CHOICES_MASK: u32 = 0x3FF0;
/// The sizes of entries: 64 and 16 bytes.
const CC_ENTRY_SIZES_MASK: u32 = 0xFF << 16;
const CC_ENTRY_SIZES: u32 = 6 << 16 | 4 << 20;

/// Registers that keep the values written to them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Control {
    cc: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    /// The masks of pin interrupts, which the controller does not have.
    masked: u32,
}

impl<B: Backend> NvmeController<B> {
    /// Returns the eight bytes of registers at `offset`, a multiple of 8.
    pub(crate) fn register_pair(&self, offset: u64) -> u64 {
        let control = *self.control();
        let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        match offset {
            CAP => Capabilities::of(self.options.queue_entries_max, READY_TIMEOUT_MS).0,
            VS => both(VERSION, control.masked),
            INTMC => both(control.masked, control.cc),
            0x18 => both(0, self.status()),
            0x20 => both(0, control.aqa),
            ASQ => control.asq,
            ACQ => control.acq,
            _ => 0,
        }
    }

    pub(crate) fn write_register(&self, offset: u64, value: u32) {
        let mut control = self.control();
        let low = |old: u64| old & !0xFFFF_FFFF | u64::from(value);
        let high = |old: u64| old & 0xFFFF_FFFF | u64::from(value) << 32;
        const ASQ_HIGH: u64 = ASQ + 4;
        const ACQ_HIGH: u64 = ACQ + 4;
        match offset {
            INTMS => control.masked |= value,
            INTMC => control.masked &= !value,
            CC => self.configure(&mut control, value),
            AQA => control.aqa = value & 0x0FFF_0FFF,
            ASQ => control.asq = low(control.asq) & !0xFFF,
            ASQ_HIGH => control.asq = high(control.asq),
            ACQ => control.acq = low(control.acq) & !0xFFF,
            ACQ_HIGH => control.acq = high(control.acq),
            // The register is read-only or reserved, or belongs to a property that the controller
            // does not have.
            _ => {}
        }
    }

    fn configure(&self, control: &mut Control, value: u32) {
        let before = std::mem::replace(&mut control.cc, value);
        self.entry_sizes.store(value & CC_ENTRY_SIZES_MASK, Ordering::Relaxed);
        match (before & CC_ENABLE != 0, value & CC_ENABLE != 0) {
            (false, true) => self.enable(control),
            (true, false) => self.disable(),
            _ => {}
        }
        let shuts_down = |cc: u32| cc & CC_SHUTDOWN_MASK != 0;
        if shuts_down(value) && !shuts_down(before) {
            // Flush the cache before the status says that it was flushed. No driver is left to
            // receive an error.
            let progress = match self.backend().flush(Ticket::SHUTDOWN) {
                Some(_) => CSTS_SHUTDOWN_COMPLETE,
                None => CSTS_SHUTDOWN_OCCURRING,
            };
            self.set_status(CSTS_SHUTDOWN_MASK, progress);
        } else if !shuts_down(value) {
            self.set_status(CSTS_SHUTDOWN_MASK, 0);
        }
    }

    /// Enables the controller: sets its status to ready, or to fatal if its settings are not valid.
    fn enable(&self, control: &Control) {
        let entries = |field: u32| (field & 0xFFF) + 1;
        let (sq_entries, cq_entries) = (entries(control.aqa), entries(control.aqa >> 16));
        let mut submission = Ring::new(control.asq, sq_entries, ENTRY_BYTES.0);
        let mut completion = Ring::new(control.acq, cq_entries, ENTRY_BYTES.1);
        // Held until the queues are set up, so that memory is opened or closed before or after
        // that.
        let table = self.table();
        let sizes = control.cc & CC_ENTRY_SIZES_MASK;
        let can_be = control.cc & CC_CHOICES_MASK == 0
            && (sizes == 0 || sizes == CC_ENTRY_SIZES)
            && sq_entries >= 2
            && cq_entries >= 2
            && control.asq.is_multiple_of(PAGE_BYTES as u64)
            && control.acq.is_multiple_of(PAGE_BYTES as u64)
            && submission.resolve(&table)
            && completion.resolve(&table);
        if !can_be {
            self.set_status(CSTS_FATAL, CSTS_FATAL);
            return;
        }
        self.zero_doorbells();
        if let Some(mut pair) = self.lock_pair(0) {
            pair.side.submission = Some(SubmissionQueue::new(submission, 0));
            // The admin queues interrupt by vector 0.
            pair.completion = Some(CompletionQueue::new(completion, Some(0)));
        }
        self.call_attention(0);
        self.set_status(CSTS_READY, CSTS_READY);
    }

    /// Deletes all queues. On return no step accesses the driver's memory.
    pub(crate) fn disable(&self) {
        self.set_status(u32::MAX, 0);
        for number in 0..self.pairs() {
            if let Some(mut pair) = self.lock_pair(number) {
                // The driver knows that these commands have ended.
                drop(self.backend().withdraw(&mut pair.side.state.own));
                pair.clear();
            }
            if let Some(slot) = self.slot(number as u16) {
                slot.set_shadowed(false);
            }
        }
        let mut admin = self.admin();
        *admin = self.first_admin();
        let is_cache_on = admin.features.is_cache_on();
        self.write_through.store(!is_cache_on, Ordering::Relaxed);
        drop(admin);
        self.zero_doorbells();
        self.forget_queues();
    }

    pub(crate) fn reset_controller(&self) {
        let mut control = self.control();
        *control = Control::default();
        self.disable();
    }

    /// Whether the driver has set the sizes of I/O queues' entries to the right values.
    pub(crate) fn entry_sizes_are_set(&self) -> bool {
        self.entry_sizes.load(Ordering::Relaxed) == CC_ENTRY_SIZES
    }
}

/// CSTS is in the upper half of its eight bytes.
const _: () = assert!(CSTS == 0x1C && AQA == 0x24);
