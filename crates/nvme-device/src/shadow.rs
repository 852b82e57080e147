//! Doorbells in the driver's memory (Doorbell Buffer Config, Base §5.8): their values, and the
//! values at which the driver must ring the doorbells of the register page.
//!
//! Invariant: nothing in these pages is trusted. A value is checked like that of a doorbell
//! register. A page that the driver closes is no longer accessed, and the registers count again.

use qpair_memory::DmaMemory;
use qpair_memory::doorbell::{self, DoorbellWord as _, SharedWord};
use qpair_nvme_wire::{PAGE_BYTES, Status};

use crate::device::doorbell_at;
use qpair_pci::model::{DmaTable, LastHit};

/// The two pages, under the lock of one queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    shadows: Page,
    events: Page,
}

#[derive(Clone, Debug)]
struct Page {
    iova: u64,
    /// The page's memory, and the offset of the page in it; `None` if the memory is not open now.
    found: Option<(DmaMemory, usize)>,
}

impl Page {
    fn resolve(&mut self, table: &DmaTable) -> bool {
        let extent = table.find(self.iova, PAGE_BYTES as u32, &mut LastHit::default());
        let extent = extent.filter(|extent| table.is_writable(*extent));
        self.found = extent.and_then(|extent| table.memory(extent));
        self.found.is_some()
    }

    #[inline]
    fn word(&self, at: usize) -> Option<SharedWord<'_>> {
        let (memory, offset) = self.found.as_ref()?;
        Some(SharedWord { bytes: memory.bytes(), at: offset + at })
    }
}

impl Shadow {
    /// Creates shadow doorbells in the pages at these addresses.
    ///
    /// # Errors
    /// A status, if an address is not that of a page, or the page is not in the table.
    pub(crate) fn new(shadows: u64, events: u64, table: &DmaTable) -> Result<Self, Status> {
        let page = |iova: u64| match iova.is_multiple_of(PAGE_BYTES as u64) {
            true => Ok(Page { iova, found: None }),
            false => Err(Status::INVALID_FIELD),
        };
        let mut shadow = Self { shadows: page(shadows)?, events: page(events)? };
        if shadow.resolve(table) { Ok(shadow) } else { Err(Status::DATA_TRANSFER_ERROR) }
    }

    /// Finds the pages in another table. Returns false if one of them is not in it: then neither is
    /// accessed.
    pub(crate) fn resolve(&mut self, table: &DmaTable) -> bool {
        let found = self.shadows.resolve(table) & self.events.resolve(table);
        if !found {
            (self.shadows.found, self.events.found) = (None, None);
        }
        found
    }

    /// Returns a doorbell's value; `None` if its page is not accessible.
    #[inline]
    pub(crate) fn load(&self, number: u16, is_completion: bool) -> Option<u32> {
        Some(self.shadows.word(doorbell_at(number, is_completion))?.load())
    }

    /// Asks the driver to ring when its doorbell moves past `seen`. Returns false if it has moved
    /// already.
    pub(crate) fn listen(&self, number: u16, is_completion: bool, seen: u32) -> bool {
        let at = doorbell_at(number, is_completion);
        match (self.shadows.word(at), self.events.word(at)) {
            (Some(shadow), Some(event)) => doorbell::listen(shadow, event, seen),
            _ => true,
        }
    }

    /// Tells the driver that it need not ring until it reaches `event` again.
    #[inline]
    pub(crate) fn be_quiet(&self, number: u16, is_completion: bool, event: u32) {
        if let Some(word) = self.events.word(doorbell_at(number, is_completion)) {
            word.store(event);
        }
    }

    /// Clears the doorbells of a queue number, because a queue of that number begins or ends.
    pub(crate) fn forget(&self, number: u16, is_completion: bool) {
        let at = doorbell_at(number, is_completion);
        for word in [self.shadows.word(at), self.events.word(at)].into_iter().flatten() {
            word.store(0);
        }
    }
}

/// The event index of one doorbell, as last written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventIndex(u32);

impl EventIndex {
    /// Sets the value that makes the driver ring when it passes it.
    pub(crate) fn set(&mut self, event: u32) {
        self.0 = event;
    }

    /// Updates the index for a busy queue of `entries` entries whose doorbell is `seen`. Returns
    /// the index to write so that the driver does not reach it by wrapping around: a value just
    /// behind `seen`, once the index has fallen behind by an eighth of the queue. More frequent
    /// writes would cost, because the driver reads that cache line.
    #[inline]
    pub(crate) fn behind(&mut self, seen: u32, entries: u32) -> Option<u32> {
        let lag = if seen >= self.0 { seen - self.0 } else { seen + entries - self.0.min(entries) };
        if lag > 0 && lag < (entries / 8).max(2) {
            return None;
        }
        self.0 = if seen == 0 { entries - 1 } else { seen - 1 };
        Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_busy_queue_stays_behind() {
        const ENTRIES: u32 = 64;
        let (mut event, mut stores) = (EventIndex::default(), 0);
        for round in 1..=640 {
            let seen = round % ENTRIES;
            stores += u32::from(event.behind(seen, ENTRIES).is_some());
            let distance = (seen + ENTRIES - event.0) % ENTRIES;
            assert!((1..8).contains(&distance), "{round}: {distance}");
        }
        assert!(stores <= 640 / 7 + 1, "{stores}");
    }
}
