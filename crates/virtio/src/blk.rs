//! virtio-blk: the configuration, request headers, and statuses (virtio 1.2, 5.2).

use qpair_wire::le::{u16_at, u32_at, u64_at};

/// log2 of the bytes of a sector, which is the unit of addresses.
pub const SECTOR_SHIFT: u32 = 9;
/// Bytes of a serial number.
pub const ID_BYTES: usize = 20;

pub mod feature {
    /// The configuration has the maximum number of segments of a request.
    pub const SEG_MAX: u64 = 1 << 2;
    pub const READ_ONLY: u64 = 1 << 5;
    /// The configuration has the block size.
    pub const BLK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    /// The configuration has the alignment of blocks on the medium.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// The driver can turn the write cache on and off.
    pub const CONFIG_WCE: u64 = 1 << 11;
    /// There may be several queues.
    pub const MQ: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
}

/// The status of a request, which is its last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verb {
    In = 0,
    Out = 1,
    Flush = 4,
    GetId = 8,
    Discard = 11,
    WriteZeroes = 13,
}

impl Verb {
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        let all = [Self::In, Self::Out, Self::Flush, Self::GetId, Self::Discard, Self::WriteZeroes];
        all.into_iter().find(|verb| *verb as u32 == number)
    }
}

fn words(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The verb; `None` if it is not known.
    pub verb: Option<Verb>,
    pub sector: u64,
}

impl Header {
    pub const BYTES: usize = 16;

    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self { verb: Verb::of(u32_at(bytes, 0)), sector: u64_at(bytes, 8) }
    }

    #[must_use]
    pub fn encode(verb: Verb, sector: u64) -> [u8; Self::BYTES] {
        words(u64::from(verb as u32), sector)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub sector: u64,
    pub sectors: u32,
    /// The flags: [`Range::UNMAP`].
    pub flags: u32,
}

impl Range {
    pub const BYTES: usize = 16;
    /// Flag: the device may deallocate the sectors that it zeroes.
    pub const UNMAP: u32 = 1;

    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self { sector: u64_at(bytes, 0), sectors: u32_at(bytes, 8), flags: u32_at(bytes, 12) }
    }

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        words(self.sector, u64::from(self.sectors) | u64::from(self.flags) << 32)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub sectors: u64,
    /// The maximum number of segments of a request's data.
    pub seg_max: u32,
    pub block_bytes: u32,
    /// Whether writes are cached.
    pub write_back: bool,
    pub queues: u16,
    pub discard_sectors_max: u32,
    /// The alignment of discards, sectors.
    pub discard_alignment: u32,
    pub zeroes_sectors_max: u32,
}

impl Config {
    /// The bytes of the configuration that all peers have.
    pub const BYTES: usize = 60;
    /// The offset at which the driver writes whether writes are cached.
    pub const WRITE_BACK_AT: u32 = 32;

    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            sectors: u64_at(bytes, 0),
            seg_max: u32_at(bytes, 12),
            block_bytes: u32_at(bytes, 20),
            write_back: bytes[32] != 0,
            queues: u16_at(bytes, 34),
            discard_sectors_max: u32_at(bytes, 36),
            discard_alignment: u32_at(bytes, 44),
            zeroes_sectors_max: u32_at(bytes, 48),
        }
    }

    /// Encodes the configuration. Discards and zeroes have one segment each; zeroes may deallocate.
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &self.sectors.to_le_bytes());
        put(12, &self.seg_max.to_le_bytes());
        put(20, &self.block_bytes.to_le_bytes());
        put(Self::WRITE_BACK_AT as usize, &[self.write_back.into()]);
        put(34, &self.queues.to_le_bytes());
        put(36, &self.discard_sectors_max.to_le_bytes());
        put(40, &1u32.to_le_bytes());
        put(44, &self.discard_alignment.to_le_bytes());
        put(48, &self.zeroes_sectors_max.to_le_bytes());
        put(52, &1u32.to_le_bytes());
        put(56, &[1]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_back() {
        for number in 0..20 {
            let Some(verb) = Verb::of(number) else { continue };
            let header = Header { verb: Some(verb), sector: 1 << 40 };
            assert_eq!(Header::decode(&Header::encode(verb, 1 << 40)), header);
        }
        assert_eq!(Verb::of(2), None);
        let range = Range { sector: 7, sectors: 8, flags: Range::UNMAP };
        assert_eq!(Range::decode(&range.encode()), range);
        let config = Config {
            sectors: 1 << 33,
            seg_max: 126,
            block_bytes: 4096,
            write_back: true,
            queues: 3,
            discard_sectors_max: 5,
            discard_alignment: 8,
            zeroes_sectors_max: 6,
        };
        assert_eq!(Config::decode(&config.encode()), config);
    }
}
