//! The servers of NBD of a target.

use qpair_block::{Error, ErrorKind, Result};
use qpair_nbd::Address;
use qpair_tls::{ServerFiles, TlsServer};

use super::exports::NbdExport;
use super::server::Server;
use crate::target::{Backend, ExportInfo, Target};

/// A server of NBD.
#[derive(Clone, Debug)]
pub struct NbdServerInfo {
    /// The address at which it listens.
    pub address: Address,
    /// The disks that it exports; the first is the default export.
    pub exports: Vec<NbdExport>,
    /// The number of connections.
    pub clients: usize,
    /// Whether clients must use TLS.
    pub requires_tls: bool,
}

impl Target {
    /// Serves disks by NBD at an address, under their names. The first is also the default export.
    /// With `tls`, clients must use TLS. Returns the address, with the port that was chosen if the
    /// port was 0.
    ///
    /// # Errors
    /// `Invalid` without disks; the errors of the files for TLS; else the error of listening.
    pub fn serve_nbd(
        &self,
        address: &Address,
        exports: Vec<NbdExport>,
        tls: Option<&ServerFiles>,
    ) -> Result<Address> {
        let tls = tls.map(TlsServer::new).transpose()?;
        let server = Server::start(address, exports, tls, &self.workers)?;
        let address = server.address().clone();
        self.nbd.lock().push(server);
        Ok(address)
    }

    /// Ends a server of NBD: its clients lose their disks.
    ///
    /// # Errors
    /// `NotFound` for an address without a server. Without `force`, `Busy` if it has clients.
    pub fn remove_nbd(&self, address: &Address, force: bool) -> Result<Vec<NbdExport>> {
        let mut all = self.nbd.lock();
        let at = all.iter().position(|server| server.address() == address).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{address} has no NBD server"))
        })?;
        let clients = all[at].clients();
        if !force && clients > 0 {
            let context = format!("the NBD server at {address} has {clients} clients");
            return Err(
                Error::new(ErrorKind::Busy, context).hint("end them first, or say force=true")
            );
        }
        let server = all.swap_remove(at);
        // Release the lock first, because the end of a server waits for requests.
        drop(all);
        Ok(server.exports().to_vec())
    }

    /// Returns the servers of NBD.
    #[must_use]
    pub fn nbd_servers(&self) -> Vec<NbdServerInfo> {
        let info = |server: &Server| NbdServerInfo {
            address: server.address().clone(),
            exports: server.exports().to_vec(),
            clients: server.clients(),
            requires_tls: server.requires_tls(),
        };
        self.nbd.lock().iter().map(info).collect()
    }

    /// Returns the disks that are served by NBD, each with the address of its server.
    #[must_use]
    pub fn nbd_exports(&self) -> Vec<ExportInfo> {
        let of = |server: NbdServerInfo| {
            let NbdServerInfo { address, exports, clients, .. } = server;
            exports.into_iter().map(move |NbdExport { disk, read_only }| ExportInfo {
                name: disk.name.clone(),
                backend: Backend::Blk { disk, read_only },
                socket: address.to_string().into(),
                has_client: clients > 0,
            })
        };
        self.nbd_servers().into_iter().flat_map(of).collect()
    }
}
