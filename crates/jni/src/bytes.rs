//! Byte strings that Java passes: arrays, which are copied, and direct buffers, which are not.

use std::mem::MaybeUninit;

use jni_sys::{jbyteArray, jint, jobject};

use crate::call::Failure;
use crate::env::Env;

/// The length up to which an array is copied to the stack.
const SHORT_LEN: usize = 512;

/// Runs a call with a copy of an array.
///
/// # Safety
/// `array` follows rule 2 of the crate.
#[inline(always)]
pub(crate) unsafe fn with_array<R>(
    env: &Env,
    array: jbyteArray,
    name: &'static str,
    run: impl FnOnce(&[u8]) -> Result<R, Failure>,
) -> Result<R, Failure> {
    if array.is_null() {
        return Err(Failure::Null(name));
    }
    // SAFETY: rule 2, and not null; both rooms have the length of the array.
    unsafe {
        let len = env.len(array);
        if len <= SHORT_LEN {
            let mut room = [MaybeUninit::<u8>::uninit(); SHORT_LEN];
            run(env.copy(array, &mut room[..len]))
        } else {
            run(env.copy(array, Box::new_uninit_slice(len).as_mut()))
        }
    }
}

/// Returns a copy of an array, or nothing for null.
///
/// # Safety
/// `array` follows rule 2 of the crate.
pub(crate) unsafe fn array_or_none(
    env: &Env,
    array: jbyteArray,
) -> Result<Option<Vec<u8>>, Failure> {
    if array.is_null() {
        return Ok(None);
    }
    // SAFETY: rule 2, by the caller.
    unsafe { with_array(env, array, "array", |bytes| Ok(Some(bytes.to_vec()))) }
}

/// A part of a direct buffer.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) at: *mut u8,
    pub(crate) len: usize,
}

impl Part {
    /// Returns the part of a buffer that begins at a position.
    ///
    /// # Safety
    /// `buffer` follows rule 2 of the crate.
    #[inline(always)]
    pub(crate) unsafe fn of(
        env: &Env,
        buffer: jobject,
        position: jint,
        len: jint,
        name: &'static str,
    ) -> Result<Self, Failure> {
        if buffer.is_null() {
            return Err(Failure::Null(name));
        }
        // SAFETY: rule 2, and not null.
        let (base, capacity) = unsafe { env.buffer(buffer) };
        let (Ok(start), Ok(size)) = (usize::try_from(position), usize::try_from(len)) else {
            return Err(Self::outside(name));
        };
        if size == 0 {
            return Ok(Self { at: std::ptr::NonNull::dangling().as_ptr(), len: 0 });
        }
        if base.is_null() {
            return Err(Failure::misuse(format!("The buffer of the {name} has no address")));
        }
        if i64::from(position) + i64::from(len) > capacity {
            return Err(Self::outside(name));
        }
        Ok(Self { at: base.wrapping_add(start), len: size })
    }

    #[cold]
    fn outside(name: &str) -> Failure {
        Failure::misuse(format!(
            "The bounds of the buffer of the {name} changed during the call: use it in one thread"
        ))
    }

    /// Returns whether two parts have bytes in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let ends = |part: Self| part.at.addr() + part.len;
        self.at.addr() < ends(other) && other.at.addr() < ends(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_overlap_where_they_share_a_byte() {
        let mut bytes = [0_u8; 16];
        let mut part = |at: usize, len| Part { at: bytes[at..].as_mut_ptr(), len };
        assert!(part(0, 4).overlaps(part(3, 1)));
        assert!(part(3, 4).overlaps(part(0, 16)));
        assert!(!part(0, 4).overlaps(part(4, 4)));
        assert!(!part(8, 4).overlaps(part(4, 4)));
    }
}
