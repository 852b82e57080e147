//! The device's side.

use std::sync::atomic::{Ordering, fence};

use super::{Areas, Broken, ENTRIES_AT, INDEX_AT, Layout, QUIET, USED_BYTES};

/// A ring, as its device has it.
#[derive(Debug)]
pub struct DeviceRing {
    size: u16,
    taken: u16,
    used: u16,
}

impl DeviceRing {
    /// A ring from its beginning.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { size: layout.size, taken: 0, used: 0 }
    }

    /// The head of the next chain that the driver has made available.
    ///
    /// # Errors
    /// There is more than the ring has, or a head outside of the table.
    #[inline]
    pub fn take(&mut self, areas: Areas<'_>) -> Result<Option<u16>, Broken> {
        let available = areas.available;
        // Acquire: pairs with the release in `DriverRing::publish`.
        let index = available.bytes.load_u16_acquire(available.at + INDEX_AT);
        match index.wrapping_sub(self.taken) {
            0 => return Ok(None),
            news if news > self.size => return Err(Broken),
            _ => {}
        }
        let at = available.at + ENTRIES_AT + 2 * usize::from(self.taken & (self.size - 1));
        let head = available.bytes.load_u16(at);
        if head >= self.size {
            return Err(Broken);
        }
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(head))
    }

    /// Gives a chain back, of which `len` bytes were written. The driver sees it with [`DeviceRing::publish`].
    #[inline]
    pub fn give(&mut self, areas: Areas<'_>, head: u16, len: u32) {
        let used = areas.used;
        let at = used.at + ENTRIES_AT + USED_BYTES * usize::from(self.used & (self.size - 1));
        used.bytes.store_u32(at, head.into());
        used.bytes.store_u32(at + 4, len);
        self.used = self.used.wrapping_add(1);
    }

    /// Lets the driver see all that was given back. Whether it wants an interrupt.
    #[inline]
    pub fn publish(&mut self, areas: Areas<'_>) -> bool {
        // Release: pairs with the acquire in `DriverRing::take`.
        areas.used.bytes.store_u16_release(areas.used.at + INDEX_AT, self.used);
        // Partner of the fence in a driver that is going to sleep.
        fence(Ordering::SeqCst);
        areas.available.bytes.load_u16(areas.available.at) & QUIET == 0
    }
}
