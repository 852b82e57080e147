//! A fixed number of slots, for the state that a channel keeps of requests it passed on.

/// Slots that are named by small numbers, which are used as tags. The memory is allocated once.
pub struct Slots<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    /// Creates `count` empty slots.
    #[must_use]
    pub fn new(count: u32) -> Self {
        Self { entries: (0..count).map(|_| None).collect(), free: (0..count).rev().collect() }
    }

    /// Returns the number of slots in use.
    #[must_use]
    pub fn used(&self) -> u32 {
        (self.entries.len() - self.free.len()) as u32
    }

    /// Fills a slot and returns its number, or `None` if all are in use.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<u64> {
        let slot = self.free.pop()?;
        self.entries[slot as usize] = Some(value);
        Some(u64::from(slot))
    }

    /// Returns the value of a slot in use.
    #[inline]
    pub fn get_mut(&mut self, slot: u64) -> Option<&mut T> {
        self.entries.get_mut(usize::try_from(slot).ok()?)?.as_mut()
    }

    /// Empties a slot.
    #[inline]
    pub fn take(&mut self, slot: u64) -> Option<T> {
        let value = self.entries.get_mut(usize::try_from(slot).ok()?)?.take()?;
        self.free.push(slot as u32);
        Some(value)
    }
}
