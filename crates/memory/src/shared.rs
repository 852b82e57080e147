//! Access to memory that other processes write at any time, and that any thread of this one may
//! write. See the crate's safety argument, point 5.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Copies of at least this many bytes use the string instruction.
const STRING_BYTES: usize = 128;

/// Bytes shared with other processes or with a device. Every value read may be torn, and may be
/// anything.
///
/// Offsets are in bytes. Loads and stores are naturally aligned and in bounds; others read as 0 and
/// are dropped. Integers are little-endian, as in registers and queues.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    base: *mut u8,
    len: usize,
    writable: bool,
    lifetime: PhantomData<&'a [u8]>,
}

macro_rules! access {
    ($load:ident, $store:ident, $int:ty, $atomic:ty, $loading:ident, $storing:ident, $load_doc:literal, $store_doc:literal) => {
        #[doc = $load_doc]
        #[inline(always)]
        #[must_use]
        pub fn $load(self, offset: usize) -> $int {
            const SIZE: usize = size_of::<$int>();
            if self.len < SIZE || offset > self.len - SIZE || !offset.is_multiple_of(SIZE) {
                return 0;
            }
            let at = self.base.wrapping_add(offset).cast::<$atomic>();
            // SAFETY: in bounds and aligned by the check above, live for 'a; an atomic (point 5).
            let value = unsafe { (*at).load(Ordering::$loading) };
            <$int>::from_le(value)
        }

        #[doc = $store_doc]
        #[inline(always)]
        pub fn $store(self, offset: usize, value: $int) {
            const SIZE: usize = size_of::<$int>();
            let inside =
                self.len >= SIZE && offset <= self.len - SIZE && offset.is_multiple_of(SIZE);
            if inside && self.writable {
                let at = self.base.wrapping_add(offset).cast::<$atomic>();
                // SAFETY: as for the load.
                unsafe { (*at).store(value.to_le(), Ordering::$storing) };
            }
        }
    };
}

impl<'a> SharedBytes<'a> {
    /// # Safety
    /// `base` must be aligned to 8 and point to `len` bytes that stay mapped for `'a` and are
    /// writable if `writable`. No reference to them may be formed during `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(base: *mut u8, len: usize, writable: bool) -> Self {
        debug_assert!((base as usize).is_multiple_of(8));
        Self { base, len, writable, lifetime: PhantomData }
    }

    /// Returns the address of the byte at `offset`, for devices.
    #[inline(always)]
    pub(crate) fn address(self, offset: usize) -> *mut u8 {
        self.base.wrapping_add(offset)
    }

    #[inline(always)]
    #[must_use]
    pub fn len(self) -> usize {
        self.len
    }

    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Whether the memory can be written. Stores to read-only memory do nothing.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.writable
    }

    access!(load_u8, store_u8, u8, AtomicU8, Relaxed, Relaxed, "Loads a byte.", "Stores a byte.");
    access!(
        load_u16,
        store_u16,
        u16,
        AtomicU16,
        Relaxed,
        Relaxed,
        "Loads two bytes.",
        "Stores two bytes."
    );
    access!(
        load_u32,
        store_u32,
        u32,
        AtomicU32,
        Relaxed,
        Relaxed,
        "Loads four bytes.",
        "Stores four bytes."
    );
    access!(
        load_u64,
        store_u64,
        u64,
        AtomicU64,
        Relaxed,
        Relaxed,
        "Loads eight bytes.",
        "Stores eight bytes."
    );
    access!(
        load_u16_acquire,
        store_u16_release,
        u16,
        AtomicU16,
        Acquire,
        Release,
        "Loads two bytes; what was written before them is seen after.",
        "Stores two bytes; a reader that sees them sees what was written before."
    );
    access!(
        load_u32_acquire,
        store_u32_release,
        u32,
        AtomicU32,
        Acquire,
        Release,
        "Loads four bytes; what was written before them is seen after.",
        "Stores four bytes; a reader that sees them sees what was written before."
    );

    access!(
        load_u64_acquire,
        store_u64_release,
        u64,
        AtomicU64,
        Acquire,
        Release,
        "Loads eight bytes; what was written before them is seen after.",
        "Stores eight bytes; a reader that sees them sees what was written before."
    );

    /// Fetches the cache line at `offset`.
    #[inline(always)]
    pub fn prefetch(self, offset: usize) {
        if offset < self.len {
            crate::racy::prefetch(self.base.wrapping_add(offset));
        }
    }

    /// Fetches the first cache lines of a range that is copied soon: the processor then detects the
    /// pattern, and fetches the rest.
    #[inline(always)]
    pub fn prefetch_start(self, offset: usize) {
        for line in 0..16 {
            self.prefetch(offset.wrapping_add(64 * line));
        }
    }

    /// Returns a part of the bytes, or `None` if it does not lie inside or is not aligned to 8.
    #[inline]
    #[must_use]
    pub fn part(self, offset: usize, len: usize) -> Option<Self> {
        let inside = offset.is_multiple_of(8) && offset <= self.len && len <= self.len - offset;
        // SAFETY: inside `self`, and aligned as `self` is.
        inside.then(|| unsafe { Self::new(self.base.add(offset), len, self.writable) })
    }

    /// Copies bytes from `offset` on into `target`, which is zeroed if they do not all lie inside.
    #[inline]
    pub fn copy_to(self, offset: usize, target: &mut [u8]) {
        if offset > self.len || target.len() > self.len - offset {
            target.fill(0);
            return;
        }
        // SAFETY: inside by the check above; `target` belongs to the caller alone.
        unsafe { copy(self.base.add(offset), target.as_mut_ptr(), target.len()) }
    }

    /// Copies `source` to `offset`; dropped whole if it does not fit.
    #[inline]
    pub fn copy_from(self, offset: usize, source: &[u8]) {
        if offset > self.len || source.len() > self.len - offset || !self.writable {
            return;
        }
        // SAFETY: inside by the check above, and writable; `source` does not change meanwhile.
        unsafe { copy(source.as_ptr(), self.base.add(offset), source.len()) }
    }

    /// Copies `len` bytes between two shared memories that do not overlap; dropped whole if they do
    /// not lie inside both.
    #[inline]
    pub fn copy_between(
        source: Self,
        source_offset: usize,
        target: SharedBytes<'_>,
        target_offset: usize,
        len: usize,
    ) {
        let inside = |of_len: usize, offset: usize| offset <= of_len && len <= of_len - offset;
        if inside(source.len, source_offset) && inside(target.len, target_offset) && target.writable
        {
            // SAFETY: inside both by the check above. If they do overlap, the bytes are some mix,
            // as they may be anyway.
            unsafe { copy(source.base.add(source_offset), target.base.add(target_offset), len) }
        }
    }

    /// Fills `len` bytes from `offset` on with zeroes; dropped whole if they do not lie inside.
    pub fn zero(self, offset: usize, len: usize) {
        if offset > self.len || len > self.len - offset || !self.writable {
            return;
        }
        let end = offset + len;
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
}

/// Copies bytes that others may be writing, as a device would: with the processor's string
/// instruction, or byte by byte.
///
/// # Safety
/// `source` must be readable and `target` writable for `len` bytes.
#[inline]
unsafe fn copy(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= STRING_BYTES {
        // SAFETY: the caller's contract.
        return unsafe { crate::racing::move_string(source, target, len) };
    }
    // SAFETY: the caller's contract.
    unsafe { copy_words(source, target, len) }
}

/// # Safety
/// As [`copy`].
#[inline]
unsafe fn copy_words(source: *const u8, target: *mut u8, len: usize) {
    let mut at = 0;
    if source.addr().is_multiple_of(8) && target.addr().is_multiple_of(8) {
        while at + 8 <= len {
            // SAFETY: in range and aligned. `source` may be memory that was lent for reading only,
            // which is enough for a load.
            unsafe {
                let word = (*source.add(at).cast::<AtomicU64>()).load(Ordering::Relaxed);
                (*target.add(at).cast::<AtomicU64>()).store(word, Ordering::Relaxed);
            }
            at += 8;
        }
    }
    while at < len {
        // SAFETY: in range.
        unsafe {
            let byte = (*source.add(at).cast::<AtomicU8>()).load(Ordering::Relaxed);
            (*target.add(at).cast::<AtomicU8>()).store(byte, Ordering::Relaxed);
        }
        at += 1;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn shared(words: &mut [u64]) -> SharedBytes<'_> {
        // SAFETY: the words are borrowed for as long as the view lives, and aligned to 8.
        unsafe { SharedBytes::new(words.as_mut_ptr().cast(), size_of_val(words), true) }
    }

    #[test]
    fn copies_of_every_length_and_place() {
        let plain: Vec<u8> = (0..512u32).map(|b| (b % 251) as u8).collect();
        for len in [0, 1, 7, 8, 9, 63, 127, 128, 129, 300] {
            for offset in [0, 1, 3, 8, 100] {
                let mut words = vec![0u64; 64];
                let bytes = shared(&mut words);
                bytes.copy_from(offset, &plain[offset..offset + len]);
                let mut out = vec![0xff; len];
                bytes.copy_to(offset, &mut out);
                assert_eq!(out, plain[offset..offset + len]);
                assert_eq!(bytes.load_u8(offset + len), 0);
                let mut other = vec![0u64; 64];
                let target = shared(&mut other);
                SharedBytes::copy_between(bytes, offset, target, 5, len);
                target.copy_to(5, &mut out);
                assert_eq!(out, plain[offset..offset + len]);
            }
        }
    }

    #[test]
    fn what_lies_outside_is_not_there() {
        let mut words = vec![u64::MAX; 2];
        let bytes = shared(&mut words);
        assert_eq!(bytes.load_u32(14), 0, "not aligned");
        assert_eq!(bytes.load_u64(16), 0);
        assert_eq!(bytes.load_u16_acquire(usize::MAX), 0);
        bytes.store_u64(9, 0);
        bytes.copy_from(9, &[0; 8]);
        bytes.zero(9, 8);
        assert!(bytes.part(8, 9).is_none() && bytes.part(4, 4).is_none());
        assert_eq!(bytes.part(8, 8).unwrap().load_u64(0), u64::MAX);
        assert_eq!(words, [u64::MAX; 2]);
    }
}
