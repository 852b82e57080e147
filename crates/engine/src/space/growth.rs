//! Makes the device larger.

use std::sync::atomic::Ordering;

use qpair_block::BlockDevice;
use qpair_format::place::PAGES_MAX;
use qpair_format::{Error, ErrorKind, Result};

use super::inner::Inner;
use super::{Purpose, Space};

/// The minimum number of bytes by which the device grows at once. Up to the maximum, it grows by a
/// 16th of its size. The maximum is small, because a worker waits meanwhile.
const GROWTH_BYTES_MIN: u64 = 1 << 20;
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// The maximum number of bytes by which the device grows for pages in a row, if enough single pages
/// are free. The minimum is [`GROWTH_BYTES_MIN`]; between the two it grows by a 64th of its size.
const ROW_GROWTH_BYTES_MAX: u64 = 64 << 20;

impl Space {
    /// Grows the device, so that `free` pages are free.
    pub(super) fn grow(&self, inner: &mut Inner, free: u64, purpose: Purpose) -> Result<()> {
        let needed_bytes = (inner.taken + free) * self.page_size;
        let size_bytes = self.device.size_bytes();
        if needed_bytes > size_bytes {
            // Pages that cannot leave memory are tried again all the time, and asking the system
            // each time would cost much. A request for new pages asks again, because there may be
            // room by now.
            if matches!(purpose, Purpose::Eviction | Purpose::EvictionAgain)
                && inner.refused_bytes.is_some_and(|refused| needed_bytes >= refused)
            {
                return Err(no_space(&*self.device, needed_bytes));
            }
            if let Err(error) = self.grow_device(needed_bytes, size_bytes + step(size_bytes)) {
                inner.refused_bytes = Some(needed_bytes);
                // The error names the reserve, because the free pages alone look like enough.
                let there = inner.free(self.capacity());
                return Err(Error::block(
                    error,
                    format!(
                        "growing the store to {needed_bytes} bytes ({there} pages free, {free} required as \
                         reserve for dirty pages)"
                    ),
                ));
            }
            inner.refused_bytes = None;
        }
        self.note_capacity();
        Ok(())
    }

    /// Notes whether less than one step of growth is left beside `kept` pages, so that the device
    /// should grow.
    pub(super) fn note_low(&self, inner: &Inner, kept: u64) {
        let ahead = step(self.capacity() * self.page_size) / self.page_size;
        if inner.free(self.capacity()) < kept + ahead && inner.refused_bytes.is_none() {
            self.low.store(true, Ordering::Relaxed);
        }
    }

    /// Grows the device if that will soon be needed. Growing takes long on some file systems, and
    /// an allocation that needs it at once holds the allocator's lock meanwhile, and perhaps
    /// latches. A worker calls this between two turns, with neither.
    #[inline]
    pub(crate) fn grow_ahead(&self) {
        if self.low.load(Ordering::Relaxed) && self.low.swap(false, Ordering::Relaxed) {
            let Some(_alone) = self.resizing.try_lock() else { return };
            let size_bytes = self.device.size_bytes();
            let wanted_bytes = size_bytes + step(size_bytes);
            let grown = self.device.grow(wanted_bytes);
            let mut inner = self.inner.lock();
            match grown {
                Ok(()) => self.note_capacity(),
                // An allocation that needs more asks again, and reports the error.
                Err(_) => inner.refused_bytes = Some(wanted_bytes),
            }
        }
    }

    /// Grows the device by at least `count` pages.
    pub(super) fn grow_for_row(&self, count: u64) -> Result<()> {
        let needed_bytes = (self.capacity() + count) * self.page_size;
        let size_bytes = self.device.size_bytes();
        if needed_bytes > size_bytes {
            let step = (size_bytes / 64).clamp(GROWTH_BYTES_MIN, ROW_GROWTH_BYTES_MAX);
            self.grow_device(needed_bytes, size_bytes + step).map_err(|error| {
                let context = format!(
                    "growing the store to {needed_bytes} bytes (no {count} free pages are in a row)"
                );
                Error::block(error, context)
            })?;
        }
        self.note_capacity();
        Ok(())
    }

    /// Grows the device to `wanted_bytes`, or to the size that is needed.
    pub(super) fn grow_device(
        &self,
        needed_bytes: u64,
        wanted_bytes: u64,
    ) -> qpair_block::Result<()> {
        let wanted_bytes = wanted_bytes.max(needed_bytes);
        self.device.grow(wanted_bytes).or_else(|error| {
            if wanted_bytes > needed_bytes { self.device.grow(needed_bytes) } else { Err(error) }
        })
    }

    pub(super) fn note_capacity(&self) {
        let capacity = (self.device.size_bytes() / self.page_size).min(PAGES_MAX);
        if capacity > self.capacity() {
            self.capacity.store(capacity, Ordering::Relaxed);
        }
    }
}

/// Returns the number of bytes by which a device of this size grows.
fn step(size_bytes: u64) -> u64 {
    (size_bytes / 16).clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX)
}

fn no_space(device: &dyn BlockDevice, needed_bytes: u64) -> Error {
    Error::with_hint(
        ErrorKind::NoSpace,
        format!("{} cannot grow to {needed_bytes} bytes", device.info().name),
        "make room on the device",
    )
}
