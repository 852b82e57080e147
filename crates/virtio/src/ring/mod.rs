//! Split rings: descriptors, chains that the driver makes available, chains that the device has
//! used.
//!
//! - [`DriverRing`] and [`DeviceRing`] are the two sides of one ring. Each keeps its own indexes,
//!   and accesses the memory by [`Areas`] with every call: the memory may be the driver's own, or a
//!   guest's.
//! - Indexes count modulo 2^16: only their differences are meaningful.
//! - Values from the other side are checked. If the other side lies, the result is [`Broken`], and
//!   the ring cannot be used until the device was reset.

mod chain;
mod device;
mod driver;

pub use chain::{Segment, walk};
pub use device::DeviceRing;
pub use driver::{DriverRing, Used};

use qpair_memory::SharedBytes;

pub const SIZE_MAX: u16 = 32768;
pub const DESCRIPTOR_BYTES: usize = 16;

/// Descriptor flag: the chain continues.
pub const NEXT: u16 = 1;
/// Descriptor flag: the device writes to the memory; otherwise it reads.
pub const WRITE: u16 = 2;
/// Descriptor flag: the memory holds a table of descriptors.
pub const INDIRECT: u16 = 4;

/// Flag that asks the other side to be quiet: the driver's asks for no interrupts, the device's for
/// no notifications.
const QUIET: u16 = 1;

/// Whether `event`, the index that the other side waits for, lies between `before` and `now`
/// (VIRTIO_F_EVENT_IDX).
fn is_passed(event: u16, before: u16, now: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

/// The error of a ring whose other side has violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    pub address: u64,
    pub len: u32,
    /// The flags: [`NEXT`], [`WRITE`], [`INDIRECT`].
    pub flags: u16,
    pub next: u16,
}

impl Descriptor {
    /// Loads the descriptor at an index of a table.
    #[inline]
    #[must_use]
    pub fn load(table: Area<'_>, index: u16) -> Self {
        let at = table.at + usize::from(index) * DESCRIPTOR_BYTES;
        if at.is_multiple_of(8) {
            return Self::of_words(table.bytes.load_u64(at), table.bytes.load_u64(at + 8));
        }
        let mut bytes = [0; DESCRIPTOR_BYTES];
        table.bytes.copy_to(at, &mut bytes);
        Self::decode(&bytes)
    }

    /// Stores the descriptor at an index of a table.
    #[inline]
    pub fn store(self, table: Area<'_>, index: u16) {
        let at = table.at + usize::from(index) * DESCRIPTOR_BYTES;
        let high = u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48;
        table.bytes.store_u64(at, self.address);
        table.bytes.store_u64(at + 8, high);
    }

    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let (low, high) = bytes.split_at(8);
        let word = |half: &[u8]| half.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        Self::of_words(word(low), word(high))
    }

    #[inline]
    fn of_words(low: u64, high: u64) -> Self {
        Self {
            address: low,
            len: high as u32,
            flags: (high >> 32) as u16,
            next: (high >> 48) as u16,
        }
    }
}

/// A place in memory that both sides access.
#[derive(Clone, Copy)]
pub struct Area<'a> {
    pub bytes: SharedBytes<'a>,
    /// The offset of the first byte in that memory.
    pub at: usize,
}

impl<'a> Area<'a> {
    #[must_use]
    pub fn new(bytes: SharedBytes<'a>, at: usize) -> Self {
        Self { bytes, at }
    }
}

#[derive(Clone, Copy)]
pub struct Areas<'a> {
    pub descriptors: Area<'a>,
    /// The available ring, which the driver writes.
    pub available: Area<'a>,
    /// The used ring, which the device writes.
    pub used: Area<'a>,
}

/// The offset of the index in the available and the used ring; the next constant is that of their
/// entries.
const INDEX_AT: usize = 2;
const ENTRIES_AT: usize = 4;
/// The bytes of an entry of the used ring.
const USED_BYTES: usize = 8;

/// The lengths of a ring's areas, and their offsets if they lie one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    size: u16,
}

impl Layout {
    /// Makes the layout of a ring of `size` entries: a power of two up to [`SIZE_MAX`].
    #[must_use]
    pub fn new(size: u16) -> Option<Self> {
        (size.is_power_of_two() && size <= SIZE_MAX).then_some(Self { size })
    }

    #[must_use]
    pub fn size(self) -> u16 {
        self.size
    }

    #[must_use]
    pub fn descriptors_bytes(self) -> usize {
        usize::from(self.size) * DESCRIPTOR_BYTES
    }

    /// Returns the bytes of the available ring, including the word of the event index.
    #[must_use]
    pub fn available_bytes(self) -> usize {
        ENTRIES_AT + 2 * usize::from(self.size) + 2
    }

    /// Returns the bytes of the used ring, including the word of the event index.
    #[must_use]
    pub fn used_bytes(self) -> usize {
        ENTRIES_AT + USED_BYTES * usize::from(self.size) + 2
    }

    #[must_use]
    pub fn available_at(self) -> usize {
        self.descriptors_bytes()
    }

    /// Returns the offset of the used ring: on a cache line of its own, since the other side writes
    /// it.
    #[must_use]
    pub fn used_at(self) -> usize {
        (self.available_at() + self.available_bytes()).next_multiple_of(64)
    }

    #[must_use]
    pub fn bytes(self) -> usize {
        (self.used_at() + self.used_bytes()).next_multiple_of(64)
    }

    /// Returns the areas one after the other from the first byte on, which must be aligned to 16.
    #[inline]
    #[must_use]
    pub fn areas(self, bytes: SharedBytes<'_>) -> Areas<'_> {
        Areas {
            descriptors: Area::new(bytes, 0),
            available: Area::new(bytes, self.available_at()),
            used: Area::new(bytes, self.used_at()),
        }
    }
}

#[cfg(test)]
mod tests;
