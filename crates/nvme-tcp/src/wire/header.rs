//! The common header of all PDUs.

use qpair_wire::le::u32_at;
use qpair_wire::u8_at;

/// Types of PDUs.
pub mod kind {
    pub const INIT_REQ: u8 = 0;
    pub const INIT_RESP: u8 = 1;
    pub const HOST_TERM: u8 = 2;
    pub const CONTROLLER_TERM: u8 = 3;
    pub const CAPSULE_CMD: u8 = 4;
    pub const CAPSULE_RESP: u8 = 5;
    pub const H2C_DATA: u8 = 6;
    pub const C2H_DATA: u8 = 7;
    pub const R2T: u8 = 9;
}

/// Flags of headers.
pub mod flag {
    pub const HEADER_DIGEST: u8 = 1;
    pub const DATA_DIGEST: u8 = 2;
    /// The last PDU of a transfer.
    pub const LAST: u8 = 4;
    /// The command has succeeded, and has no response.
    pub const SUCCESS: u8 = 8;
}

/// Reasons for which a connection is terminated (FES).
pub mod fes {
    pub const HEADER_FIELD: u16 = 1;
    pub const SEQUENCE: u16 = 2;
    pub const HEADER_DIGEST: u16 = 3;
    pub const DATA_RANGE: u16 = 4;
    pub const LIMIT: u16 = 5;
    pub const UNSUPPORTED: u16 = 6;
}

/// The digests that both ends have agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    pub header: bool,
    pub data: bool,
}

impl Digests {
    #[must_use]
    pub fn of(bits: u8) -> Self {
        Self { header: bits & 1 != 0, data: bits & 2 != 0 }
    }

    #[must_use]
    pub fn bits(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }

    /// Returns the bytes that follow a header.
    #[must_use]
    pub fn header_bytes(self) -> usize {
        if self.header { 4 } else { 0 }
    }

    /// Returns the bytes that follow data.
    #[must_use]
    pub fn data_bytes(self) -> usize {
        if self.data { 4 } else { 0 }
    }
}

/// A violation of the protocol, after which the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason, one of [`fes`].
    pub status: u16,
    /// The offset of the wrong field in its header, or the wrong digest.
    pub info: u32,
    /// The reason, for people.
    pub why: &'static str,
}

impl Fault {
    #[must_use]
    pub fn new(status: u16, info: u32, why: &'static str) -> Self {
        Self { status, info, why }
    }
}

/// The first bytes of each PDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub kind: u8,
    pub flags: u8,
    /// The bytes of the header with the fields of its type.
    pub header_bytes: u8,
    /// The offset of the data.
    pub data_at: u8,
    /// The bytes of the PDU.
    pub len_bytes: u32,
}

impl Header {
    pub const BYTES: usize = 8;

    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Self {
        Self {
            kind: u8_at(bytes, 0),
            flags: u8_at(bytes, 1),
            header_bytes: u8_at(bytes, 2),
            data_at: u8_at(bytes, 3),
            len_bytes: u32_at(bytes, 4),
        }
    }

    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [self.kind, self.flags, self.header_bytes, self.data_at, 0, 0, 0, 0];
        bytes[4..].copy_from_slice(&self.len_bytes.to_le_bytes());
        bytes
    }
}
