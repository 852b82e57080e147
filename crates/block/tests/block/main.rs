//! Software devices, and their names.

#![allow(clippy::print_stdout, reason = "reports are for those who run tests with --nocapture")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod carve;
mod conformance;
mod fault;
mod limit;
mod spec;
mod stripe;
