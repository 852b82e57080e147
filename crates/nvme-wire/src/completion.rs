//! Completion queue entries (Base §3.3.3.2).

use crate::COMPLETION_BYTES;
use crate::status::Status;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The command-specific result (dword 0).
    pub result: u32,
    /// The head of the submission queue: entries before it can be used again.
    pub sq_head: u16,
    pub sq_id: u16,
    pub cid: u16,
    /// The phase tag, inverted on each pass through the queue.
    pub phase: bool,
    pub status: Status,
}

impl Completion {
    /// The offset of the last dword, which a driver reads first and a controller writes last.
    pub const LAST_DWORD: usize = 12;

    /// Returns the phase tag in the last dword.
    #[inline]
    #[must_use]
    pub fn phase_of(last_dword: u32) -> bool {
        last_dword >> 16 & 1 != 0
    }

    /// Decodes a completion from its dwords (the second one is reserved).
    #[inline]
    #[must_use]
    pub fn from_dwords(first: u32, third: u32, last: u32) -> Self {
        Self {
            result: first,
            sq_head: third as u16,
            sq_id: (third >> 16) as u16,
            cid: last as u16,
            phase: Self::phase_of(last),
            status: Status((last >> 17) as u16),
        }
    }

    #[inline]
    #[must_use]
    pub fn dwords(&self) -> [u32; 4] {
        [
            self.result,
            0,
            u32::from(self.sq_head) | u32::from(self.sq_id) << 16,
            u32::from(self.cid) | u32::from(self.phase) << 16 | u32::from(self.status.0) << 17,
        ]
    }

    #[must_use]
    pub fn encode(&self) -> [u8; COMPLETION_BYTES] {
        let mut bytes = [0; COMPLETION_BYTES];
        for (chunk, dword) in bytes.chunks_exact_mut(4).zip(self.dwords()) {
            chunk.copy_from_slice(&dword.to_le_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_written() {
        let entry = Completion {
            result: 7,
            sq_head: 11,
            sq_id: 13,
            cid: 0xFFFE,
            phase: true,
            status: Status::LBA_OUT_OF_RANGE,
        };
        let dwords = entry.dwords();
        assert_eq!(Completion::from_dwords(dwords[0], dwords[2], dwords[3]), entry);
        assert!(Completion::phase_of(dwords[3]));
    }
}
