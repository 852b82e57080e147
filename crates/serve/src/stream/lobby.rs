//! The way of clients from the listening socket to the halls.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use qpair_block::{Error, Result, WakeEvent};
use qpair_memory::locks::Mutex;
use rustix::process::{Resource, getrlimit};

use super::door::Door;

/// The most clients of a server, if the process may have twice as many descriptors.
const CLIENTS_MAX: u64 = 1024;

/// The way by which a hall gets clients.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) streams: Mutex<VecDeque<OwnedFd>>,
    pub(crate) wake: WakeEvent,
    clients: AtomicUsize,
}

/// The listening socket of a server, and the ways to its halls.
#[derive(Debug)]
pub(crate) struct Lobby {
    pub(crate) door: Door,
    pub(crate) posts: Vec<Post>,
    clients_max: usize,
}

impl Lobby {
    /// # Errors
    /// `Limit` if there are no descriptors.
    pub(crate) fn new(door: Door, halls: usize) -> Result<Self> {
        let post = || {
            let wake = WakeEvent::new()
                .map_err(|cause| Error::os(cause, "creating an event for clients of a server"))?;
            Ok(Post { streams: Mutex::default(), wake, clients: AtomicUsize::new(0) })
        };
        let posts = (0..halls).map(|_| post()).collect::<Result<Vec<_>>>()?;
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let clients_max = CLIENTS_MAX.min(descriptors / 2) as usize;
        Ok(Self { door, posts, clients_max })
    }

    /// Returns the number of clients.
    pub(crate) fn clients(&self) -> usize {
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

    /// Wakes all halls.
    pub(crate) fn wake(&self) {
        self.posts.iter().for_each(|post| post.wake.signal());
    }
}
