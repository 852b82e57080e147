//! Superblocks: the first byte says whether their checksums are made right first.
#![no_main]

#[allow(dead_code, reason = "other targets use the rest")]
mod format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((first, slots)) = bytes.split_first() {
        format::read_superblocks(slots, first & 1 == 1);
    }
});
