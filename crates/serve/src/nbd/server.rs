//! A server: its listening socket, and its halls on the workers.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qpair_block::{Error, ErrorKind, Result, WakeEvent};
use qpair_memory::locks::Mutex;
use qpair_nbd::Address;
use rustix::process::{Resource, getrlimit};

use super::door::Door;
use super::exports::{ExportList, NbdExport};
use super::hall::Hall;
use crate::unit::Unit;
use crate::workers::{Placed, Workers};

/// The most clients of a server, if the process may have twice as many descriptors.
const CLIENTS_MAX: u64 = 1024;

/// The way by which a hall gets clients.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) streams: Mutex<VecDeque<OwnedFd>>,
    pub(crate) wake: WakeEvent,
    clients: AtomicUsize,
}

/// The parts of a server that its halls share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) door: Door,
    pub(crate) exports: ExportList,
    pub(crate) posts: Vec<Post>,
    clients_max: usize,
}

impl Shared {
    fn clients(&self) -> usize {
        self.posts.iter().map(|post| post.clients.load(Ordering::Relaxed)).sum()
    }

    /// Whether there are as many clients as there may be.
    pub(crate) fn is_full(&self) -> bool {
        self.clients() >= self.clients_max
    }

    /// Gives a client to the hall with the fewest, or disconnects it if there are too many.
    pub(crate) fn admit(&self, stream: OwnedFd) {
        if self.is_full() {
            return;
        }
        let fewest = self.posts.iter().min_by_key(|post| post.clients.load(Ordering::Relaxed));
        if let Some(post) = fewest {
            post.clients.fetch_add(1, Ordering::Relaxed);
            post.streams.lock().push_back(stream);
            post.wake.signal();
        }
    }

    /// Notes that a client of a hall has gone.
    pub(crate) fn leave(&self, number: usize) {
        self.posts[number].clients.fetch_sub(1, Ordering::Relaxed);
    }
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
        workers: &Arc<Workers>,
    ) -> Result<Self> {
        if exports.is_empty() {
            let context = format!("{address}: an NBD server needs at least one device");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let (door, address) = Door::bind(address)?;
        let post = || {
            let wake = WakeEvent::new()
                .map_err(|cause| Error::os(cause, "creating an event for clients of NBD"))?;
            Ok(Post { streams: Mutex::default(), wake, clients: AtomicUsize::new(0) })
        };
        let count = workers.infos().len();
        let posts = (0..count).map(|_| post()).collect::<Result<Vec<_>>>()?;
        let exports = ExportList(exports);
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let clients_max = CLIENTS_MAX.min(descriptors / 2) as usize;
        let shared = Arc::new(Shared { address, door, exports, posts, clients_max });
        let mut server = Self { shared, workers: workers.clone(), halls: Vec::new() };
        for number in 0..count {
            let shared = server.shared.clone();
            let start = move || Ok(Hall::start(shared, number)? as Box<dyn Unit>);
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

    /// Returns the number of clients, those that negotiate included.
    pub(crate) fn clients(&self) -> usize {
        self.shared.clients()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for placed in self.halls.drain(..) {
            self.workers.remove(placed);
        }
    }
}
