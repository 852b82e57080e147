//! Request and reply descriptors: 8 bytes each.

pub mod request {
    pub const SCSI_IO: u8 = 0x00;
    /// Task management, which goes before others.
    pub const HIGH_PRIORITY: u8 = 0x06;
    pub const DEFAULT: u8 = 0x08;
    pub const FAST_PATH: u8 = 0x0C;
}

pub mod reply {
    pub const SCSI_IO_SUCCESS: u8 = 0x00;
    /// The answer is in a reply frame.
    pub const ADDRESS_REPLY: u8 = 0x01;
    pub const FAST_PATH_SUCCESS: u8 = 0x06;
    pub const UNUSED: u8 = 0x0F;
}

/// The word of an empty entry of a reply queue.
pub const UNUSED: u64 = u64::MAX;
pub const DESCRIPTOR_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDescriptor {
    /// The type: one of [`request`].
    pub kind: u8,
    /// The reply queue for the answer.
    pub queue: u8,
    /// The system message id, which identifies the frame.
    pub smid: u16,
    /// The handle of the device, for SCSI commands.
    pub handle: u16,
}

impl RequestDescriptor {
    #[inline(always)]
    #[must_use]
    pub fn encode(self) -> u64 {
        u64::from(self.kind)
            | u64::from(self.queue) << 8
            | u64::from(self.smid) << 16
            | u64::from(self.handle) << 48
    }

    #[inline(always)]
    #[must_use]
    pub fn decode(word: u64) -> Self {
        Self {
            kind: word as u8 & 0x0E,
            queue: (word >> 8) as u8,
            smid: (word >> 16) as u16,
            handle: (word >> 48) as u16,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyDescriptor {
    /// The command with this SMID succeeded.
    Success(u16),
    /// A reply frame: the SMID (0: an event), and the low half of the frame's address.
    Address(u16, u32),
    /// A type that is not known here.
    Other(u8),
}

impl ReplyDescriptor {
    /// Decodes a descriptor from its word; `None` if the entry is empty or not yet complete.
    #[inline(always)]
    #[must_use]
    pub fn decode(word: u64) -> Option<Self> {
        if word as u32 == u32::MAX || (word >> 32) as u32 == u32::MAX {
            return None;
        }
        let smid = (word >> 16) as u16;
        match word as u8 & 0x0F {
            reply::SCSI_IO_SUCCESS | reply::FAST_PATH_SUCCESS => Some(Self::Success(smid)),
            reply::ADDRESS_REPLY => Some(Self::Address(smid, (word >> 32) as u32)),
            reply::UNUSED => None,
            other => Some(Self::Other(other)),
        }
    }

    #[inline(always)]
    #[must_use]
    pub fn success(queue: u8, smid: u16) -> u64 {
        u64::from(reply::SCSI_IO_SUCCESS) | u64::from(queue) << 8 | u64::from(smid) << 16
    }

    #[must_use]
    pub fn address(queue: u8, smid: u16, frame: u32) -> u64 {
        u64::from(reply::ADDRESS_REPLY)
            | u64::from(queue) << 8
            | u64::from(smid) << 16
            | u64::from(frame) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_survive_their_words() {
        let request = RequestDescriptor { kind: 6, queue: 3, smid: 0x1234, handle: 0xABCD };
        assert_eq!(RequestDescriptor::decode(request.encode()), request);
        assert_eq!(request.encode(), 0xABCD_0000_1234_0306);
        let word = ReplyDescriptor::address(1, 7, 0xDEAD_BE00);
        assert_eq!(ReplyDescriptor::decode(word), Some(ReplyDescriptor::Address(7, 0xDEAD_BE00)));
        assert_eq!(
            ReplyDescriptor::decode(ReplyDescriptor::success(1, 7)),
            Some(ReplyDescriptor::Success(7))
        );
        assert_eq!(ReplyDescriptor::decode(UNUSED), None);
        assert_eq!(ReplyDescriptor::decode(0xFFFF_FFFF_0001_0101), None, "half of it");
    }
}
