//! The keys of TLS by which hosts come to a portal.

use std::sync::Arc;

use qpair_memory::locks::Mutex;
use qpair_nvme_auth::psk::TlsKey;
use qpair_nvme_auth::{Hash, Names};
use qpair_nvme_wire::fabrics::DISCOVERY_NQN;
use qpair_tls::{Key, KeyHash, KeySource};

use super::portal::Place;

/// The keys of the hosts of all subsystems of a portal. They are derived when a host names one.
#[derive(Clone, Debug)]
pub(crate) struct Keys(pub(crate) Arc<Mutex<Vec<Place>>>);

impl Keys {
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

impl KeySource for Keys {
    fn find(&self, identity: &[u8]) -> Option<Key> {
        let (_, TlsKey { key, hash, .. }) = self.get(identity)?;
        let hash = if hash == Hash::Sha384 { KeyHash::Sha384 } else { KeyHash::Sha256 };
        Some(Key { identity: identity.to_vec(), secret: key, hash })
    }
}
