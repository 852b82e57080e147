//! A list of keys, each with a value, in one buffer.

/// Keys in the order in which they were added.
#[derive(Debug)]
pub(in crate::tx) struct KeyList<T> {
    /// The value of each key, and the key's end in `bytes`.
    ends: Vec<(T, u32)>,
    bytes: Vec<u8>,
}

impl<T> Default for KeyList<T> {
    fn default() -> Self {
        Self { ends: Vec::new(), bytes: Vec::new() }
    }
}

impl<T: Copy> KeyList<T> {
    /// The size of a key's entry without the key, in bytes.
    pub(super) const ENTRY_BYTES: usize = size_of::<(T, u32)>();

    pub(in crate::tx) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(in crate::tx) fn size_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * Self::ENTRY_BYTES
    }

    /// Adds a key. All keys together must have less than 4 GiB.
    pub(in crate::tx) fn push(&mut self, of: T, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push((of, self.bytes.len() as u32));
    }

    pub(in crate::tx) fn iter(&self) -> impl Iterator<Item = (T, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |(of, end)| {
            let key = &self.bytes[start..*end as usize];
            start = *end as usize;
            (*of, key)
        })
    }
}
