//! Payloads about one ring.

use qpair_socket::{Fields, Writer};

/// A ring and a number: SET_VRING_NUM, SET_VRING_BASE, GET_VRING_BASE, SET_VRING_ENABLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingState {
    pub ring: u32,
    /// The size of the ring, its index, or whether it is enabled.
    pub number: u32,
}

impl RingState {
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(payload);
        Some(Self { ring: fields.u32()?, number: fields.u32()? })
    }

    #[must_use]
    pub fn payload(self) -> Vec<u8> {
        Writer::default().u32(self.ring).u32(self.number).done()
    }
}

/// The addresses of a ring's areas in the front end's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingAddresses {
    pub ring: u32,
    /// The flags: bit 0 is set if writes to the used ring are logged.
    pub flags: u32,
    pub descriptors: u64,
    pub used: u64,
    pub available: u64,
    /// The address for logging writes to the used ring.
    pub log: u64,
}

impl RingAddresses {
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(payload);
        Some(Self {
            ring: fields.u32()?,
            flags: fields.u32()?,
            descriptors: fields.u64()?,
            used: fields.u64()?,
            available: fields.u64()?,
            log: fields.u64()?,
        })
    }

    #[must_use]
    pub fn payload(self) -> Vec<u8> {
        let Self { ring, flags, descriptors, used, available, log } = self;
        let writer = Writer::default().u32(ring).u32(flags);
        writer.u64(descriptors).u64(used).u64(available).u64(log).done()
    }
}

/// The ring for a descriptor, and whether the message has one: SET_VRING_KICK, SET_VRING_CALL,
/// SET_VRING_ERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFile {
    pub ring: u32,
    /// Whether a descriptor comes with the message.
    pub has_file: bool,
}

impl RingFile {
    const RING: u64 = 0xFF;
    const NO_FILE: u64 = 1 << 8;

    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let word = Fields::of(payload).u64()?;
        Some(Self { ring: (word & Self::RING) as u32, has_file: word & Self::NO_FILE == 0 })
    }

    #[must_use]
    pub fn payload(self) -> Vec<u8> {
        let no_file = if self.has_file { 0 } else { Self::NO_FILE };
        Writer::default().u64(u64::from(self.ring) & Self::RING | no_file).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_come_back() {
        let state = RingState { ring: 1, number: 128 };
        assert_eq!(RingState::parse(&state.payload()), Some(state));
        let addresses =
            RingAddresses { ring: 1, flags: 2, descriptors: 3, used: 4, available: 5, log: 6 };
        assert_eq!(addresses.payload().len(), 40);
        assert_eq!(RingAddresses::parse(&addresses.payload()), Some(addresses));
        assert_eq!(RingAddresses::parse(&addresses.payload()[..39]), None);
        for has_file in [false, true] {
            let file = RingFile { ring: 7, has_file };
            assert_eq!(RingFile::parse(&file.payload()), Some(file));
        }
    }
}
