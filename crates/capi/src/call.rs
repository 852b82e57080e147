//! The frame of each call: panics, errors, and the values that C passes.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use crate::code::{QPAIR_OK, QPAIR_PANICKED};
use crate::error::{Failure, qpair_error};

/// Runs the body of a function. A panic becomes an error.
#[inline(always)]
pub(crate) fn guarded<R>(run: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let failure = Failure::panicked(&*panic);
            // Dropping the panic's value could panic again.
            std::mem::forget(panic);
            Err(failure)
        }
    }
}

/// Runs the body of a function and returns its code. Stores the error in `error`, if the caller has
/// given a place for it, and null after a success.
///
/// # Safety
/// `error` follows rule 2 of the crate.
#[inline(always)]
pub(crate) unsafe fn call(
    error: *mut *mut qpair_error,
    run: impl FnOnce() -> Result<(), Failure>,
) -> c_int {
    match guarded(run) {
        Ok(()) => {
            // SAFETY: rule 2 for `error`.
            unsafe { set(error, null_mut()) };
            QPAIR_OK
        }
        // SAFETY: rule 2 for `error`.
        Err(failure) => unsafe { fail(error, failure) },
    }
}

/// # Safety
/// `error` follows rule 2 of the crate.
#[cold]
unsafe fn fail(error: *mut *mut qpair_error, failure: Failure) -> c_int {
    let code = failure.code();
    let handle = || if error.is_null() { null_mut() } else { failure.into_handle() };
    match catch_unwind(AssertUnwindSafe(handle)) {
        Ok(handle) => {
            // SAFETY: rule 2 for `error`.
            unsafe { set(error, handle) };
            code
        }
        Err(panic) => {
            std::mem::forget(panic);
            // SAFETY: rule 2 for `error`.
            unsafe { set(error, null_mut()) };
            QPAIR_PANICKED
        }
    }
}

/// Stores a result, if the caller has given a place for it.
///
/// # Safety
/// `place` follows rule 2 of the crate.
#[inline(always)]
pub(crate) unsafe fn set<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, so that rule 2 makes it writable.
        unsafe { place.write(value) };
    }
}

/// Refuses a null pointer to a result that the caller cannot do without.
#[inline(always)]
pub(crate) fn needed<T>(place: *mut T, name: &str) -> Result<(), Failure> {
    if place.is_null() { Err(missing(name)) } else { Ok(()) }
}

#[cold]
pub(crate) fn missing(name: &str) -> Failure {
    Failure::misuse(format!("the argument {name} is null"))
}

/// Returns bytes that C passes.
///
/// # Safety
/// `data` and `len` follow rule 1 of the crate, for all of `'a`.
#[inline(always)]
pub(crate) unsafe fn bytes<'a>(
    data: *const c_void,
    len: usize,
    name: &str,
) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(missing(name));
    }
    if len > isize::MAX as usize {
        return Err(Failure::misuse(format!("{len} bytes are too many for the argument {name}")));
    }
    // SAFETY: not null, of a possible length, and readable by rule 1.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// Returns bytes that C passes, or `None` for a null pointer.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn bytes_or_none<'a>(
    data: *const c_void,
    len: usize,
    name: &str,
) -> Result<Option<&'a [u8]>, Failure> {
    if data.is_null() && len == 0 {
        return Ok(None);
    }
    // SAFETY: rule 1, by the caller.
    unsafe { bytes(data, len, name) }.map(Some)
}

/// Returns a text that C passes.
///
/// # Safety
/// `text` follows rule 1 of the crate, for all of `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(missing(name));
    }
    // SAFETY: not null, and ends with a zero byte by rule 1.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::invalid(format!("the argument {name} is not in UTF-8")))
}

/// A struct that C passes by pointer. Its first field is its size as the caller knows it.
///
/// # Safety
/// The type is `repr(C)`, begins with a field `size` of the type `usize`, and all bit patterns are
/// values of it, except for references to functions, for which zeroes are.
pub(crate) unsafe trait Versioned: Copy {
    /// The size of the first published version of the struct.
    const SIZE_MIN: usize;
    const NAME: &'static str;
}

/// Returns a copy of a struct that C passes. Fields that the caller's version does not have are
/// zero.
///
/// # Safety
/// `from` follows rule 1 of the crate.
pub(crate) unsafe fn read_sized<T: Versioned>(from: *const T) -> Result<T, Failure> {
    if from.is_null() {
        return Err(missing(T::NAME));
    }
    // SAFETY: by rule 1 there is at least the field `size`, which is first.
    let size = unsafe { from.cast::<usize>().read() };
    if size < T::SIZE_MIN {
        return Err(wrong_size(T::NAME, size));
    }
    let mut copy = std::mem::MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: by rule 1 `size` bytes are readable, and `copy` has room for `known`. Zeroes are a
    // value of `T`, and so is what the caller has put there (the trait, and rules 1 and 3).
    unsafe {
        from.cast::<u8>().copy_to_nonoverlapping(copy.as_mut_ptr().cast(), known);
        Ok(copy.assume_init())
    }
}

/// Returns a copy of a struct that C passes, or `None` for a null pointer.
///
/// # Safety
/// As [`read_sized`].
pub(crate) unsafe fn read_sized_or_none<T: Versioned>(
    from: *const T,
) -> Result<Option<T>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: by the caller.
    unsafe { read_sized(from) }.map(Some)
}

/// Stores as much of a struct as the caller's version has. The first field of `value` must be the
/// size that the caller has given.
///
/// # Safety
/// `to` follows rule 2 of the crate, and `size` bytes are writable there.
pub(crate) unsafe fn write_sized<T: Versioned>(to: *mut T, size: usize, value: &T) {
    let known = size.min(size_of::<T>());
    // SAFETY: by the caller; `value` is another object.
    unsafe { (&raw const *value).cast::<u8>().copy_to_nonoverlapping(to.cast(), known) };
}

/// Returns the size of a struct for results, as the caller has set it.
///
/// # Safety
/// `to` follows rules 1 and 2 of the crate.
pub(crate) unsafe fn size_at<T: Versioned>(to: *const T) -> Result<usize, Failure> {
    if to.is_null() {
        return Err(missing(T::NAME));
    }
    // SAFETY: not null, and begins with its size by rule 1.
    match unsafe { to.cast::<usize>().read() } {
        size if size < T::SIZE_MIN => Err(wrong_size(T::NAME, size)),
        size => Ok(size),
    }
}

#[cold]
fn wrong_size(name: &str, size: usize) -> Failure {
    Failure::misuse(format!("the field size of {name} is {size}: set it to sizeof"))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::code::QPAIR_MISUSE;
    use crate::error::{qpair_error_code, qpair_error_free, qpair_error_message};

    fn message(error: *mut qpair_error) -> String {
        // SAFETY: the text is there until the error is freed, below.
        let text =
            unsafe { CStr::from_ptr(qpair_error_message(error)) }.to_str().unwrap().to_owned();
        qpair_error_free(error);
        text
    }

    #[test]
    fn a_panic_is_an_error() {
        let mut error = null_mut();
        // SAFETY: `error` is a variable.
        let code = unsafe { call(&raw mut error, || panic!("planted {}", 7)) };
        assert_eq!((code, qpair_error_code(error)), (QPAIR_PANICKED, QPAIR_PANICKED));
        assert!(message(error).contains("planted 7"));
        // SAFETY: `error` is a variable.
        let code = unsafe { call(&raw mut error, || Ok(())) };
        assert!(code == QPAIR_OK && error.is_null());
        // SAFETY: null is allowed.
        let code = unsafe { call(null_mut(), || panic!("planted")) };
        assert_eq!(code, QPAIR_PANICKED);
    }

    #[derive(Clone, Copy, Debug)]
    #[repr(C)]
    struct Grown {
        size: usize,
        old: u32,
        new: u32,
    }

    // SAFETY: `repr(C)`, begins with `size`, and has integers only.
    unsafe impl Versioned for Grown {
        const SIZE_MIN: usize = 12;
        const NAME: &'static str = "Grown";
    }

    #[test]
    fn structs_of_older_and_newer_callers_are_read_and_written() {
        let mut of_caller = [Grown { size: 12, old: 1, new: 2 }; 2];
        // SAFETY: both are variables, with their sizes set.
        unsafe {
            let read = read_sized(&of_caller[0]).unwrap();
            assert_eq!((read.old, read.new), (1, 0));
            write_sized(&mut of_caller[0], 12, &Grown { size: 12, old: 5, new: 6 });
            assert_eq!((of_caller[0].old, of_caller[0].new), (5, 2));
            // A caller of a later version: what is not known here is left alone.
            of_caller[0].size = size_of_val(&of_caller);
            let size = size_at(&of_caller[0]).unwrap();
            write_sized(&mut of_caller[0], size, &Grown { size, old: 7, new: 8 });
            assert_eq!((of_caller[0].new, of_caller[1].old), (8, 1));
            of_caller[0].size = 0;
            assert_eq!(read_sized(&of_caller[0]).unwrap_err().code(), QPAIR_MISUSE);
            assert_eq!(size_at(&of_caller[0]).unwrap_err().code(), QPAIR_MISUSE);
            assert!(read_sized_or_none::<Grown>(std::ptr::null()).unwrap().is_none());
        }
    }
}
