//! The version of the library.

use std::ffi::{CStr, c_char};

/// The version of the interface in this header. The library's is that of `qpair_abi_version`.
pub const QPAIR_ABI_VERSION: u32 = 1;

/// Returns the version of the library, such as "0.1.0". The text is constant.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("the version has a zero byte"),
        };
    VERSION.as_ptr()
}

/// Returns the version of the interface of the library in use. It is at least the
/// `QPAIR_ABI_VERSION` of the header that a program was compiled with, unless the library is older:
/// then functions may be missing.
#[unsafe(no_mangle)]
pub extern "C" fn qpair_abi_version() -> u32 {
    QPAIR_ABI_VERSION
}
