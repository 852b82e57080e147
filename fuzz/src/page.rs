//! Page images: whatever is in a page, reading it never panics.
#![no_main]

#[allow(dead_code, reason = "other targets use the rest")]
mod format;

libfuzzer_sys::fuzz_target!(|image: &[u8]| format::read_page(image));
