//! The subsystems of a portal, and the keys of TLS by which hosts come to them.

use std::sync::Arc;

use qpair_memory::locks::Mutex;
use qpair_nvme_auth::psk::TlsKey;
use qpair_nvme_auth::{Hash, Names};
use qpair_nvme_wire::ana::AnaState;
use qpair_nvme_wire::fabrics::DISCOVERY_NQN;
use qpair_tls::{Key, KeyHash, KeySource};

use crate::nvmf::{Post, Subsystem};

/// A subsystem of a portal, with the post of each hall.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) posts: Vec<Arc<Post>>,
    /// The state of the way by this portal to the namespaces, and the number of its changes.
    pub(crate) ana: (AnaState, u64),
}

/// The subsystems of a portal. The keys of their hosts are derived when a host names one.
#[derive(Debug, Default)]
pub(crate) struct Places(pub(super) Mutex<Vec<Place>>);

impl Places {
    pub(crate) fn all(&self) -> Vec<Place> {
        self.0.lock().clone()
    }

    /// Returns the subsystem of a name.
    pub(crate) fn find(&self, nqn: &str) -> Option<Arc<Subsystem>> {
        let places = self.0.lock();
        let found = places.iter().find(|it| it.subsystem.nqn == nqn);
        found.map(|it| it.subsystem.clone())
    }

    fn get(&self, identity: &[u8]) -> Option<(Names, TlsKey)> {
        let identity = std::str::from_utf8(identity).ok()?;
        let places = self.0.lock();
        let of_discovery = |place: &Place| place.subsystem.find_tls_key(identity, DISCOVERY_NQN);
        places
            .iter()
            .find_map(|place| place.subsystem.find_tls_key(identity, &place.subsystem.nqn))
            .or_else(|| places.iter().find_map(of_discovery))
    }

    /// Returns the names of the host and the subsystem whose key has this identity.
    pub(crate) fn names(&self, identity: &[u8]) -> Option<Names> {
        self.get(identity).map(|(names, _)| names)
    }
}

impl KeySource for Places {
    fn find(&self, identity: &[u8]) -> Option<Key> {
        let (_, TlsKey { key, hash, .. }) = self.get(identity)?;
        let hash = if hash == Hash::Sha384 { KeyHash::Sha384 } else { KeyHash::Sha256 };
        Some(Key { identity: identity.to_vec(), secret: key, hash })
    }
}
