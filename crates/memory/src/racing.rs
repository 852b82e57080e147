//! Loads, stores and copies at any alignment that may race: the basis of [`crate::RacyBytes`]. See
//! the crate's safety argument, point 3.
//!
//! On x86-64 these are processor instructions that move sixteen bytes at a time, or strings of
//! bytes. The compiler knows only which memory they read and write. On other processors these are
//! relaxed atomic accesses of whole aligned words, and of bytes at the ends.

#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// The number of bytes that one instruction moves.
#[cfg(target_arch = "x86_64")]
const VECTOR_BYTES: usize = 16;

/// Copies of at least this many bytes use the string instruction, which is faster from this size
/// on.
#[cfg(target_arch = "x86_64")]
const STRING_BYTES: usize = 1024;

/// Loads eight bytes as a little-endian integer.
///
/// # Safety
/// The bytes, and the aligned words that contain them, must be readable. All concurrent writes to
/// them must be stores of this module, atomic stores, or writes from outside the program.
#[inline(always)]
pub(crate) unsafe fn load_u64(source: *const u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let word: u64;
        // SAFETY: reads only the bytes that the caller vouches for. Not `pure`: the bytes may
        // change between two loads.
        unsafe {
            std::arch::asm!(
                "mov {word}, qword ptr [{source}]",
                word = lateout(reg) word,
                source = in(reg) source,
                options(nostack, preserves_flags, readonly)
            );
        }
        word
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let shift = source.addr() % 8;
        // SAFETY: the aligned words in which the bytes begin and end.
        unsafe {
            let low = load_aligned(source.sub(shift));
            if shift == 0 {
                return low;
            }
            let high = load_aligned(source.sub(shift).add(8));
            (low >> (8 * shift)) | (high << (64 - 8 * shift))
        }
    }
}

/// Copies bytes that other threads may be writing.
///
/// # Safety
/// As [`load_u64`] for each of the `len` bytes at `source`. `target` must be writable for `len`
/// bytes, and belong to the caller alone.
#[inline]
pub(crate) unsafe fn copy_out(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: reads are within `len` bytes of `source`, and writes within `len` bytes of `target`.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        move_bytes(source, target, len);
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut at = 0;
        while at + 8 <= len {
            // SAFETY: the eight bytes from `at` on are within both.
            unsafe {
                target.add(at).cast::<[u8; 8]>().write(load_u64(source.add(at)).to_le_bytes())
            };
            at += 8;
        }
        while at < len {
            // SAFETY: `at` is within both.
            unsafe { target.add(at).write((*source.add(at).cast::<AtomicU8>()).load(Relaxed)) };
            at += 1;
        }
    }
}

/// Copies to bytes that other threads may be reading.
///
/// # Safety
/// `source` must be readable for `len` bytes, and nothing may write it. `target` must be writable
/// for `len` bytes, and nothing else may write it. All concurrent reads of it must be loads of this
/// module, atomic loads, or reads from outside the program.
#[inline]
pub(crate) unsafe fn copy_in(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: reads are within `len` bytes of `source`, and writes within `len` bytes of `target`.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        move_bytes(source, target, len);
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut at = 0;
        while at < len {
            // SAFETY: `at`, and the eight bytes from it on where a word is stored, are within both;
            // the word is aligned.
            unsafe {
                let to = target.add(at);
                if to.addr().is_multiple_of(8) && at + 8 <= len {
                    let word = source.add(at).cast::<[u8; 8]>().read();
                    (*to.cast::<AtomicU64>()).store(u64::from_le_bytes(word).to_le(), Relaxed);
                    at += 8;
                } else {
                    (*to.cast::<AtomicU8>()).store(source.add(at).read(), Relaxed);
                    at += 1;
                }
            }
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn load_aligned(source: *const u8) -> u64 {
    // SAFETY: the caller's contract: aligned, and readable as `load_u64` requires.
    u64::from_le(unsafe { (*source.cast::<AtomicU64>()).load(Relaxed) })
}

/// Moves `len` bytes by the processor's string instruction.
///
/// # Safety
/// `source` must be readable and `target` writable for `len` bytes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn move_string(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: reads and writes the ranges that the caller vouches for; the direction flag is clear
    // by the ABI.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") source => _,
            inout("rdi") target => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Moves `len` bytes by the processor's own loads and stores; the last ones may overlap those
/// before.
///
/// # Safety
/// `source` must be readable and `target` writable for `len` bytes. The two must not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn move_bytes(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: each access lies within `len` bytes of its address: whole moves while they fit, then
    // the last one at the end.
    unsafe {
        if len >= STRING_BYTES {
            move_string(source, target, len);
        } else if len >= VECTOR_BYTES {
            let last = len - VECTOR_BYTES;
            let mut at = 0;
            while at < last {
                move_vector(source.add(at), target.add(at));
                at += VECTOR_BYTES;
            }
            move_vector(source.add(last), target.add(last));
        } else if len >= 8 {
            move_u64(source, target);
            move_u64(source.add(len - 8), target.add(len - 8));
        } else {
            for at in 0..len {
                move_u8(source.add(at), target.add(at));
            }
        }
    }
}

/// Moves by one load and one store.
#[cfg(target_arch = "x86_64")]
macro_rules! one_move {
    ($name:ident, $register:ident, $load:literal, $store:literal) => {
        /// # Safety
        /// As [`move_bytes`], for the bytes of one register.
        #[inline(always)]
        unsafe fn $name(source: *const u8, target: *mut u8) {
            // SAFETY: the caller's contract; no flags and no stack are used.
            unsafe {
                std::arch::asm!(
                    $load,
                    $store,
                    value = out($register) _,
                    source = in(reg) source,
                    target = in(reg) target,
                    options(nostack, preserves_flags)
                );
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
one_move!(move_vector, xmm_reg, "movups {value}, [{source}]", "movups [{target}], {value}");
#[cfg(target_arch = "x86_64")]
one_move!(move_u64, reg, "mov {value}, [{source}]", "mov [{target}], {value}");
#[cfg(target_arch = "x86_64")]
one_move!(move_u8, reg_byte, "mov {value}, [{source}]", "mov [{target}], {value}");
