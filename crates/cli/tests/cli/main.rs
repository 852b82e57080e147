//! The real `qpair` command on real files.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that fails should panic, and one that skips should say so"
)]

mod bad_stores;
mod bench_io;
mod bench_io_words;
mod bench_transactions;
mod carve;
mod doctor;
mod floor;
mod harness;
mod interrupts;
mod limits;
mod loads;
mod log_device;
mod long_keys;
mod no_reserve;
mod nvme;
mod pages;
mod records;
mod round_trips;
mod scsi;
mod softdrive;
mod study;
mod system_calls;
mod target;
mod tools;
mod transfers;
