//! The fixed properties of a unit.

use std::time::Instant;

/// The limits of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of bytes of a READ or WRITE.
    pub transfer_bytes_max: u64,
    /// The maximum number of bytes of an UNMAP; 0: the command is not supported.
    pub unmap_bytes_max: u64,
    /// The maximum number of ranges of an UNMAP.
    pub unmap_ranges_max: u32,
    /// The maximum number of bytes of a WRITE SAME; 0: the command is not supported.
    pub write_same_bytes_max: u64,
}

/// The fixed properties of a unit.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The product name, at most 16 characters.
    pub product: &'static str,
    /// The serial number.
    pub serial: String,
    /// The unit's name (NAA).
    pub naa: u64,
    /// The address of its SAS port, if it has one.
    pub port: Option<u64>,
    /// The bytes of a block.
    pub block_bytes: u32,
    /// The number of logical blocks in a physical one, as a power of two.
    pub physical_exponent: u8,
    /// Revolutions a minute; 1: a solid state drive.
    pub rotation: u16,
    /// Whether the unit has a volatile write cache.
    pub has_cache: bool,
    /// Whether the unit is write-protected.
    pub read_only: bool,
    /// Whether unmapped blocks read as zeroes.
    pub reads_zeroes: bool,
    /// The limits of one command.
    pub limits: Limits,
    /// The source of the time for the unit's clock.
    pub now: fn() -> Instant,
    /// Optional operation codes that this unit does not support.
    pub without: &'static [u8],
}

impl Facts {
    pub(crate) fn unmaps(&self) -> bool {
        !self.read_only && self.limits.unmap_bytes_max > 0
    }
}
