//! Requests of the transmission phase: compact headers of 28 bytes, extended ones of 32.

use qpair_wire::be;

/// The magic number of a compact request.
pub const COMPACT: u32 = 0x2560_9513;
/// The magic number of an extended request.
pub const EXTENDED: u32 = 0x21E4_1C71;
/// The bytes of a compact header.
pub const COMPACT_BYTES: usize = 28;
/// The bytes of an extended header.
pub const EXTENDED_BYTES: usize = 32;

/// Command flags.
pub mod flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
    /// A command that this implementation does not know.
    Other(u16),
}

impl Kind {
    fn of(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
            Self::Other(number) => number,
        }
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub flags: u16,
    pub kind: Kind,
    /// The client's number of the request, which the reply repeats.
    pub cookie: u64,
    pub offset: u64,
    pub len: u64,
}

/// Returns the bytes of a header.
#[must_use]
pub fn header_bytes(extended: bool) -> usize {
    if extended { EXTENDED_BYTES } else { COMPACT_BYTES }
}

impl Request {
    /// Returns the header at the front of `data`, which has all its bytes. Returns `None` if the
    /// magic number is wrong: the stream is then out of step.
    #[must_use]
    pub fn decode(data: &[u8], extended: bool) -> Option<Self> {
        let magic = if extended { EXTENDED } else { COMPACT };
        if data.len() < header_bytes(extended) || be::u32_at(data, 0) != magic {
            return None;
        }
        Some(Self {
            flags: be::u16_at(data, 4),
            kind: Kind::of(be::u16_at(data, 6)),
            cookie: be::u64_at(data, 8),
            offset: be::u64_at(data, 16),
            len: if extended { be::u64_at(data, 24) } else { be::u32_at(data, 24).into() },
        })
    }

    /// Appends the header.
    pub fn put(&self, into: &mut Vec<u8>, extended: bool) {
        into.extend((if extended { EXTENDED } else { COMPACT }).to_be_bytes());
        into.extend(self.flags.to_be_bytes());
        into.extend(self.kind.number().to_be_bytes());
        into.extend(self.cookie.to_be_bytes());
        into.extend(self.offset.to_be_bytes());
        if extended {
            into.extend(self.len.to_be_bytes());
        } else {
            into.extend((self.len as u32).to_be_bytes());
        }
    }

    /// Returns the bytes of payload that follow the header.
    #[must_use]
    pub fn payload_bytes(&self, extended: bool) -> u64 {
        let has = self.kind == Kind::Write || extended && self.flags & flag::PAYLOAD_LEN != 0;
        if has { self.len } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        for number in 0..10 {
            let (kind, cookie) = (Kind::of(number), 0x0102_0304_0506_0708);
            let request = Request { flags: flag::FUA, kind, cookie, offset: 1 << 40, len: 4096 };
            for extended in [false, true] {
                let mut bytes = Vec::new();
                request.put(&mut bytes, extended);
                assert_eq!(bytes.len(), header_bytes(extended));
                assert_eq!(Request::decode(&bytes, extended), Some(request));
                assert_eq!(Request::decode(&bytes, !extended), None);
                assert_eq!(Request::decode(&bytes[..27], extended), None);
            }
        }
    }
}
