//! Loads, stores and copies at any alignment that may race: what [`crate::RacyBytes`] is made of.
//! See the crate's safety argument, point 3.
//!
//! On x86-64 they are instructions of the processor, sixteen bytes at a time or strings of them,
//! which the compiler knows nothing about but where they read and write; elsewhere relaxed atomic
//! accesses of whole aligned words, and of bytes at the ends.

#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Bytes that one instruction moves.
#[cfg(target_arch = "x86_64")]
const VECTOR_BYTES: usize = 16;

/// Copies of at least this many bytes go by the string instruction: from there on it is the faster
/// one.
#[cfg(target_arch = "x86_64")]
const STRING_BYTES: usize = 1024;

/// Loads eight bytes as a little-endian integer.
///
/// # Safety
/// They can be read, and so can the aligned words that they lie in; every writer that may write
/// them meanwhile does so by stores of this module, by atomic ones or from outside the program.
#[inline(always)]
pub(crate) unsafe fn load_u64(source: *const u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let word: u64;
        // SAFETY: reads what the caller vouches for, and nothing else. Not `pure`: the bytes may
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
        // SAFETY: the aligned word in which the bytes begin, and that in which they end.
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

/// Copies bytes that others may be writing.
///
/// # Safety
/// As [`load_u64`] for each of the `len` bytes at `source`; `target` can be written for as many and
/// belongs to the caller alone.
#[inline]
pub(crate) unsafe fn copy_out(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: what is read is within `len` bytes of `source`, what is written within as many of
    // `target`.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        move_bytes(source, target, len);
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut at = 0;
        while at + 8 <= len {
            // SAFETY: eight bytes from `at` on are within both.
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

/// Copies to bytes that others may be reading.
///
/// # Safety
/// `source` can be read for `len` bytes and nothing writes it; `target` can be written for as many,
/// nothing else writes it, and every reader that reads it meanwhile does so by loads of this
/// module, by atomic ones or from outside the program.
#[inline]
pub(crate) unsafe fn copy_in(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: what is read is within `len` bytes of `source`, what is written within as many of
    // `target`.
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
    // SAFETY: the caller's: aligned, and readable as `load_u64` asks.
    u64::from_le(unsafe { (*source.cast::<AtomicU64>()).load(Relaxed) })
}

/// Moves `len` bytes by the processor's string instruction.
///
/// # Safety
/// `source` can be read and `target` written for `len` bytes.
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
/// `source` can be read and `target` written for `len` bytes; the two do not overlap.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn move_bytes(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: each access lies within `len` bytes of its address: whole ones while they fit, then
    // the last that fits from the end.
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
            // SAFETY: the caller's; no flags, no stack.
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
