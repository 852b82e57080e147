//! The server and the export that a device connects to.

use std::os::fd::OwnedFd;
use std::time::Duration;

use qpair_block::Result;

use super::handshake::{Facts, connect};
use crate::Address;

/// A connection that can be made again.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: Address,
    pub(super) export: String,
    /// The time limit of an attempt.
    pub(super) timeout: Duration,
}

impl Peer {
    pub(super) fn connect(&self) -> Result<(OwnedFd, Facts)> {
        connect(&self.address, &self.export, self.timeout)
    }
}
