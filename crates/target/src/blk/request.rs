//! What a request asks for.

use qpair_memory::SharedBytes;

/// Bytes of a request's header.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of a segment of a discard.
pub(crate) const RANGE_BYTES: usize = 16;
/// Bytes of a serial number.
pub(crate) const ID_BYTES: usize = 20;
/// log2 of the unit of addresses.
pub(crate) const SECTOR_SHIFT: u32 = 9;

/// How a request ended, as its last byte says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// The verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    In,
    Out,
    Flush,
    GetId,
    Discard,
    WriteZeroes,
    Other,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) verb: Verb,
    pub(crate) sector: u64,
}

impl Header {
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [first, sector] = [0, 8].map(|at| word(bytes, at));
        let verb = match first as u32 {
            0 => Verb::In,
            1 => Verb::Out,
            4 => Verb::Flush,
            8 => Verb::GetId,
            11 => Verb::Discard,
            13 => Verb::WriteZeroes,
            _ => Verb::Other,
        };
        Self { verb, sector }
    }
}

fn word(bytes: &[u8; 16], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

/// A range to discard or to zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) sector: u64,
    pub(crate) sectors: u32,
    pub(crate) flags: u32,
}

impl Range {
    /// The device may deallocate what it zeroes.
    pub(crate) const UNMAP: u32 = 1;

    pub(crate) fn decode(bytes: &[u8; RANGE_BYTES]) -> Self {
        let [sector, second] = [0, 8].map(|at| word(bytes, at));
        Self { sector, sectors: second as u32, flags: (second >> 32) as u32 }
    }
}

/// Says how a request ended.
pub(crate) fn store_status(bytes: SharedBytes<'_>, at: usize, status: Status) {
    bytes.store_u8(at, status as u8);
}
