//! Job files: reading and settling them never panics, and the jobs that come out are sound.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| qpair_workload::fuzzing::read_job_file(text));
