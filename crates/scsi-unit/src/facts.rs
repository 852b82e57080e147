//! What a unit is, as long as it lives.

use std::time::Instant;

/// Most that one command may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a READ or WRITE.
    pub transfer_bytes_max: u64,
    /// Bytes of an UNMAP; 0: it knows none.
    pub unmap_bytes_max: u64,
    /// Ranges of an UNMAP.
    pub unmap_ranges_max: u32,
    /// Bytes of a WRITE SAME; 0: it knows none.
    pub write_same_bytes_max: u64,
}

/// What a unit is.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its product, at most 16 characters.
    pub product: &'static str,
    /// Its serial number.
    pub serial: String,
    /// Its name (NAA).
    pub naa: u64,
    /// The address of its SAS port, if it has one.
    pub port: Option<u64>,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of a physical one, as a power of two.
    pub physical_exponent: u8,
    /// 1: a solid state drive; else revolutions a minute.
    pub rotation: u16,
    /// Whether it has a volatile write cache.
    pub has_cache: bool,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// Whether what is unmapped reads as zeroes.
    pub reads_zeroes: bool,
    /// Most that one command may ask for.
    pub limits: Limits,
    /// The time that its clock goes by.
    pub now: fn() -> Instant,
    /// Operation codes that a disk may do without, and this one does.
    pub without: &'static [u8],
}

impl Facts {
    pub(crate) fn unmaps(&self) -> bool {
        !self.read_only && self.limits.unmap_bytes_max > 0
    }
}
