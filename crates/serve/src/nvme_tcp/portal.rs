//! A portal: a listening socket, its halls on the workers, and the subsystems that hosts reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qpair_block::Result;
use qpair_nvme_tcp::HostPort;
use qpair_nvme_wire::ana::AnaState;
use qpair_tls::PskServer;

use super::controller::Controllers;
use super::directory::Directory;
use super::hall::Hall;
use super::places::{Place, Places};
use crate::nvmf::{Post, Subsystem};
use crate::stream::{Door, Lobby};
use crate::unit::Unit;
use crate::workers::{Placed, Workers};

/// The parts of a portal that its halls share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) address: HostPort,
    pub(crate) lobby: Arc<Lobby>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) controllers: Controllers,
    /// The TLS of all connections; `None`: they are in the open.
    pub(crate) tls: Option<PskServer>,
    pub(crate) places: Arc<Places>,
    /// A number that is incremented with each change of the places.
    version: AtomicU64,
}

impl Shared {
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Place>)) {
        change(&mut self.places.0.lock());
        self.version.fetch_add(1, Ordering::AcqRel);
        self.lobby.wake();
    }
}

/// A portal. Dropping it disconnects its hosts.
#[derive(Debug)]
pub(crate) struct Portal {
    shared: Arc<Shared>,
    workers: Arc<Workers>,
    halls: Vec<Placed>,
}

impl Portal {
    /// Listens at an address, and starts a hall for each worker.
    ///
    /// # Errors
    /// `Unsupported` for TLS in a build without it; the errors of listening; `Limit`.
    pub(crate) fn start(
        address: &HostPort,
        requires_tls: bool,
        directory: &Arc<Directory>,
        workers: &Arc<Workers>,
    ) -> Result<Self> {
        let places = Arc::<Places>::default();
        let tls = requires_tls.then(|| PskServer::new(places.clone())).transpose()?;
        let (door, port) = Door::tcp(&address.host, address.port)?;
        let count = workers.infos().len();
        let shared = Arc::new(Shared {
            address: HostPort { host: address.host.clone(), port },
            lobby: Arc::new(Lobby::new(door, count)?),
            directory: directory.clone(),
            controllers: Controllers::new(directory.numbers.clone()),
            tls,
            places,
            version: AtomicU64::new(0),
        });
        let mut portal = Self { shared, workers: workers.clone(), halls: Vec::new() };
        for number in 0..count {
            let shared = portal.shared.clone();
            let way = workers.sockets;
            let start = move || Ok(Hall::start(shared, number, way)? as Box<dyn Unit>);
            portal.halls.push(workers.add(Box::new(start))?);
        }
        Ok(portal)
    }

    /// Returns the address, with the port that was chosen if the port was 0.
    pub(crate) fn address(&self) -> &HostPort {
        &self.shared.address
    }

    /// Returns the number of connections.
    pub(crate) fn clients(&self) -> usize {
        self.shared.lobby.clients()
    }

    /// Whether hosts must use TLS.
    pub(crate) fn requires_tls(&self) -> bool {
        self.shared.tls.is_some()
    }

    /// Whether hosts reach the subsystem here.
    pub(crate) fn has(&self, subsystem: &Arc<Subsystem>) -> bool {
        self.shared.places.0.lock().iter().any(|it| Arc::ptr_eq(&it.subsystem, subsystem))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shared.places.0.lock().is_empty()
    }

    /// Serves a subsystem.
    ///
    /// # Errors
    /// `Limit` if there are no descriptors.
    pub(crate) fn add(&self, subsystem: &Arc<Subsystem>) -> Result<()> {
        let path = || self.address().to_string().into();
        let posts = self.halls.iter().map(|_| Post::new(path())).collect::<Result<Vec<_>>>()?;
        for post in &posts {
            subsystem.join(post);
        }
        let place = Place { subsystem: subsystem.clone(), posts, ana: Default::default() };
        self.shared.change(|places| places.push(place));
        self.shared.directory.add(subsystem, &self.shared);
        Ok(())
    }

    /// Returns the state of the way by this portal to a subsystem's namespaces.
    pub(crate) fn ana(&self, subsystem: &Arc<Subsystem>) -> Option<AnaState> {
        let places = self.shared.places.0.lock();
        let found = places.iter().find(|it| Arc::ptr_eq(&it.subsystem, subsystem));
        found.map(|place| place.ana.0)
    }

    /// Sets the state of the way by this portal to a subsystem's namespaces. All halls work with it
    /// when this returns.
    pub(crate) fn set_ana(&self, subsystem: &Arc<Subsystem>, state: AnaState) {
        self.shared.change(|places| {
            for place in places.iter_mut().filter(|it| Arc::ptr_eq(&it.subsystem, subsystem)) {
                if place.ana.0 != state {
                    place.ana = (state, place.ana.1 + 1);
                }
            }
        });
        // Halls adopt the places before the namespaces, for which this waits.
        subsystem.change(|_| {});
    }

    /// Ends the connections of a subsystem's hosts, and serves it no longer.
    pub(crate) fn remove(&self, subsystem: &Arc<Subsystem>) {
        self.shared.directory.remove(subsystem, &self.shared);
        self.shared.controllers.end_of(subsystem);
        let mut gone = Vec::new();
        self.shared.change(|places| {
            gone = places.extract_if(.., |it| Arc::ptr_eq(&it.subsystem, subsystem)).collect();
        });
        for post in gone.iter().flat_map(|place| &place.posts) {
            subsystem.leave(post);
        }
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        for place in self.shared.places.all() {
            self.remove(&place.subsystem);
        }
        for placed in self.halls.drain(..) {
            self.workers.remove(placed);
        }
    }
}
