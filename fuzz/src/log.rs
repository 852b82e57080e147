//! Logs on a device: the first byte says whether their checksums are made right first.
#![no_main]

#[allow(dead_code, reason = "other targets use the rest")]
mod format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((first, image)) = bytes.split_first() {
        format::read_log(image, first & 1 == 1);
    }
});
