//! References from a page to a child: swizzled to a frame while the child is in memory, a page id
//! otherwise.

use qpair_memory::FrameIndex;

/// Bit 63: the reference is swizzled. Places are smaller than this bit.
const HOT: u64 = 1 << 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swip {
    /// The number of a frame: the child is in memory, or being loaded.
    Hot(FrameIndex),
    /// The [place](crate::place) of a page on the device.
    Cold(u64),
}

impl Swip {
    #[inline(always)]
    pub fn decode(word: u64) -> Self {
        if word & HOT != 0 { Self::Hot(FrameIndex(word as u32)) } else { Self::Cold(word) }
    }

    #[inline(always)]
    pub fn encode(self) -> u64 {
        match self {
            Self::Hot(frame) => HOT | u64::from(frame.0),
            Self::Cold(place) => place,
        }
    }
}
