//! The soft drive: its behaviour towards a driver, its timing, and its reaction to invalid input.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod faults;
#[path = "../../../nvme-device/tests/nvme-device/host/mod.rs"]
mod host;
mod io;
mod profiles;
mod shaped;
mod shapes;
mod transcript;

use qpair_softdev::{SoftNvme, SoftNvmeOptions};

/// A driver of a soft drive.
type Host = host::Host<SoftNvme>;

impl Host {
    /// Creates a drive, and makes it ready.
    fn new(options: &str) -> Self {
        Self::of(SoftNvme::new(SoftNvmeOptions::parse(options).unwrap()).unwrap())
    }
}
