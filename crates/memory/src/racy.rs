//! Reads that race with writers, and the writes they may race with.
//!
//! An optimistic reader reads first, and then checks whether the values were stable. Until then any
//! value is possible, so nothing here panics or trusts an offset: bytes outside read as zero, and
//! stores outside are dropped. See the crate's safety argument, point 3.

use std::cmp::Ordering as Cmp;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::racing;

/// Bytes that other threads may be writing; every value read may be torn.
///
/// Offsets are in bytes. Loads must be naturally aligned and in bounds; others read as 0.
#[derive(Clone, Copy)]
pub struct RacyBytes<'a> {
    base: *const u8,
    len: usize,
    lifetime: PhantomData<&'a [u8]>,
}

/// [`RacyBytes`] for their only writer; only readers may race with its stores.
pub struct RacyBytesMut<'a> {
    base: *mut u8,
    len: usize,
    lifetime: PhantomData<&'a mut [u8]>,
}

macro_rules! load {
    ($name:ident, $int:ty, $atomic:ty) => {
        /// Loads one little-endian integer at `offset`; 0 if it is misaligned or out of bounds.
        #[inline(always)]
        #[must_use]
        pub fn $name(self, offset: usize) -> $int {
            const SIZE: usize = size_of::<$int>();
            if offset >= self.len || !offset.is_multiple_of(SIZE) {
                return 0;
            }
            // SAFETY: aligned, and in bounds by the check above: base and length are multiples of 8
            // by the constructors' contract, so an aligned access that begins inside ends inside.
            // The memory is live for 'a; racing stores are atomic (point 3).
            let value = unsafe { (*self.base.add(offset).cast::<$atomic>()).load(Relaxed) };
            <$int>::from_le(value)
        }
    };
}

macro_rules! store {
    ($name:ident, $int:ty, $atomic:ty) => {
        /// Stores one little-endian integer at `offset`; dropped if misaligned or out of bounds.
        #[inline(always)]
        pub fn $name(&mut self, offset: usize, value: $int) {
            const SIZE: usize = size_of::<$int>();
            let inside = offset < self.len && offset.is_multiple_of(SIZE);
            debug_assert!(inside, "store of {SIZE} bytes at {offset} of {}", self.len);
            if inside {
                // SAFETY: as for the load; `&mut self` is the only writer (point 2).
                unsafe { (*self.base.add(offset).cast::<$atomic>()).store(value.to_le(), Relaxed) }
            }
        }
    };
}

impl<'a> RacyBytes<'a> {
    /// # Safety
    /// `base` is aligned to 8 and points to `len` bytes, a multiple of 8, that stay mapped for `'a`
    /// and that, during `'a`, are written only by atomic stores, by copies of `racing.rs`, or from
    /// outside the program.
    #[inline(always)]
    pub(crate) unsafe fn new(base: *const u8, len: usize) -> Self {
        debug_assert!((base as usize | len).is_multiple_of(8));
        Self { base, len, lifetime: PhantomData }
    }

    #[inline(always)]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a block of memory is never empty")]
    pub fn len(self) -> usize {
        self.len
    }

    load!(load_u8, u8, AtomicU8);
    load!(load_u16, u16, AtomicU16);
    load!(load_u32, u32, AtomicU32);
    load!(load_u64, u64, AtomicU64);

    /// Loads two bytes at any alignment.
    #[inline(always)]
    #[must_use]
    pub fn load_u16_unaligned(self, offset: usize) -> u16 {
        if offset.is_multiple_of(2) {
            self.load_u16(offset)
        } else {
            u16::from_le_bytes([self.load_u8(offset), self.load_u8(offset.wrapping_add(1))])
        }
    }

    /// Loads eight bytes at any alignment as a little-endian integer; 0 if they are out of bounds.
    #[inline(always)]
    fn load_u64_unaligned(self, offset: usize) -> u64 {
        if offset > self.len.wrapping_sub(8) || self.len < 8 {
            return 0;
        }
        // SAFETY: eight bytes in bounds by the check above; live for 'a, and racing stores are
        // those that `new` allows (point 3).
        unsafe { racing::load_u64(self.base.add(offset)) }
    }

    /// Loads the first eight of `len` bytes at `offset` as a big-endian number, padded with zeroes.
    /// The numbers sort in the order of the bytes they were loaded from. Returns 0 if the bytes end
    /// within the first eight bytes of the memory.
    #[inline(always)]
    #[must_use]
    pub fn load_head(self, offset: usize, len: usize) -> u64 {
        let len = len.min(8);
        // Load the eight bytes that end with these, because those after them may lie outside.
        match (offset.wrapping_add(len)).checked_sub(8) {
            Some(from) if len > 0 => {
                self.load_u64_unaligned(from).swap_bytes() << (64 - 8 * len as u32)
            }
            _ => 0,
        }
    }

    /// Copies bytes from `offset` on into `target`; bytes out of bounds read as 0.
    #[inline]
    pub fn copy_to(self, offset: usize, target: &mut [u8]) {
        if offset > self.len || target.len() > self.len - offset {
            target.fill(0);
            return;
        }
        // SAFETY: in bounds by the check above, live for 'a, and racing stores are those that `new`
        // allows (point 3); the target is a slice of that length.
        unsafe { racing::copy_out(self.base.add(offset), target.as_mut_ptr(), target.len()) }
    }

    /// Appends `len` bytes from `offset` on to `target`; bytes out of bounds read as 0. Appends at
    /// most as many bytes as there are.
    #[inline]
    pub fn append_to(self, offset: usize, len: usize, target: &mut Vec<u8>) {
        let len = len.min(self.len);
        let start = target.len();
        if offset > self.len - len {
            target.resize(start + len, 0);
            return;
        }
        target.reserve(len);
        // SAFETY: in bounds by the check above; `len` bytes after `start` are reserved, and all are
        // written before the length includes them.
        unsafe {
            racing::copy_out(self.base.add(offset), target.as_mut_ptr().add(start), len);
            target.set_len(start + len);
        }
    }

    /// Compares `len` bytes at `offset` with `other`, lexicographically, as slices compare.
    #[inline]
    #[must_use]
    pub fn compare(self, offset: usize, len: usize, other: &[u8]) -> Cmp {
        let len = len.min(self.len.saturating_sub(offset));
        let common = len.min(other.len());
        let mut at = 0;
        while at + 8 <= common {
            let ours = self.load_u64_unaligned(offset + at).swap_bytes();
            let mut word = [0; 8];
            word.copy_from_slice(&other[at..at + 8]);
            let theirs = u64::from_be_bytes(word);
            if ours != theirs {
                return ours.cmp(&theirs);
            }
            at += 8;
        }
        while at < common {
            let ours = self.load_u8(offset + at);
            if ours != other[at] {
                return ours.cmp(&other[at]);
            }
            at += 1;
        }
        len.cmp(&other.len())
    }

    /// Asks the processor to fetch the cache line at `offset`; a hint without effect on values.
    #[inline(always)]
    pub fn prefetch(self, offset: usize) {
        if offset < self.len {
            // SAFETY: in bounds; a prefetch reads nothing that the program can see.
            prefetch(unsafe { self.base.add(offset) });
        }
    }
}

impl<'a> From<&'a [u64]> for RacyBytes<'a> {
    /// Views memory at rest (a page image in a tool) as racy bytes.
    fn from(words: &'a [u64]) -> Self {
        // SAFETY: aligned to 8 by the type, shared and unwritten for 'a.
        unsafe { Self::new(words.as_ptr().cast(), size_of_val(words)) }
    }
}

impl<'a> RacyBytesMut<'a> {
    /// # Safety
    /// As [`RacyBytes::new`]. The caller must also be the only writer for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(base: *mut u8, len: usize) -> Self {
        debug_assert!((base as usize | len).is_multiple_of(8));
        Self { base, len, lifetime: PhantomData }
    }

    /// Returns the same bytes for reading.
    #[inline(always)]
    #[must_use]
    pub fn read(&self) -> RacyBytes<'_> {
        // SAFETY: the same memory; nothing writes it while `self` is borrowed.
        unsafe { RacyBytes::new(self.base, self.len) }
    }

    store!(store_u8, u8, AtomicU8);
    store!(store_u16, u16, AtomicU16);
    store!(store_u32, u32, AtomicU32);
    store!(store_u64, u64, AtomicU64);

    /// Stores two bytes at any alignment.
    #[inline(always)]
    pub fn store_u16_unaligned(&mut self, offset: usize, value: u16) {
        if offset.is_multiple_of(2) {
            self.store_u16(offset, value);
        } else {
            let [low, high] = value.to_le_bytes();
            self.store_u8(offset, low);
            self.store_u8(offset + 1, high);
        }
    }

    /// Copies `source` to `offset`. Dropped whole if it does not fit.
    #[inline]
    pub fn copy_from(&mut self, offset: usize, source: &[u8]) {
        let fits = offset <= self.len && source.len() <= self.len - offset;
        debug_assert!(fits, "{} bytes at {offset} of {}", source.len(), self.len);
        if !fits {
            return;
        }
        // SAFETY: in bounds by the check above; `&mut self` is the only writer (point 2), and
        // readers that race are those that `RacyBytes::new` allows.
        unsafe { racing::copy_in(source.as_ptr(), self.base.add(offset), source.len()) }
    }

    /// Fills `len` bytes from `offset` on with zeroes.
    pub fn zero(&mut self, offset: usize, len: usize) {
        let end = offset.saturating_add(len).min(self.len);
        let mut at = offset;
        while at < end {
            if at.is_multiple_of(8) && at + 8 <= end {
                self.store_u64(at, 0);
                at += 8;
            } else {
                self.store_u8(at, 0);
                at += 1;
            }
        }
    }

    /// Moves `len` bytes from `source` to `target`; the ranges may overlap. Both are multiples of
    /// 8, as is `len`.
    pub fn move_words(&mut self, source: usize, target: usize, len: usize) {
        debug_assert!(
            source.is_multiple_of(8) && target.is_multiple_of(8) && len.is_multiple_of(8)
        );
        let inside = |from: usize| from <= self.len && len <= self.len - from;
        if !inside(source) || !inside(target) || !(source | target | len).is_multiple_of(8) {
            return;
        }
        let base = self.base;
        // SAFETY: both ranges are in bounds and consist of whole aligned words by the checks above;
        // `&mut self` is the only writer (point 2), and racing readers see atomic stores.
        let step = |i: usize| unsafe {
            let word = (*base.add(source + i).cast::<AtomicU64>()).load(Relaxed);
            (*base.add(target + i).cast::<AtomicU64>()).store(word, Relaxed);
        };
        if source > target {
            (0..len).step_by(8).for_each(step);
        } else {
            (0..len / 8).rev().for_each(|i| step(8 * i));
        }
    }
}

/// Asks the processor to fetch the cache lines that `bytes` lie in; a hint without effect on
/// values.
#[inline]
pub fn prefetch_bytes(bytes: &[u8]) {
    for line in bytes.chunks(64).map(<[u8]>::as_ptr).chain(bytes.last().map(std::ptr::from_ref)) {
        prefetch(line);
    }
}

/// Fetches the cache line of `address` into all levels.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is defined and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn memory() -> Vec<u64> {
        (0..8u64)
            .map(|i| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|b| b + 8 * i as u8)))
            .collect()
    }

    #[test]
    fn copies_at_every_offset_and_length() {
        let words = memory();
        let bytes = RacyBytes::from(&words[..]);
        for offset in 0..=64 {
            for len in 0..=64 - offset {
                let mut out = vec![0xff; len];
                bytes.copy_to(offset, &mut out);
                let expected: Vec<u8> = (offset..offset + len).map(|b| b as u8).collect();
                assert_eq!(out, expected, "offset {offset} len {len}");
                assert_eq!(bytes.compare(offset, len, &expected), Cmp::Equal);
            }
        }
    }

    #[test]
    fn stores_at_every_offset_and_length() {
        for offset in 0..=64usize {
            for len in 0..=64 - offset {
                let mut words = memory();
                // SAFETY: `words` is ours alone, aligned to 8, and outlives the view.
                let mut bytes = unsafe { RacyBytesMut::new(words.as_mut_ptr().cast(), 64) };
                bytes.copy_from(offset, &vec![0xaa; len]);
                for at in 0..64 {
                    let inside = at >= offset && at < offset + len;
                    assert_eq!(bytes.read().load_u8(at), if inside { 0xaa } else { at as u8 });
                }
                bytes.zero(offset, len);
                for at in offset..offset + len {
                    assert_eq!(bytes.read().load_u8(at), 0);
                }
            }
        }
    }

    #[test]
    fn compares_as_slices_do() {
        let words = memory();
        let bytes = RacyBytes::from(&words[..]);
        let plain: Vec<u8> = (0..64).collect();
        for offset in 0..40 {
            for len in 0..20 {
                for other in [
                    &[][..],
                    &[0],
                    &plain[offset..offset + 3],
                    &plain[offset..offset + 19],
                    &[255; 30],
                ] {
                    let expected = plain[offset..offset + len].cmp(other);
                    assert_eq!(bytes.compare(offset, len, other), expected);
                }
            }
        }
    }

    #[test]
    fn heads_sort_as_bytes_do() {
        let words = memory();
        let bytes = RacyBytes::from(&words[..]);
        let plain: Vec<u8> = (0..64).collect();
        for offset in 8..56 {
            for len in 0..=64 - offset {
                let mut head = [0; 8];
                let many = len.min(8);
                head[..many].copy_from_slice(&plain[offset..offset + many]);
                assert_eq!(bytes.load_head(offset, len), u64::from_be_bytes(head));
            }
        }
        assert_eq!((bytes.load_head(2, 4), bytes.load_head(usize::MAX, 8)), (0, 0));
    }

    #[test]
    fn outside_reads_as_zero() {
        let words = memory();
        let bytes = RacyBytes::from(&words[..]);
        assert_eq!(bytes.load_u64(64), 0);
        assert_eq!(bytes.load_u32(usize::MAX), 0);
        assert_eq!(bytes.load_u16(63), 0);
        let mut out = [7; 4];
        bytes.copy_to(62, &mut out);
        assert_eq!(out, [0; 4]);
        let mut grown = vec![];
        bytes.append_to(60, usize::MAX, &mut grown);
        assert_eq!(grown.len(), 64);
    }
}
