//! Values that are named by small numbers, which are used again.

#[derive(Debug)]
pub(crate) struct Slots<T> {
    all: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(crate) fn add(&mut self, value: T) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[slot] = Some(value);
        slot
    }

    pub(crate) fn take(&mut self, slot: usize) -> Option<T> {
        let value = self.all.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(value)
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&T> {
        self.all.get(slot)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut T> {
        self.all.get_mut(slot)?.as_mut()
    }

    pub(crate) fn used(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Returns a number above those of all values.
    pub(crate) fn end(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.all.iter().enumerate().filter_map(|(slot, value)| Some((slot, value.as_ref()?)))
    }
}
