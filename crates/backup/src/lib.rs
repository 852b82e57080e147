//! Continuous backup of an open store to a folder or an object store, and restore to a point in
//! time. See docs/design/continuous-backup.md.
//!
//! - [`Follower`] backs a store up on a thread of its own, [`Shipper`] step by step.
//! - [`Backup`] is what lies there: its points, and how to restore one. [`verify()`] reads all of
//!   it.
//! - [`Objects`] is a place for objects: [`Folder`], `S3` with the feature `s3`, and [`Simulated`].

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod canary;
mod change;
mod follower;
mod job;
mod journal;
mod manifest;
mod objects;
mod plan;
mod restore;
mod shipper;
mod verify;

#[doc(hidden)]
pub use canary::Canary;
pub use follower::{Follower, now_ms};
#[cfg(feature = "s3")]
pub use objects::S3;
pub use objects::{Costs, Faults, Folder, Object, Objects, Request, Simulated, open_place};
pub use plan::Point;
pub use restore::{At, Backup, Filled, Restore};
pub use shipper::{BackupOptions, BackupStatus, Shipper, Step};
pub use verify::{Verification, verify};
