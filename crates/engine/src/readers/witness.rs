//! A reader's side: whether the checkpoint that it sees is still on the device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use qpair_block::BlockDevice;
use qpair_format::image::{Image, Record};
use qpair_format::{Error, Result};
use qpair_memory::locks::Mutex;

use super::{Marks, RecordReader};

#[derive(Debug)]
pub(crate) struct Witness {
    marks: Option<Marks>,
    /// The device behind the pages.
    device: Arc<dyn BlockDevice>,
    page_size: usize,
    /// The bytes of a page that are not its tag.
    page_bytes: usize,
    store_id: [u8; 16],
    /// The record of the checkpoint; `None` before one is chosen.
    seen: Mutex<Option<Record>>,
    /// The description of the checkpoint, whose place on the device is used again early.
    image: OnceLock<Image>,
    lost: AtomicBool,
}

impl Witness {
    pub(crate) fn new(
        marks: Option<Marks>,
        device: Arc<dyn BlockDevice>,
        (page_size, page_bytes): (usize, usize),
        store_id: [u8; 16],
    ) -> Self {
        let (seen, image, lost) = (Mutex::default(), OnceLock::new(), AtomicBool::new(false));
        Self { marks, device, page_size, page_bytes, store_id, seen, image, lost }
    }

    pub(crate) fn keep(&self, image: Image) {
        let _ = self.image.set(image);
    }

    pub(crate) fn image(&self) -> Option<&Image> {
        self.image.get()
    }

    /// Chooses the checkpoint of this record, and announces it. It must be checked afterwards.
    pub(crate) fn see(&self, record: Record) {
        let before = self.seen.lock().replace(record);
        if let Some(marks) = &self.marks {
            if let Some(before) = before {
                marks.withdraw(before.sequence);
            }
            marks.announce(record.sequence);
        }
        self.lost.store(false, Ordering::Relaxed);
    }

    /// Checks that everything that was read before this call was the checkpoint's. `records` is
    /// opened if it is needed.
    ///
    /// # Errors
    /// `SnapshotLost`; the device's error if it does not tell.
    pub(crate) fn check(&self, records: &mut Option<RecordReader>) -> Result<()> {
        let Some(seen) = *self.seen.lock() else { return Ok(()) };
        if self.lost.load(Ordering::Relaxed) {
            return Err(Error::reader_lost());
        }
        if self.marks.as_ref().is_some_and(|marks| marks.is_granted(seen.sequence)) {
            return Ok(());
        }
        // No writer is alive, or none that knows of readers, or it gave the checkpoint up. The
        // pages of the newest checkpoint are not used again by any writer.
        if self.newest(records)? == Some(seen) {
            return Ok(());
        }
        self.lost.store(true, Ordering::Relaxed);
        Err(Error::reader_lost())
    }

    /// Whether there is a checkpoint after the one that this reader sees.
    ///
    /// # Errors
    /// The device's error.
    pub(crate) fn is_outdated(&self) -> Result<bool> {
        let Some(seen) = *self.seen.lock() else { return Ok(false) };
        if let Some(marks) = &self.marks {
            let is_newer = marks.is_newer_granted(seen.sequence);
            if is_newer || marks.is_granted(seen.sequence) {
                return Ok(is_newer);
            }
        }
        Ok(self.newest(&mut None)?.is_some_and(|newest| newest != seen))
    }

    pub(crate) fn newest(&self, records: &mut Option<RecordReader>) -> Result<Option<Record>> {
        let reader = match records {
            Some(reader) => reader,
            None => records.insert(RecordReader::open(self.device.as_ref())?),
        };
        reader.newest(self.store_id, self.page_size, self.page_bytes)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if let (Some(marks), Some(seen)) = (&self.marks, self.seen.get_mut()) {
            marks.withdraw(seen.sequence);
        }
    }
}
