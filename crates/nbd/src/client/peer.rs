//! The server and the export that a device connects to.

use std::time::Duration;

use qpair_block::Result;
use qpair_socket::client::Wire;

use super::handshake::{Facts, connect};
use super::tls::Trust;
use crate::Address;

/// A connection that can be made again.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: Address,
    pub(super) export: String,
    /// The settings of TLS, without which a connection is in the open.
    pub(super) trust: Option<Trust>,
    /// The time limit of an attempt.
    pub(super) timeout: Duration,
}

impl Peer {
    pub(super) fn connect(&self) -> Result<(Wire, Facts)> {
        connect(self)
    }
}
