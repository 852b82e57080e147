//! A fuzzer's input, taken off as numbers; zeroes when it ends.

pub struct Input {
    bytes: Vec<u8>,
    at: usize,
}

#[allow(dead_code, reason = "each target uses some of it")]
impl Input {
    pub fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), at: 0 }
    }

    pub fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    pub fn half(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}
