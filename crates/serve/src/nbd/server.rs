//! A server: its listening socket, and its halls on the workers.

use std::sync::Arc;

use qpair_block::{Error, ErrorKind, Result};
use qpair_nbd::Address;
use qpair_tls::TlsServer;

use super::exports::{ExportList, NbdExport};
use super::hall::Hall;
use crate::stream::{Door, Lobby};
use crate::unit::Unit;
use crate::workers::{Placed, Workers};

/// The parts of a server that its halls share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) lobby: Arc<Lobby>,
    pub(crate) exports: ExportList,
    /// With it, clients must start TLS.
    pub(crate) tls: Option<TlsServer>,
}

/// Listens at an address. Returns the socket, and the address with the port that was chosen if the
/// port was 0.
fn bind(address: &Address) -> Result<(Door, Address)> {
    Ok(match address {
        Address::Unix(path) => {
            let (door, path) = Door::unix(path)?;
            (door, Address::Unix(path))
        }
        Address::Tcp(host, port) => {
            let (door, port) = Door::tcp(host, *port)?;
            (door, Address::Tcp(host.clone(), port))
        }
    })
}

/// A server of NBD. Dropping it disconnects its clients.
#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
    workers: Arc<Workers>,
    halls: Vec<Placed>,
}

impl Server {
    /// Listens at an address, and starts a hall for each worker.
    ///
    /// # Errors
    /// `Invalid` without exports; the errors of listening; `Limit`.
    pub(crate) fn start(
        address: &Address,
        exports: Vec<NbdExport>,
        tls: Option<TlsServer>,
        workers: &Arc<Workers>,
    ) -> Result<Self> {
        if exports.is_empty() {
            let context = format!("{address}: an NBD server needs at least one device");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let (door, address) = bind(address)?;
        let count = workers.infos().len();
        let lobby = Arc::new(Lobby::new(door, count)?);
        let shared = Arc::new(Shared { address, lobby, exports: ExportList(exports), tls });
        let mut server = Self { shared, workers: workers.clone(), halls: Vec::new() };
        for number in 0..count {
            let shared = server.shared.clone();
            let way = workers.sockets;
            let start = move || Ok(Hall::start(shared, number, way)? as Box<dyn Unit>);
            server.halls.push(workers.add(Box::new(start))?);
        }
        Ok(server)
    }

    pub(crate) fn address(&self) -> &Address {
        &self.shared.address
    }

    pub(crate) fn exports(&self) -> &[NbdExport] {
        &self.shared.exports.0
    }

    pub(crate) fn requires_tls(&self) -> bool {
        self.shared.tls.is_some()
    }

    /// Returns the number of clients, those that negotiate included.
    pub(crate) fn clients(&self) -> usize {
        self.shared.lobby.clients()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for placed in self.halls.drain(..) {
            self.workers.remove(placed);
        }
    }
}
