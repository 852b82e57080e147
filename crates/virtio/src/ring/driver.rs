//! The driver's side of a ring.
//!
//! Invariant: entries from `taken` up to `next` are the driver's requests in flight; the device has
//! seen or will see those before `published`. The driver has to keep their number within the ring's
//! size.

use std::sync::atomic::{Ordering, fence};

use super::{Areas, Broken, ENTRIES_AT, INDEX_AT, Layout, QUIET, USED_BYTES, is_passed};

/// A chain that the device has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The head of the chain, as the device states it.
    pub id: u32,
    /// The number of bytes written, as the device states it.
    pub len: u32,
}

#[derive(Debug)]
pub struct DriverRing {
    layout: Layout,
    next: u16,
    published: u16,
    taken: u16,
    /// The number of chains that the device had used when the driver last looked.
    seen: u16,
    /// Whether both sides use an index (VIRTIO_F_EVENT_IDX), instead of a flag, to say when they
    /// want to be notified.
    event_index: bool,
}

impl DriverRing {
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self::with_event_index(layout, false)
    }

    /// Makes an empty ring with or without the event index. Its memory must be zeroed.
    #[must_use]
    pub fn with_event_index(layout: Layout, event_index: bool) -> Self {
        Self { layout, next: 0, published: 0, taken: 0, seen: 0, event_index }
    }

    /// Asks for no interrupts: the driver polls.
    pub fn be_quiet(&self, areas: Areas<'_>) {
        // With the event index, an index that the device has passed will not be passed again for
        // the next 2^16 chains.
        if !self.event_index {
            areas.available.bytes.store_u16(areas.available.at, QUIET);
        }
    }

    /// Asks for an interrupt for chains that the device uses from now on. Returns true if there are
    /// some already, so that the driver must not sleep.
    pub fn listen(&self, areas: Areas<'_>) -> bool {
        let available = areas.available;
        if self.event_index {
            let at = available.at + self.layout.available_bytes() - 2;
            available.bytes.store_u16(at, self.taken);
        } else {
            available.bytes.store_u16(available.at, 0);
        }
        // Partner of the fence in `DeviceRing::publish`: either the device sees the request for an
        // interrupt, or its index is seen here.
        fence(Ordering::SeqCst);
        areas.used.bytes.load_u16_acquire(areas.used.at + INDEX_AT) != self.taken
    }

    /// Offers the chain that begins with a descriptor. The device sees it after
    /// [`DriverRing::publish`].
    #[inline]
    pub fn offer(&mut self, areas: Areas<'_>, head: u16) {
        let at =
            areas.available.at + ENTRIES_AT + 2 * usize::from(self.next & (self.layout.size - 1));
        areas.available.bytes.store_u16(at, head);
        self.next = self.next.wrapping_add(1);
    }

    /// Whether offered chains wait to be published.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.next != self.published
    }

    /// Makes all offered chains visible to the device. Returns whether the device wants to be
    /// notified.
    #[inline]
    pub fn publish(&mut self, areas: Areas<'_>) -> bool {
        // Release: the device sees descriptors and entries before the index. Pairs with the acquire
        // in `DeviceRing::take`.
        areas.available.bytes.store_u16_release(areas.available.at + INDEX_AT, self.next);
        let before = std::mem::replace(&mut self.published, self.next);
        // Partner of the fence in a device that is going idle: either the device sees the new
        // index, or its request for a notification is seen here.
        fence(Ordering::SeqCst);
        let used = areas.used;
        if !self.event_index {
            return used.bytes.load_u16(used.at) & QUIET == 0;
        }
        let event = used.bytes.load_u16(used.at + self.layout.used_bytes() - 2);
        is_passed(event, before, self.next)
    }

    /// Takes the next chain that the device has used.
    ///
    /// # Errors
    /// The device claims to have used more chains than it was given.
    #[inline]
    pub fn take(&mut self, areas: Areas<'_>) -> Result<Option<Used>, Broken> {
        let used = areas.used;
        // The line of the index is the device's, so that it is read once for all chains of a batch.
        if self.taken == self.seen {
            // Acquire: what the device wrote is seen after its index. Pairs with the release in
            // `DeviceRing::publish`.
            let index = used.bytes.load_u16_acquire(used.at + INDEX_AT);
            let news = index.wrapping_sub(self.taken);
            if news == 0 {
                return Ok(None);
            }
            if news > self.published.wrapping_sub(self.taken) {
                return Err(Broken);
            }
            self.seen = index;
        }
        let slot = usize::from(self.taken & (self.layout.size - 1));
        let at = used.at + ENTRIES_AT + USED_BYTES * slot;
        self.taken = self.taken.wrapping_add(1);
        Ok(Some(Used { id: used.bytes.load_u32(at), len: used.bytes.load_u32(at + 4) }))
    }
}
