//! The server's socket and its clients. One thread serves the clients in turn.
//!
//! Invariants:
//! - a client that sends complete requests and takes its answers is never disconnected by the
//!   server, however many other clients leave requests unfinished: those are disconnected first;
//! - the unfinished requests of all clients together have at most
//!   [`RpcLimits::unfinished_bytes_max`] bytes.
//!
//! Calls run one after the other in any case, so more threads would not answer sooner.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{Error, Result};
use qpair_socket::Listener;
use rustix::event::{PollFd, PollFlags, Timespec};
use tracing::info;

use super::client::Client;
use super::manager::Manager;
use crate::service::{Service, Stop};

/// The limits on what clients may use of the server.
#[derive(Clone, Copy, Debug)]
pub struct RpcLimits {
    /// The most clients at a time. Others wait to be accepted.
    pub clients_max: usize,
    /// The longest time that a client may take to finish a request, or to take an answer.
    pub timeout: Duration,
    /// The longest time for the same while other clients wait to be accepted.
    pub timeout_full: Duration,
    /// The most bytes of the unfinished requests of all clients.
    pub unfinished_bytes_max: usize,
}

impl Default for RpcLimits {
    fn default() -> Self {
        Self {
            clients_max: 512,
            timeout: Duration::from_secs(10),
            timeout_full: Duration::from_millis(250),
            unfinished_bytes_max: 8 << 20,
        }
    }
}

/// Counters of the clients so far.
#[derive(Debug, Default)]
pub struct RpcCounters {
    /// Clients that were accepted.
    pub accepted: AtomicU64,
    /// Clients that the server disconnected because a request was not finished, or an answer not
    /// taken, in time.
    pub timed_out: AtomicU64,
}

/// A server for JSON-RPC 2.0 at a socket. Dropping it closes the socket and removes its path.
pub struct RpcServer {
    path: PathBuf,
    counters: Arc<RpcCounters>,
    _service: Service,
}

impl RpcServer {
    /// Starts to listen at `path`. Only the owner of the process may connect.
    ///
    /// # Errors
    /// The error of binding the socket or of starting the thread.
    pub fn start(path: &Path, manager: Arc<Manager>) -> Result<Self> {
        Self::start_with(path, manager, RpcLimits::default())
    }

    /// Starts a server like [`RpcServer::start`], with other limits.
    ///
    /// # Errors
    /// The errors of [`RpcServer::start`].
    pub fn start_with(path: &Path, manager: Arc<Manager>, limits: RpcLimits) -> Result<Self> {
        let listener = Listener::bind(path)?;
        let path = listener.path().to_owned();
        let shown = path.display();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
            .map_err(|cause| Error::os(cause, format!("{shown}: setting its permissions")))?;
        let counters = Arc::new(RpcCounters::default());
        let serving = Serving {
            listener,
            manager,
            limits,
            counters: counters.clone(),
            clients: BTreeMap::new(),
        };
        let serve = move |stop: &Stop| serving.serve(stop);
        let service = Service::start("qpair-rpc", "a socket for JSON-RPC", serve)?;
        Ok(Self { path, counters, _service: service })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the counters of the server's clients.
    #[must_use]
    pub fn counters(&self) -> &RpcCounters {
        &self.counters
    }
}

struct Serving {
    listener: Listener,
    manager: Arc<Manager>,
    limits: RpcLimits,
    counters: Arc<RpcCounters>,
    /// The clients by number, in the order in which they came.
    clients: BTreeMap<u64, Client>,
}

impl Serving {
    fn serve(mut self, stop: &Stop) {
        while !stop.is_over() {
            let (ready, comes) = self.wait(stop);
            if stop.is_over() {
                break;
            }
            for number in &ready {
                if let Some(client) = self.clients.get_mut(number)
                    && !client.turn(&self.manager)
                {
                    self.clients.remove(number);
                }
            }
            if comes {
                self.let_in();
            }
            self.send_away(&ready, comes);
        }
    }

    /// Sleeps until a client or the stop signal is ready, a client is late, or a new client
    /// connects. Returns the clients that are ready, and whether a new client waits.
    fn wait(&self, stop: &Stop) -> (Vec<u64>, bool) {
        let numbers: Vec<u64> = self.clients.keys().copied().collect();
        let is_full = self.clients.len() >= self.limits.clients_max;
        let mut fds = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN));
        for client in self.clients.values() {
            let flags = if client.has_answers() { PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(client.as_fd(), flags));
        }
        let (now, timeout) = (Instant::now(), self.timeout(is_full));
        let due = self.clients.values().filter(|client| client.is_busy(is_full));
        let nap = due.map(|client| (client.since + timeout).saturating_duration_since(now)).min();
        // If all places are taken, a waiting client would end each sleep at once, so it is checked
        // for afterwards.
        let nap = if is_full {
            fds[1] = PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::empty());
            Some(nap.unwrap_or(self.limits.timeout_full).max(Duration::from_millis(1)))
        } else {
            nap
        };
        let nap = nap.map(|nap| Timespec {
            tv_sec: i64::try_from(nap.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: nap.subsec_nanos().into(),
        });
        // Whether the wait fails or not, the next turn checks all clients.
        let _ = rustix::event::poll(&mut fds, nap.as_ref());
        let has_news = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let ready = numbers.into_iter().zip(&fds[2..]).filter(|(_, fd)| has_news(fd));
        let comes = if is_full { self.one_waits() } else { has_news(&fds[1]) };
        (ready.map(|(number, _)| number).collect(), comes)
    }

    /// Whether a client waits to be accepted.
    fn one_waits(&self) -> bool {
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&at_once)).is_ok_and(|count| count > 0)
    }

    /// Returns how long a request may stay unfinished.
    fn timeout(&self, is_full: bool) -> Duration {
        if is_full { self.limits.timeout_full } else { self.limits.timeout }
    }

    fn let_in(&mut self) {
        while self.clients.len() < self.limits.clients_max
            && let Some(stream) = self.listener.accept()
        {
            let number = self.counters.accepted.fetch_add(1, Ordering::Relaxed);
            self.clients.insert(number, Client::new(stream));
        }
    }

    /// Disconnects clients that are late with a request or an answer. Then disconnects clients
    /// while the unfinished requests have too many bytes in all, the oldest first.
    fn send_away(&mut self, ready: &[u64], comes: bool) {
        let is_full = comes && self.clients.len() >= self.limits.clients_max;
        let timeout = self.timeout(is_full);
        let mut bytes: usize = self.clients.values().map(Client::unfinished_bytes).sum();
        let busy = self.clients.iter().filter(|(_, client)| client.is_busy(is_full));
        let mut busy: Vec<(Instant, u64)> =
            busy.map(|(number, client)| (client.since, *number)).collect();
        busy.sort_unstable();
        for (since, number) in busy {
            // A client that was ready in this turn may have sent more.
            let is_late = since.elapsed() >= timeout && !ready.contains(&number);
            if !is_late && bytes <= self.limits.unfinished_bytes_max {
                continue;
            }
            let Some(client) = self.clients.remove(&number) else { continue };
            bytes -= client.unfinished_bytes();
            self.counters.timed_out.fetch_add(1, Ordering::Relaxed);
            info!(name: "refused", unfinished_bytes = client.unfinished_bytes(), "a client of JSON-RPC does not finish its request");
            client.tell_late();
        }
    }
}
