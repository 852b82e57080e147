//! Checkpoint records and images.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qpair_engine::fuzzing::read_checkpoint(bytes));
