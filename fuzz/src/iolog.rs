//! Logs of requests, in text and as traces: reading them never panics, and their requests have an
//! end.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| qpair_workload::fuzzing::read_iolog(bytes));
