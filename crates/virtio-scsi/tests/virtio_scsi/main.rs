//! The driver over the soft host, in one process.

#![allow(clippy::print_stdout, reason = "reports are for those who run tests with --nocapture")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod conformance;
mod faults;
mod refusals;
mod resets;
mod rig;
#[path = "../../../mpt3sas/tests/mpt3sas/worker.rs"]
mod worker;
