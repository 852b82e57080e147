//! Checkpoint records and images.
#![no_main]

#[allow(dead_code, reason = "other targets use the rest")]
mod format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| format::read_checkpoint(bytes));
