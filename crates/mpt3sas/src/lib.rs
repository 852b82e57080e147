//! A driver for SAS host bus adapters that speak MPI 2.5 or 2.6 (SAS3008 and relatives, up to
//! SAS3916), over any PCI function: VFIO, vfio-user, or a model in this process.
//!
//! [`Mpt3sas`] is a `qpair_scsi::host::Host`: it moves commands. `qpair-scsi` knows their meaning.
//!
//! The design, and the state that channels share, is described in docs/design/mpt3sas.md.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that fails should panic"))]
#![forbid(unsafe_code)]

mod chains;
mod coherent;
mod core;
mod driver;
mod handshake;
mod host;
mod options;
mod queue;
mod recovery;
mod registers;
mod replies;
mod state;
mod sync;
mod targets;

pub use driver::Mpt3sasDriver;
pub use host::Mpt3sas;
pub use options::HbaOptions;
