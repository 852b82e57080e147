//! Both ends of the socket: a driver's calls, the messages of other programs, and the NVMe driver
//! over it.

#![allow(clippy::print_stdout, reason = "reports are for those who run tests with --nocapture")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod client;
mod common;
mod nvme;
mod peers;
mod sessions;
