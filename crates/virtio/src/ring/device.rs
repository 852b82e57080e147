//! The device's side of a ring.

use std::sync::atomic::{Ordering, fence};

use super::{
    Areas, Broken, DESCRIPTOR_BYTES, ENTRIES_AT, INDEX_AT, Layout, QUIET, USED_BYTES, is_passed,
};

#[derive(Debug)]
pub struct DeviceRing {
    layout: Layout,
    taken: u16,
    /// The number of chains that the driver had made available when the device last looked.
    seen: u16,
    used: u16,
    /// The value of `used` when the device last asked whether the driver wants an interrupt;
    /// `None`: it has not asked yet.
    asked: Option<u16>,
    /// Whether chains were given back since the device last asked in an order that the driver
    /// cannot have missed.
    is_owing: bool,
    /// Whether both sides use an index (VIRTIO_F_EVENT_IDX), instead of a flag, to say when they
    /// want to be notified.
    event_index: bool,
}

impl DeviceRing {
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self::starting(layout, 0, 0, false)
    }

    /// Makes a ring that continues where another device left off. `taken` chains were taken; the
    /// ring itself says how many were given back.
    #[must_use]
    pub fn resume(layout: Layout, areas: Areas<'_>, taken: u16, event_index: bool) -> Self {
        Self::starting(layout, taken, Self::used_index(areas), event_index)
    }

    fn starting(layout: Layout, taken: u16, used: u16, event_index: bool) -> Self {
        Self { layout, taken, seen: taken, used, asked: None, is_owing: false, event_index }
    }

    /// Returns the number of chains given back so far, according to the ring.
    #[must_use]
    pub fn used_index(areas: Areas<'_>) -> u16 {
        areas.used.bytes.load_u16_acquire(areas.used.at + INDEX_AT)
    }

    /// Returns the number of chains taken so far, modulo 2^16.
    #[must_use]
    pub fn taken(&self) -> u16 {
        self.taken
    }

    /// Returns the number of chains given back so far, modulo 2^16.
    #[must_use]
    pub fn used(&self) -> u16 {
        self.used
    }

    /// Asks the driver for no notifications: the device polls.
    pub fn be_quiet(&self, areas: Areas<'_>) {
        // With the event index, an index that the driver has passed will not be passed again for
        // the next 2^16 chains.
        if !self.event_index {
            areas.used.bytes.store_u16(areas.used.at, QUIET);
        }
    }

    /// Asks the driver for a notification of chains that it makes available from now on. Returns
    /// true if there are some already, so that the device must not sleep.
    pub fn listen(&self, areas: Areas<'_>) -> bool {
        if self.event_index {
            let at = areas.used.at + self.layout.used_bytes() - 2;
            areas.used.bytes.store_u16(at, self.taken);
        } else {
            areas.used.bytes.store_u16(areas.used.at, 0);
        }
        // Partner of the fence in `DriverRing::publish`: either the driver sees the request for a
        // notification, or its index is seen here.
        fence(Ordering::SeqCst);
        self.has_more(areas)
    }

    /// Whether the driver has made more chains available than were taken.
    #[must_use]
    pub fn has_more(&self, areas: Areas<'_>) -> bool {
        let available = areas.available;
        available.bytes.load_u16_acquire(available.at + INDEX_AT) != self.taken
    }

    /// Takes the next chain that the driver has made available, and returns its head.
    ///
    /// # Errors
    /// More chains are available than the ring has, or a head lies outside the table.
    #[inline]
    pub fn take(&mut self, areas: Areas<'_>) -> Result<Option<u16>, Broken> {
        if self.taken == self.seen && !self.look(areas)? {
            return Ok(None);
        }
        let available = areas.available;
        let at = available.at + ENTRIES_AT + 2 * usize::from(self.taken & (self.layout.size - 1));
        let head = available.bytes.load_u16(at);
        if head >= self.layout.size {
            return Err(Broken);
        }
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(head))
    }

    /// Looks for chains that the driver has made available. The line of the index is the driver's,
    /// so that it is read once for all of them; their descriptors are fetched meanwhile.
    #[inline]
    fn look(&mut self, areas: Areas<'_>) -> Result<bool, Broken> {
        /// The number of chains whose descriptors are fetched.
        const FETCHED: u16 = 16;
        let available = areas.available;
        // Acquire: pairs with the release in `DriverRing::publish`.
        let index = available.bytes.load_u16_acquire(available.at + INDEX_AT);
        let news = index.wrapping_sub(self.taken);
        if news > self.layout.size {
            return Err(Broken);
        }
        self.seen = index;
        let descriptors = areas.descriptors;
        for number in 1..news.min(FETCHED) {
            let slot = usize::from(self.taken.wrapping_add(number) & (self.layout.size - 1));
            let head = available.bytes.load_u16(available.at + ENTRIES_AT + 2 * slot);
            descriptors.bytes.prefetch(descriptors.at + DESCRIPTOR_BYTES * usize::from(head));
        }
        Ok(news > 0)
    }

    /// Gives a chain back, with `len` bytes written. The driver sees it after
    /// [`DeviceRing::publish`].
    #[inline]
    pub fn give(&mut self, areas: Areas<'_>, head: u16, len: u32) {
        let used = areas.used;
        let at =
            used.at + ENTRIES_AT + USED_BYTES * usize::from(self.used & (self.layout.size - 1));
        used.bytes.store_u32(at, head.into());
        used.bytes.store_u32(at + 4, len);
        self.used = self.used.wrapping_add(1);
    }

    /// Makes all chains that were given back visible to the driver. Returns whether the driver
    /// wants an interrupt, as far as can be seen without waiting for the driver's cache lines: if
    /// not, [`DeviceRing::ask`] must follow soon.
    #[inline]
    pub fn publish(&mut self, areas: Areas<'_>) -> bool {
        // Release: pairs with the acquire in `DriverRing::take`.
        areas.used.bytes.store_u16_release(areas.used.at + INDEX_AT, self.used);
        self.is_owing = !self.is_wanted(areas);
        if !self.is_owing {
            self.asked = Some(self.used);
        }
        !self.is_owing
    }

    /// Whether [`DeviceRing::ask`] must be called.
    #[inline]
    #[must_use]
    pub fn is_owing(&self) -> bool {
        self.is_owing
    }

    /// Returns whether the driver wants an interrupt for chains that were published since the last
    /// call: either the driver has seen them, or its request is seen here.
    #[inline]
    pub fn ask(&mut self, areas: Areas<'_>) -> bool {
        self.is_owing = false;
        // Partner of the fence in `DriverRing::listen`.
        fence(Ordering::SeqCst);
        let is_wanted = self.is_wanted(areas);
        self.asked = Some(self.used);
        is_wanted
    }

    /// Whether the driver wants an interrupt for chains published since the last question.
    #[inline]
    fn is_wanted(&self, areas: Areas<'_>) -> bool {
        let available = areas.available;
        if !self.event_index {
            return available.bytes.load_u16(available.at) & QUIET == 0;
        }
        let event = available.bytes.load_u16(available.at + self.layout.available_bytes() - 2);
        self.asked.is_none_or(|asked| is_passed(event, asked, self.used))
    }
}
