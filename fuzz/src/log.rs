//! Logs on a device: the first byte says whether their checksums are made right first.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((first, image)) = bytes.split_first() {
        qpair_engine::fuzzing::read_log(image, first & 1 == 1);
    }
});
