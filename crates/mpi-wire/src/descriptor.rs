//! Request and reply descriptors: 8 bytes each.

/// What a request descriptor is for.
pub mod request {
    /// A SCSI command.
    pub const SCSI_IO: u8 = 0x00;
    /// Task management: before others.
    pub const HIGH_PRIORITY: u8 = 0x06;
    /// Any other message.
    pub const DEFAULT: u8 = 0x08;
    /// A SCSI command by the fast path.
    pub const FAST_PATH: u8 = 0x0C;
}

/// What a reply descriptor says.
pub mod reply {
    /// A SCSI command did all that it was to do.
    pub const SCSI_IO_SUCCESS: u8 = 0x00;
    /// There is a reply frame.
    pub const ADDRESS_REPLY: u8 = 0x01;
    /// As success, by the fast path.
    pub const FAST_PATH_SUCCESS: u8 = 0x06;
    /// Nothing is there.
    pub const UNUSED: u8 = 0x0F;
}

/// An entry of a reply queue that nothing is in.
pub const UNUSED: u64 = u64::MAX;
/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 8;

/// A request, as it is posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDescriptor {
    /// What it is for.
    pub kind: u8,
    /// The reply queue that the answer goes to.
    pub queue: u8,
    /// System message id: which frame.
    pub smid: u16,
    /// Handle of the device, for SCSI commands.
    pub handle: u16,
}

impl RequestDescriptor {
    /// Its word.
    #[inline(always)]
    #[must_use]
    pub fn encode(self) -> u64 {
        u64::from(self.kind)
            | u64::from(self.queue) << 8
            | u64::from(self.smid) << 16
            | u64::from(self.handle) << 48
    }

    /// From its word.
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

/// An answer, as it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyDescriptor {
    /// The command of this SMID did all that it was to do.
    Success(u16),
    /// A frame: the SMID (0: an event), and the low half of its address.
    Address(u16, u32),
    /// Not known here.
    Other(u8),
}

impl ReplyDescriptor {
    /// From its word; `None`: nothing is there (or not yet all of it).
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

    /// The word of a success.
    #[inline(always)]
    #[must_use]
    pub fn success(queue: u8, smid: u16) -> u64 {
        u64::from(reply::SCSI_IO_SUCCESS) | u64::from(queue) << 8 | u64::from(smid) << 16
    }

    /// The word of a frame.
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
