//! A subsystem: namespaces, which are disks of the target, and controllers that share them.
//!
//! Invariant: if a controller has a channel to a disk, the disk is a namespace, or the call of
//! [`Subsystem::change`] that removed it has not returned.

use qpair_memory::locks::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar};

use qpair_block::{Error, Result, WakeEvent};
use qpair_nvme_auth::psk::{InterchangeKey, TlsKey};
use qpair_nvme_auth::{HostKeys, Names};

use crate::disk::Disk;

/// A disk under a number.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    pub(crate) nsid: u32,
    pub(crate) disk: Arc<Disk>,
    pub(crate) uuid: [u8; 16],
}

/// The state that all controllers of a subsystem share.
#[derive(Debug)]
pub(crate) struct Subsystem {
    pub(crate) nqn: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    pub(crate) namespaces_max: u32,
    /// Whether hosts are told of the states of their ways to the namespaces.
    pub(crate) reports_ana: AtomicBool,
    /// The namespaces, sorted by number.
    namespaces: Mutex<Vec<Namespace>>,
    /// A number that is incremented with each change of the namespaces.
    version: AtomicU64,
    posts: Mutex<Vec<Arc<Post>>>,
    /// The hosts that may connect over a network; `None`: all.
    hosts: Mutex<Option<BTreeSet<String>>>,
    /// The keys of hosts that must prove who they are.
    keys: Mutex<BTreeMap<String, Arc<HostKeys>>>,
    /// The keys of hosts that must use TLS.
    tls_keys: Mutex<BTreeMap<String, InterchangeKey>>,
}

/// The state that a controller shares with its manager.
#[derive(Debug)]
pub(crate) struct Post {
    /// The path of the controller's socket.
    pub(crate) path: PathBuf,
    pub(crate) has_client: AtomicBool,
    wake: WakeEvent,
    /// The version of the namespaces that the controller works with.
    settled: Mutex<u64>,
    news: Condvar,
}

impl Post {
    pub(crate) fn new(path: PathBuf) -> Result<Arc<Self>> {
        let wake = WakeEvent::new()
            .map_err(|cause| Error::os(cause, "creating an event for a controller"))?;
        let (has_client, settled) = (AtomicBool::new(false), Mutex::new(0));
        Ok(Arc::new(Self { path, has_client, wake, settled, news: Condvar::new() }))
    }

    /// Notes that the controller works with this version from now on.
    pub(crate) fn settle(&self, version: u64) {
        *self.settled.lock() = version;
        self.news.notify_all();
    }

    /// Clears the event of a new version. The controller calls this before it looks at the version.
    pub(crate) fn hear(&self) {
        self.wake.clear();
    }

    pub(crate) fn has_client(&self) -> bool {
        self.has_client.load(Ordering::Relaxed)
    }
}

/// The descriptor polls readable when there is a new version.
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
            reports_ana: AtomicBool::new(false),
            namespaces: Mutex::default(),
            version: AtomicU64::new(0),
            posts: Mutex::default(),
            hosts: Mutex::default(),
            keys: Mutex::default(),
            tls_keys: Mutex::default(),
        })
    }

    pub(crate) fn namespaces(&self) -> Vec<Namespace> {
        self.namespaces.lock().clone()
    }

    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Changes the namespaces, and waits until all controllers work with the new ones and have no
    /// requests under way to removed ones.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<Namespace>)) {
        let version = {
            let mut namespaces = self.namespaces.lock();
            change(&mut namespaces);
            namespaces.sort_by_key(|it| it.nsid);
            self.version.fetch_add(1, Ordering::Release) + 1
        };
        let posts = self.posts.lock().clone();
        for post in &posts {
            post.wake.signal();
        }
        for post in &posts {
            let settled = post.settled.lock();
            // One that has panicked has nothing left to say.
            drop(post.news.wait_while(settled, |settled| *settled < version));
        }
    }

    /// Whether a host of this name may connect over a network.
    pub(crate) fn is_allowed(&self, host: &str) -> bool {
        self.hosts.lock().as_ref().is_none_or(|hosts| hosts.contains(host))
    }

    /// Returns the hosts that may connect over a network; `None`: all.
    pub(crate) fn hosts(&self) -> Option<BTreeSet<String>> {
        self.hosts.lock().clone()
    }

    /// Changes the hosts that may connect over a network. Those that are connected stay.
    pub(crate) fn change_hosts(&self, change: impl FnOnce(&mut Option<BTreeSet<String>>)) {
        change(&mut self.hosts.lock());
    }

    /// Returns the keys of a host that must prove who it is.
    pub(crate) fn keys_of(&self, host: &str) -> Option<Arc<HostKeys>> {
        self.keys.lock().get(host).cloned()
    }

    /// Sets the keys of a host; `None`: the host need not prove who it is. Connections that the
    /// host has stay.
    pub(crate) fn set_keys(&self, host: &str, keys: Option<HostKeys>) {
        let mut all = self.keys.lock();
        match keys {
            Some(keys) => drop(all.insert(host.to_owned(), Arc::new(keys))),
            None => drop(all.remove(host)),
        }
    }

    /// Whether a host has a key of TLS.
    pub(crate) fn has_tls_key(&self, host: &str) -> bool {
        self.tls_keys.lock().contains_key(host)
    }

    /// Sets the key of TLS of a host; `None`: it has none. Connections that the host has stay.
    pub(crate) fn set_tls_key(&self, host: &str, key: Option<InterchangeKey>) {
        let mut all = self.tls_keys.lock();
        match key {
            Some(key) => drop(all.insert(host.to_owned(), key)),
            None => drop(all.remove(host)),
        }
    }

    /// Returns the key of TLS for an identity that a host gives, and the names of both, if it is
    /// that of a host which may connect. `subsystem` is the name of this subsystem, or of the
    /// discovery subsystem, for which hosts have the keys that they have here.
    pub(crate) fn find_tls_key(&self, identity: &str, subsystem: &str) -> Option<(Names, TlsKey)> {
        let keys = self.tls_keys.lock();
        keys.iter().filter(|(host, _)| self.is_allowed(host)).find_map(|(host, key)| {
            let names = Names { host: host.clone(), subsystem: subsystem.to_owned() };
            let key = key.find(&names, identity)?;
            Some((names, key))
        })
    }

    /// Adds a controller.
    pub(crate) fn join(&self, post: &Arc<Post>) {
        self.posts.lock().push(post.clone());
    }

    /// Removes a controller.
    pub(crate) fn leave(&self, post: &Arc<Post>) {
        self.posts.lock().retain(|other| !Arc::ptr_eq(other, post));
    }

    /// Whether a driver is connected to one of the controllers.
    pub(crate) fn has_client(&self) -> bool {
        self.posts.lock().iter().any(|post| post.has_client())
    }
}
