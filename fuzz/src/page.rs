//! Page images: whatever is in a page, reading it never panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|image: &[u8]| qpair_engine::fuzzing::read_page(image));
