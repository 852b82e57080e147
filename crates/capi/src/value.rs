//! Values that are lent to C until it releases them.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use crate::call::{call, guarded, needed, set};
use crate::error::{Failure, qpair_error};
use crate::handle::Handles;

static VALUES: Handles<Vec<u8>> = Handles::new(2, "qpair_value");

/// The length that a key without a record has in the place of a value's length.
pub(crate) const NO_RECORD: usize = usize::MAX;

/// A value or text that the library lends: valid until it is released by `qpair_value_release`,
/// whatever happens to the table or store.
pub struct qpair_value {
    _opaque: [u8; 0],
}

fn address(value: &[u8]) -> *const c_void {
    // An empty vector has no memory, and its address is only good for comparisons.
    if value.is_empty() { c"".as_ptr().cast() } else { value.as_ptr().cast() }
}

/// Lends a value, and stores where it is.
///
/// # Safety
/// The pointers follow rule 2 of the crate.
pub(crate) unsafe fn lend(
    value: Option<Vec<u8>>,
    lease: *mut *mut qpair_value,
    data: *mut *const c_void,
    len: *mut usize,
) -> Result<(), Failure> {
    needed(lease, "value")?;
    let (handle, at, length) = match value {
        Some(value) => {
            let (at, length) = (address(&value), value.len());
            (VALUES.insert(value)?, at, length)
        }
        None => (null_mut(), std::ptr::null(), NO_RECORD),
    };
    // SAFETY: rule 2, by the caller.
    unsafe {
        set(lease, handle);
        set(data, at);
        set(len, length);
    }
    Ok(())
}

/// Lends a text. A zero byte follows it.
///
/// # Safety
/// `lease` follows rule 2 of the crate.
pub(crate) unsafe fn lend_text(text: String, lease: *mut *mut qpair_value) -> Result<(), Failure> {
    needed(lease, "text")?;
    let mut bytes = text.into_bytes();
    bytes.push(0);
    let handle = VALUES.insert(bytes)?;
    // SAFETY: rule 2, by the caller.
    unsafe { set(lease, handle) };
    Ok(())
}

/// Copies a value into a caller's buffer, as much as fits, and stores the value's length.
///
/// # Safety
/// `buffer` has room for `capacity` bytes, and `len` follows rule 2 of the crate.
#[inline(always)]
pub(crate) unsafe fn copy(value: &[u8], buffer: *mut c_void, capacity: usize, len: *mut usize) {
    let fits = value.len().min(capacity);
    // SAFETY: by the caller; the value is memory of the library, which C cannot have as a buffer.
    unsafe {
        if fits > 0 {
            buffer.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), fits);
        }
        set(len, value.len());
    }
}

/// Refuses a null buffer that has a capacity, and a missing place for the length.
#[inline(always)]
pub(crate) fn check_buffer(
    buffer: *mut c_void,
    capacity: usize,
    len: *mut usize,
) -> Result<(), Failure> {
    if capacity > 0 {
        needed(buffer, "buffer")?;
    }
    needed(len, "value_len")
}

/// Returns a value's bytes, which are there until it is released. Returns null if `value` is null
/// or was released.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_value_data(value: *const qpair_value) -> *const c_void {
    let at = || VALUES.with(value.cast_mut(), |value| Ok(address(value)));
    guarded(at).unwrap_or(std::ptr::null())
}

/// Returns a value's text, which ends with a zero byte: for values that a function describes as
/// text. It is there until the value is released. Returns null if `value` is null or was released.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_value_text(value: *const qpair_value) -> *const c_char {
    let at = |value: &Vec<u8>| match value.last() {
        Some(0) => Ok(value.as_ptr().cast()),
        _ => Err(Failure::misuse("the value is no text")),
    };
    guarded(|| VALUES.with(value.cast_mut(), at)).unwrap_or(std::ptr::null())
}

/// Returns a value's length in bytes (of a text with its zero byte), or 0 if `value` is null or was
/// released.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_value_len(value: *const qpair_value) -> usize {
    guarded(|| VALUES.with(value.cast_mut(), |value| Ok(value.len()))).unwrap_or(0)
}

/// Releases a value. Its bytes must not be used afterwards. Does nothing if `value` is null.
///
/// Errors: `QPAIR_MISUSE` if it was released before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qpair_value_release(
    value: *mut qpair_value,
    error: *mut *mut qpair_error,
) -> c_int {
    // SAFETY: rule 2 for `error`.
    unsafe {
        call(error, || match value.is_null() {
            true => Ok(()),
            false => VALUES.remove(value, |_| Ok(())).map(drop),
        })
    }
}

pub(crate) fn count() -> usize {
    VALUES.count()
}
