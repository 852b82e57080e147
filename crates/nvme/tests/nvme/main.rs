//! Tests the driver with the soft controller, against a model of the drive's data.

#![allow(clippy::print_stdout, reason = "reports are for those who run tests with --nocapture")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod conformance;
mod fault_matrix;
mod faults;
mod hostile;
mod lists;
mod model;
mod prebuilt;
mod rig;
mod script;
