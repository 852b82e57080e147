//! SCSI disks as block devices.
//!
//! - [`host`]: the interface of low-level drivers, which move commands to devices.
//! - [`ScsiDisk`]: the upper layer: a logical unit as a `BlockDevice`.
//! - [`Registry`]: a program's drivers, and their devices.
//! - [`scan`]: finds the disks behind a host.
//!
//! Between the two is the private middle layer: the life of a command, the meaning of its answer,
//! time-outs and the error ladder.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod canary;
mod disk;
pub mod host;
mod middle;
mod options;
mod registry;
mod scan;
mod sync;

#[doc(hidden)]
pub use canary::Canary;
pub use disk::{DiskFacts, ScsiDisk};
pub use options::ScsiOptions;
pub use registry::{Driver, Registry};
pub use scan::{Found, Seen, scan, units};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/design/scsi.md")]
struct Tutorial;
