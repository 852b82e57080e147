//! Runs whole stores under simulated and real failures. `cargo xtask` uses this crate to judge the
//! engine.
//!
//! - [`stores`]: stores on simulated devices, and on disks behind a soft HBA; a run follows from
//!   its seed alone.
//! - [`isolation`]: transactions on lists, in threads, tasks and processes that are killed, judged
//!   by what they read.
//! - [`powercut`]: losses of power of stores on recorded disks.
//! - [`drive`]: a drive with a volatile cache, for a virtual machine.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod console;
pub mod drive;
mod folder;
pub mod isolation;
mod lists;
mod nbd;
pub mod powercut;
pub mod stores;
