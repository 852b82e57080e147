//! Split rings: descriptors, what the driver makes available, what the device has used.
//!
//! - [`DriverRing`] and [`DeviceRing`] are the two sides of one ring. Each keeps its own indexes, and reaches the memory by [`Areas`]
//!   with every call: it may be the driver's own, or that of a guest.
//! - Indexes run on modulo 2^16: only their differences mean something.
//! - What the other side says is checked. A ring whose other side lies is [`Broken`], and of no use until the device was reset.

mod chain;
mod device;
mod driver;

pub use chain::{Segment, walk};
pub use device::DeviceRing;
pub use driver::{DriverRing, Used};

use qpair_memory::SharedBytes;

/// Entries of a ring, at most.
pub const SIZE_MAX: u16 = 32768;
/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;

/// A descriptor's flags: the chain goes on.
pub const NEXT: u16 = 1;
/// The device writes there; else it reads.
pub const WRITE: u16 = 2;
/// It names a table of descriptors.
pub const INDIRECT: u16 = 4;

/// The driver's flags: it asks for no interrupts. The device's: it asks for no notifications.
const QUIET: u16 = 1;

/// Whether the index that the other side waits for lies among those from `before` up to `now` (VIRTIO_F_EVENT_IDX).
fn is_passed(event: u16, before: u16, now: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

/// The other side has said what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// A descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Where its bytes are.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// [`NEXT`], [`WRITE`], [`INDIRECT`].
    pub flags: u16,
    /// The next one of the chain.
    pub next: u16,
}

impl Descriptor {
    /// The descriptor at an index of a table.
    #[inline]
    #[must_use]
    pub fn load(table: Area<'_>, index: u16) -> Self {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        table.bytes.copy_to(table.at + usize::from(index) * DESCRIPTOR_BYTES, &mut bytes);
        Self::decode(&bytes)
    }

    /// Stores it at an index of a table.
    #[inline]
    pub fn store(self, table: Area<'_>, index: u16) {
        let at = table.at + usize::from(index) * DESCRIPTOR_BYTES;
        let high = u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48;
        table.bytes.store_u64(at, self.address);
        table.bytes.store_u64(at + 8, high);
    }

    /// From bytes.
    #[must_use]
    pub fn decode(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let [low, high] =
            [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte])));
        Self {
            address: low,
            len: high as u32,
            flags: (high >> 32) as u16,
            next: (high >> 48) as u16,
        }
    }
}

/// A place in memory that both sides reach.
#[derive(Clone, Copy)]
pub struct Area<'a> {
    /// The memory around it.
    pub bytes: SharedBytes<'a>,
    /// Its first byte there.
    pub at: usize,
}

impl<'a> Area<'a> {
    /// A place.
    #[must_use]
    pub fn new(bytes: SharedBytes<'a>, at: usize) -> Self {
        Self { bytes, at }
    }
}

/// The three areas of a ring.
#[derive(Clone, Copy)]
pub struct Areas<'a> {
    /// Descriptors.
    pub descriptors: Area<'a>,
    /// What the driver makes available.
    pub available: Area<'a>,
    /// What the device has used.
    pub used: Area<'a>,
}

/// Where the index is in the areas that have one, and where their entries begin.
const INDEX_AT: usize = 2;
const ENTRIES_AT: usize = 4;
/// Bytes of an entry of what was used.
const USED_BYTES: usize = 8;

/// How long areas are, and where they are if they lie one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    size: u16,
}

impl Layout {
    /// Of a ring of `size` entries: a power of two up to [`SIZE_MAX`].
    #[must_use]
    pub fn new(size: u16) -> Option<Self> {
        (size.is_power_of_two() && size <= SIZE_MAX).then_some(Self { size })
    }

    /// Entries.
    #[must_use]
    pub fn size(self) -> u16 {
        self.size
    }

    /// Bytes of the descriptors.
    #[must_use]
    pub fn descriptors_bytes(self) -> usize {
        usize::from(self.size) * DESCRIPTOR_BYTES
    }

    /// Bytes of what is available, with the word of the event index.
    #[must_use]
    pub fn available_bytes(self) -> usize {
        ENTRIES_AT + 2 * usize::from(self.size) + 2
    }

    /// Bytes of what was used, with the word of the event index.
    #[must_use]
    pub fn used_bytes(self) -> usize {
        ENTRIES_AT + USED_BYTES * usize::from(self.size) + 2
    }

    /// Where what is available begins.
    #[must_use]
    pub fn available_at(self) -> usize {
        self.descriptors_bytes()
    }

    /// Where what was used begins: on a line of its own, since the other side writes it.
    #[must_use]
    pub fn used_at(self) -> usize {
        (self.available_at() + self.available_bytes()).next_multiple_of(64)
    }

    /// Bytes of all.
    #[must_use]
    pub fn bytes(self) -> usize {
        (self.used_at() + self.used_bytes()).next_multiple_of(64)
    }

    /// The areas, one after the other from the first byte on, which is aligned to 16.
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
