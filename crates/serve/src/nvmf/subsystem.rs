//! A subsystem: namespaces, which are disks of the target, and controllers that all have them.
//!
//! Invariant: a disk that a controller has a channel to is a namespace's, or [`Subsystem::settle`]
//! has not returned since it was one.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use qpair_block::{Error, Result, WakeEvent};

use crate::disk::Disk;

/// A disk under a number.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    pub(crate) nsid: u32,
    pub(crate) disk: Arc<Disk>,
    pub(crate) uuid: [u8; 16],
}

/// What all controllers of a subsystem share.
#[derive(Debug)]
pub(crate) struct Subsystem {
    /// Its name.
    pub(crate) nqn: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    pub(crate) namespaces_max: u32,
    /// By number.
    namespaces: Mutex<Vec<Namespace>>,
    /// Goes up with each change of them.
    version: AtomicU64,
    posts: Mutex<Vec<Arc<Post>>>,
}

/// What a controller and its manager tell each other.
#[derive(Debug)]
pub(crate) struct Post {
    /// Where its socket is.
    pub(crate) path: PathBuf,
    pub(crate) has_client: AtomicBool,
    wake: WakeEvent,
    /// The version that it works with.
    settled: Mutex<u64>,
    news: Condvar,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Post {
    pub(crate) fn new(path: PathBuf) -> Result<Arc<Self>> {
        let wake =
            WakeEvent::new().map_err(|cause| Error::os(cause, "an event for a controller"))?;
        let (has_client, settled) = (AtomicBool::new(false), Mutex::new(0));
        Ok(Arc::new(Self { path, has_client, wake, settled, news: Condvar::new() }))
    }

    /// The controller works with this version from now on.
    pub(crate) fn settle(&self, version: u64) {
        *locked(&self.settled) = version;
        self.news.notify_all();
    }

    /// The controller looks at the version from now on.
    pub(crate) fn hear(&self) {
        self.wake.clear();
    }

    pub(crate) fn has_client(&self) -> bool {
        self.has_client.load(Ordering::Relaxed)
    }
}

/// Polls readable when there is another version.
impl AsFd for Post {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Subsystem {
    pub(crate) fn new(
        nqn: String,
        serial: String,
        model: String,
        namespaces_max: u32,
    ) -> Arc<Self> {
        Arc::new(Self {
            nqn,
            serial,
            model,
            namespaces_max,
            namespaces: Mutex::default(),
            version: AtomicU64::new(0),
            posts: Mutex::default(),
        })
    }

    pub(crate) fn namespaces(&self) -> Vec<Namespace> {
        locked(&self.namespaces).clone()
    }

    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Changes its namespaces, and waits until all controllers work with the others and have
    /// nothing under way on what has gone.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<Namespace>)) {
        let version = {
            let mut namespaces = locked(&self.namespaces);
            change(&mut namespaces);
            namespaces.sort_by_key(|it| it.nsid);
            self.version.fetch_add(1, Ordering::Release) + 1
        };
        let posts = locked(&self.posts).clone();
        for post in &posts {
            post.wake.signal();
        }
        for post in &posts {
            let settled = locked(&post.settled);
            // One that has panicked has nothing left to say.
            drop(post.news.wait_while(settled, |settled| *settled < version));
        }
    }

    /// A controller comes.
    pub(crate) fn join(&self, post: &Arc<Post>) {
        locked(&self.posts).push(post.clone());
    }

    /// A controller has gone.
    pub(crate) fn leave(&self, post: &Arc<Post>) {
        locked(&self.posts).retain(|other| !Arc::ptr_eq(other, post));
    }

    /// Whether a driver is at one of its controllers.
    pub(crate) fn has_client(&self) -> bool {
        locked(&self.posts).iter().any(|post| post.has_client())
    }
}
