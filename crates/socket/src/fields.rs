//! Little-endian integers, one after the other.

/// Reads integers from the front of bytes.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    /// Reads two bytes; `None` if fewer are left.
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Returns the bytes that were not read.
    #[must_use]
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Appends integers to bytes.
#[derive(Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    #[must_use]
    pub fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    #[must_use]
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    #[must_use]
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    #[must_use]
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}
