//! The driver's queues for replies: the index up to which it has read, and the frames that it
//! gives.

use std::sync::atomic::Ordering;

use qpair_mpi_wire::init::Init;
use qpair_pci::model::{DmaTable, LastHit};

use super::SoftHba;

/// The queue of free reply frames, which the driver fills.
#[derive(Debug, Default)]
pub(super) struct ReplyFree {
    at: u64,
    entries: u32,
    index: u32,
}

impl SoftHba {
    pub(crate) fn set_reply_index(&self, queue: u8, index: u32) {
        if self.strict.is_on() {
            self.check_reply_index(queue, index, self.slot(queue.into()));
        }
        if let Some(slot) = self.slot(queue.into()) {
            slot.host_index.store(index, Ordering::Release);
        }
    }

    pub(crate) fn set_reply_free_index(&self, index: u32) {
        let entries = self.reply_free.lock().entries;
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
        let is_open = init.reply_free.is_multiple_of(4)
            && table.covers(init.reply_free, u64::from(entries) * 4, false);
        is_open.then_some(())?;
        *self.reply_free.lock() = ReplyFree { at: init.reply_free, entries, index: 0 };
        self.reply_free_host.store(0, Ordering::Relaxed);
        Some(())
    }

    /// Takes a free reply frame, and returns the low half of its address.
    pub(crate) fn take_reply_frame(&self, table: &DmaTable, _init: &Init) -> Option<u32> {
        let mut free = self.reply_free.lock();
        if free.entries == 0 || free.index == self.reply_free_host.load(Ordering::Acquire) {
            return None;
        }
        let at = free.at + u64::from(free.index) * 4;
        let (bytes, offset) = table.bytes(table.find(at, 4, &mut LastHit::default())?)?;
        let low = bytes.load_u32(offset);
        self.check_reply_frame(low);
        if self.transcript.is_on() {
            self.transcript.write(format_args!("free {at:x} {low:x}"));
        }
        free.index = if free.index + 1 >= free.entries { 0 } else { free.index + 1 };
        Some(low)
    }
}
