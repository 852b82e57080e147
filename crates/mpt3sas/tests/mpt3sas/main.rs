//! The driver over the soft HBA, in one process.

#![allow(clippy::print_stdout, reason = "reports are for those who run tests with --nocapture")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod allocations;
mod conformance;
mod faults;
mod lists;
mod power;
mod resets;
mod rig;
mod stub;
mod worker;

#[global_allocator]
static ALLOCATOR: qpair_memory::CountingAllocator = qpair_memory::CountingAllocator;
