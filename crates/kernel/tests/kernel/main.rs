//! Files and block devices through the kernel's interfaces.

#![allow(clippy::print_stdout, reason = "reports are for those who run tests with --nocapture")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod conformance;
mod extents;
mod opening;
mod sockets;
mod space;
mod waiting;
