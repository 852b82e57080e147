//! The subsystems that a target serves, for its discovery log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_memory::locks::Mutex;
use qpair_nvme_auth::Policy;
use qpair_nvme_wire::fabrics::{DISCOVERY_NQN, DiscoveryEntry, discovery_log};

use super::controller::Numbers;
use super::portal::Shared;
use crate::nvmf::Subsystem;

/// All subsystems with the portals that serve them.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    listed: Mutex<Vec<(Arc<Subsystem>, Arc<Shared>)>>,
    /// A number that is incremented with each change.
    generation: AtomicU64,
    pub(crate) numbers: Arc<Numbers>,
    /// The hash functions and groups by which hosts authenticate.
    pub(crate) policy: Mutex<Arc<Policy>>,
}

impl Directory {
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn add(&self, subsystem: &Arc<Subsystem>, portal: &Arc<Shared>) {
        self.listed.lock().push((subsystem.clone(), portal.clone()));
        self.changed();
    }

    pub(crate) fn remove(&self, subsystem: &Arc<Subsystem>, portal: &Arc<Shared>) {
        let is_it = |it: &(Arc<Subsystem>, Arc<Shared>)| {
            Arc::ptr_eq(&it.0, subsystem) && Arc::ptr_eq(&it.1, portal)
        };
        self.listed.lock().retain(|it| !is_it(it));
        self.changed();
    }

    /// Notes that hosts see other subsystems, and wakes the halls with their hosts.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        for (_, portal) in &*self.listed.lock() {
            portal.lobby.wake();
        }
    }

    /// Returns the discovery log for a host that is connected to `portal` at the address `local`.
    pub(crate) fn log(&self, portal: &Shared, local: &str, host: &str) -> Vec<u8> {
        let mut entries = vec![entry(portal, portal, local, DISCOVERY_NQN)];
        let generation = self.generation();
        for (subsystem, its) in &*self.listed.lock() {
            if subsystem.is_allowed(host) {
                entries.push(entry(its, portal, local, &subsystem.nqn));
            }
        }
        discovery_log(generation, &entries)
    }
}

fn entry(of: &Shared, here: &Shared, local: &str, subsystem: &str) -> DiscoveryEntry {
    // A portal that listens at all addresses is reached at the one that the host has used.
    let host = of.address.host.trim_start_matches('[').trim_end_matches(']');
    let is_any = matches!(host, "0.0.0.0" | "::");
    let address = if std::ptr::eq(of, here) || is_any { local } else { host };
    DiscoveryEntry {
        is_ipv6: address.contains(':'),
        is_discovery: subsystem == DISCOVERY_NQN,
        requires_tls: of.tls.is_some(),
        port_id: of.address.port,
        address: address.to_owned(),
        service: of.address.port.to_string(),
        subsystem: subsystem.to_owned(),
    }
}
