//! The driver's side.
//!
//! Invariant: entries from `taken` up to `next` are the driver's requests under way: those before `published` the device has seen or will
//! see. Their number is bounded by the ring's size, which is for the driver to see to.

use std::sync::atomic::{Ordering, fence};

use super::{Areas, Broken, ENTRIES_AT, INDEX_AT, Layout, QUIET, USED_BYTES, is_passed};

/// What the device has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The head, as the device says.
    pub id: u32,
    /// Bytes written, as the device says.
    pub len: u32,
}

/// A ring, as its driver has it.
#[derive(Debug)]
pub struct DriverRing {
    layout: Layout,
    next: u16,
    published: u16,
    taken: u16,
    /// Both sides tell by an index when they want to hear of news (VIRTIO_F_EVENT_IDX); else by a flag.
    event_index: bool,
}

impl DriverRing {
    /// An empty ring.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self::with_event_index(layout, false)
    }

    /// An empty ring, of zeroes, with or without the event index.
    #[must_use]
    pub fn with_event_index(layout: Layout, event_index: bool) -> Self {
        Self { layout, next: 0, published: 0, taken: 0, event_index }
    }

    /// Asks for no interrupts: the driver looks by itself.
    pub fn be_quiet(&self, areas: Areas<'_>) {
        // With the event index: an index that the device has passed is not passed again for the next 2^16.
        if !self.event_index {
            areas.available.bytes.store_u16(areas.available.at, QUIET);
        }
    }

    /// Asks for an interrupt for what the device uses from now on. True: there is something already, so that the driver must not sleep.
    pub fn listen(&self, areas: Areas<'_>) -> bool {
        let available = areas.available;
        if self.event_index {
            let at = available.at + self.layout.available_bytes() - 2;
            available.bytes.store_u16(at, self.taken);
        } else {
            available.bytes.store_u16(available.at, 0);
        }
        // Partner of the fence in `DeviceRing::publish`: either the device sees the wish, or its index is seen here.
        fence(Ordering::SeqCst);
        areas.used.bytes.load_u16_acquire(areas.used.at + INDEX_AT) != self.taken
    }

    /// Offers the chain that begins with a descriptor. The device sees it with [`DriverRing::publish`].
    #[inline]
    pub fn offer(&mut self, areas: Areas<'_>, head: u16) {
        let at =
            areas.available.at + ENTRIES_AT + 2 * usize::from(self.next & (self.layout.size - 1));
        areas.available.bytes.store_u16(at, head);
        self.next = self.next.wrapping_add(1);
    }

    /// Whether something was offered and not published.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.next != self.published
    }

    /// Lets the device see all that was offered. Whether it wants to be notified.
    #[inline]
    pub fn publish(&mut self, areas: Areas<'_>) -> bool {
        // Release: the device sees descriptors and entries before the index. Pairs with the acquire in `DeviceRing::take`.
        areas.available.bytes.store_u16_release(areas.available.at + INDEX_AT, self.next);
        let before = std::mem::replace(&mut self.published, self.next);
        // Partner of the fence in a device that is going idle: either it sees the new index, or its wish is seen here.
        fence(Ordering::SeqCst);
        let used = areas.used;
        if !self.event_index {
            return used.bytes.load_u16(used.at) & QUIET == 0;
        }
        let event = used.bytes.load_u16(used.at + self.layout.used_bytes() - 2);
        is_passed(event, before, self.next)
    }

    /// The next request that the device has used.
    ///
    /// # Errors
    /// The device says that it has used more than it was given.
    #[inline]
    pub fn take(&mut self, areas: Areas<'_>) -> Result<Option<Used>, Broken> {
        let used = areas.used;
        // Acquire: what the device wrote is seen after its index. Pairs with the release in `DeviceRing::publish`.
        let index = used.bytes.load_u16_acquire(used.at + INDEX_AT);
        let news = index.wrapping_sub(self.taken);
        if news == 0 {
            return Ok(None);
        }
        if news > self.published.wrapping_sub(self.taken) {
            return Err(Broken);
        }
        let slot = usize::from(self.taken & (self.layout.size - 1));
        let at = used.at + ENTRIES_AT + USED_BYTES * slot;
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(Used { id: used.bytes.load_u32(at), len: used.bytes.load_u32(at + 4) }))
    }
}
