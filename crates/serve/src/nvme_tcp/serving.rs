//! Subsystems over NVMe/TCP, for callers that make no RPC calls.

use std::sync::Arc;

use qpair_block::Result;
use qpair_nvme_auth::psk::InterchangeKey;
use qpair_nvme_auth::{HostKeys, Policy};
use qpair_nvme_tcp::HostPort;

use crate::bdevs::uuid_of;
use crate::disk::Disk;
use crate::target::Target;

/// The most namespaces of a subsystem.
const NAMESPACES_MAX: u32 = 1024;

/// Returns the digits of the UUID that follows from a name.
fn digits(name: &str) -> u128 {
    u128::from_str_radix(&uuid_of(name).replace('-', ""), 16).unwrap_or_default()
}

impl Target {
    /// Serves disks to all hosts at an address, as the namespaces of a new subsystem, from number 1
    /// on. Returns the address, with the port that was chosen if the port was 0.
    ///
    /// # Errors
    /// `Exists` for a name of a subsystem that is taken; else the error of listening.
    pub fn serve_nvme_tcp(
        &self,
        address: &HostPort,
        nqn: &str,
        disks: &[Arc<Disk>],
    ) -> Result<HostPort> {
        self.serve_subsystem(address, nqn, disks, false)
    }

    /// Serves disks as [`Target::serve_nvme_tcp`] does, to hosts that use TLS by keys which
    /// [`Target::set_nvme_tcp_tls_key`] sets.
    ///
    /// # Errors
    /// Also `Unsupported` in a build without the feature `nvme-tls`.
    pub fn serve_nvme_tcp_by_tls(
        &self,
        address: &HostPort,
        nqn: &str,
        disks: &[Arc<Disk>],
    ) -> Result<HostPort> {
        self.serve_subsystem(address, nqn, disks, true)
    }

    fn serve_subsystem(
        &self,
        address: &HostPort,
        nqn: &str,
        disks: &[Arc<Disk>],
        requires_tls: bool,
    ) -> Result<HostPort> {
        let mut nvmf = self.nvmf();
        let serial = format!("{:032X}", digits(nqn))[..20].to_owned();
        nvmf.create(nqn, serial, "qpair".to_owned(), NAMESPACES_MAX)?;
        for disk in disks {
            nvmf.add(nqn, None, disk, digits(&disk.name).to_be_bytes())?;
        }
        nvmf.listen_tcp(nqn, address, requires_tls)
    }

    /// Sets the keys by which a host proves who it is at a subsystem; `None`: it need not.
    /// Connections that the host has stay.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_nvme_tcp_keys(&self, nqn: &str, host: &str, keys: Option<HostKeys>) -> Result<()> {
        self.nvmf().set_keys(nqn, host, keys)
    }

    /// Sets the key of TLS of a host at a subsystem; `None`: it has none. Connections that the host
    /// has stay. A host that has a key cannot connect without TLS.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_nvme_tcp_tls_key(
        &self,
        nqn: &str,
        host: &str,
        key: Option<InterchangeKey>,
    ) -> Result<()> {
        self.nvmf().set_tls_key(nqn, host, key)
    }

    /// Sets the hash functions and groups by which hosts of all subsystems prove who they are.
    pub fn set_nvme_tcp_policy(&self, policy: Policy) {
        self.nvmf().set_policy(policy);
    }

    /// Removes a subsystem, and disconnects its hosts.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn remove_nvme_tcp(&self, nqn: &str) -> Result<()> {
        self.nvmf().delete(nqn, true)?;
        Ok(())
    }

    /// Returns the number of connections over NVMe/TCP.
    #[must_use]
    pub fn nvme_tcp_clients(&self) -> usize {
        self.nvmf().tcp_clients()
    }
}
