//! Little-endian integers in byte strings. Bytes outside read as zero.

use crate::get;

#[inline]
#[must_use]
pub fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(data, at))
}

#[inline]
#[must_use]
pub fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(data, at))
}

#[inline]
#[must_use]
pub fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(data, at))
}
