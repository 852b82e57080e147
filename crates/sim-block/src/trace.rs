//! A hash over everything that happened, to compare two runs.

/// A running hash; not for security.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }
}

impl TraceHash {
    /// Adds a number.
    pub fn add(&mut self, value: u64) {
        let mixed = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517C_C1B7_2722_0A95);
        self.0 = mixed ^ mixed >> 32;
    }

    /// Adds bytes.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    /// Returns the hash so far.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}
