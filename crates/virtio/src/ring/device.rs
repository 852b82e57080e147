//! The device's side.

use std::sync::atomic::{Ordering, fence};

use super::{Areas, Broken, ENTRIES_AT, INDEX_AT, Layout, QUIET, USED_BYTES, is_passed};

/// A ring, as its device has it.
#[derive(Debug)]
pub struct DeviceRing {
    layout: Layout,
    taken: u16,
    used: u16,
    /// `used` when the driver was last asked whether it wants an interrupt; `None`: it is asked for the first time.
    asked: Option<u16>,
    /// Both sides tell by an index when they want to hear of news (VIRTIO_F_EVENT_IDX); else by a flag.
    event_index: bool,
}

impl DeviceRing {
    /// A ring from its beginning.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { layout, taken: 0, used: 0, asked: None, event_index: false }
    }

    /// A ring that goes on where another device left off: it has taken up to `taken`, and given back what the ring says.
    #[must_use]
    pub fn resume(layout: Layout, areas: Areas<'_>, taken: u16, event_index: bool) -> Self {
        let used = Self::used_index(areas);
        Self { layout, taken, used, asked: None, event_index }
    }

    /// How much was given back so far, as the ring says.
    #[must_use]
    pub fn used_index(areas: Areas<'_>) -> u16 {
        areas.used.bytes.load_u16_acquire(areas.used.at + INDEX_AT)
    }

    /// How many chains were taken so far, modulo 2^16.
    #[must_use]
    pub fn taken(&self) -> u16 {
        self.taken
    }

    /// How many chains were given back so far, modulo 2^16.
    #[must_use]
    pub fn used(&self) -> u16 {
        self.used
    }

    /// Asks the driver for no notifications: the device looks by itself.
    pub fn be_quiet(&self, areas: Areas<'_>) {
        // With the event index: an index that the driver has passed is not passed again for the next 2^16.
        if !self.event_index {
            areas.used.bytes.store_u16(areas.used.at, QUIET);
        }
    }

    /// Asks the driver for a notification of what it makes available from now on. True: there is something already, so that the device must
    /// not sleep.
    pub fn listen(&self, areas: Areas<'_>) -> bool {
        if self.event_index {
            let at = areas.used.at + self.layout.used_bytes() - 2;
            areas.used.bytes.store_u16(at, self.taken);
        } else {
            areas.used.bytes.store_u16(areas.used.at, 0);
        }
        // Partner of the fence in `DriverRing::publish`: either the driver sees the wish, or its index is seen here.
        fence(Ordering::SeqCst);
        self.has_more(areas)
    }

    /// Whether the driver has made more available than was taken.
    #[must_use]
    pub fn has_more(&self, areas: Areas<'_>) -> bool {
        let available = areas.available;
        available.bytes.load_u16_acquire(available.at + INDEX_AT) != self.taken
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
            news if news > self.layout.size => return Err(Broken),
            _ => {}
        }
        let at = available.at + ENTRIES_AT + 2 * usize::from(self.taken & (self.layout.size - 1));
        let head = available.bytes.load_u16(at);
        if head >= self.layout.size {
            return Err(Broken);
        }
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(head))
    }

    /// Gives a chain back, of which `len` bytes were written. The driver sees it with [`DeviceRing::publish`].
    #[inline]
    pub fn give(&mut self, areas: Areas<'_>, head: u16, len: u32) {
        let used = areas.used;
        let at =
            used.at + ENTRIES_AT + USED_BYTES * usize::from(self.used & (self.layout.size - 1));
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
        let available = areas.available;
        if !self.event_index {
            return available.bytes.load_u16(available.at) & QUIET == 0;
        }
        let event = available.bytes.load_u16(available.at + self.layout.available_bytes() - 2);
        // Whether the index that the driver waits for lies among those that were given since it was last asked.
        self.asked.replace(self.used).is_none_or(|asked| is_passed(event, asked, self.used))
    }
}
