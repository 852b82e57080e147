//! The sockets of a hall: an epoll set, or a ring of `io_uring` beside it.
//!
//! Invariants:
//! - the number of a client's socket is free again when `remove` has returned true: then no event
//!   of it comes any more;
//! - a socket of which nothing more is to be taken is not read: at most one receive of a ring that
//!   had begun before still ends, with at most 64 KiB.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use qpair_block::{Error, ErrorKind, Result};
use qpair_kernel::{Outgoing, Received, SocketEvent, SocketRing};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::peer::Peer;

/// The bytes that are read from a socket of the epoll set at once.
const STAGING_BYTES: usize = 256 << 10;
/// The first number of a descriptor that is no client's socket.
pub(crate) const OTHER: u64 = 1 << 32;
/// The number of the ring's event.
const RING: u64 = u64::MAX - 2;
/// The number of turns between two looks at the epoll set while the ring is busy.
const TURNS: u32 = 16;

/// The way in which the sockets of servers are read and written.
///
/// ```
/// use qpair_serve::SocketWay;
///
/// assert_eq!("io_uring".parse::<SocketWay>()?, SocketWay::IoUring);
/// # Ok::<(), qpair_block::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketWay {
    /// The way that was measured to be better: [`SocketWay::Epoll`].
    #[default]
    Auto,
    /// Sets of epoll(7), recv(2) and sendmsg(2).
    Epoll,
    /// Rings of io_uring(7), Linux 6.1 or later. Sockets with TLS use epoll(7).
    IoUring,
}

impl FromStr for SocketWay {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "epoll" => Ok(Self::Epoll),
            "io_uring" => Ok(Self::IoUring),
            _ => Err(Error::new(ErrorKind::Invalid, format!("sockets cannot be used by '{text}'"))
                .hint("write auto, epoll or io_uring")),
        }
    }
}

impl SocketWay {
    /// Checks that this kernel has what the way needs.
    ///
    /// # Errors
    /// The error of opening a ring.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Auto | Self::Epoll => Ok(()),
            // The kernel interrupts the thread of a ring some time after the ring's end, so this is
            // no thread of the caller's.
            Self::IoUring => std::thread::Builder::new()
                .spawn(|| SocketRing::open().map(drop))
                .map_err(|cause| Error::thread(cause, "checking io_uring for sockets"))?
                .join()
                .unwrap_or_else(|_| Err(Error::new(ErrorKind::Gone, "a thread has ended"))),
        }
    }
}

/// News of a descriptor.
#[derive(Debug)]
pub(crate) enum News {
    /// A descriptor that is no client's socket is ready.
    Other(u64),
    Client(usize, Arrival),
}

#[derive(Debug)]
pub(crate) enum Arrival {
    Readable,
    Writable,
    Received(io::Result<Option<Received>>),
    /// Bytes on the way have moved.
    Moved(usize),
    /// A send has ended.
    Sent(Outgoing, io::Result<usize>),
}

/// Bytes from a client.
#[derive(Debug)]
pub(crate) enum Bytes {
    Staged(Vec<u8>, usize),
    Received(Received),
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Staged(staging, len) => staging.get(..*len).unwrap_or_default(),
            Self::Received(bytes) => bytes,
        }
    }
}

/// The way of a client's socket, and for epoll the directions for which it is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    Set { read: bool, write: bool },
    Ring,
}

pub(crate) struct Sockets {
    set: OwnedFd,
    events: Vec<epoll::Event>,
    staging: Vec<u8>,
    places: Vec<Place>,
    ring: Option<SocketRing>,
    completions: Vec<(usize, SocketEvent)>,
    turns: u32,
}

impl Sockets {
    /// # Errors
    /// `Limit` if there is no memory or no descriptor; the errors of opening a ring.
    pub(crate) fn new(way: SocketWay) -> Result<Self> {
        let limit = |errno: Errno| Error::os(errno.into(), "creating an epoll set for sockets");
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(limit)?;
        let ring = match way {
            SocketWay::Auto | SocketWay::Epoll => None,
            SocketWay::IoUring => Some(SocketRing::open()?),
        };
        if let Some(ring) = &ring {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&set, ring.event(), EventData::new_u64(RING), flags).map_err(limit)?;
        }
        Ok(Self {
            set,
            events: Vec::with_capacity(64),
            staging: Vec::new(),
            places: Vec::new(),
            ring,
            completions: Vec::new(),
            turns: 0,
        })
    }

    /// Returns the descriptor that polls readable when [`Sockets::look`] may find something.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// Watches a descriptor that is no client's socket, under a number of at least [`OTHER`].
    ///
    /// # Errors
    /// `Limit`.
    pub(crate) fn watch_other(&self, fd: BorrowedFd<'_>, number: u64) -> Result<()> {
        epoll::add(&self.set, fd, EventData::new_u64(number), EventFlags::IN)
            .map_err(|errno| Error::os(errno.into(), "adding a descriptor to an epoll set"))
    }

    /// Watches such a descriptor no longer, or again.
    pub(crate) fn rest_other(&self, fd: BorrowedFd<'_>, number: u64, rests: bool) {
        let flags = if rests { EventFlags::empty() } else { EventFlags::IN };
        // The descriptor is in the set, so this cannot fail.
        let _ = epoll::modify(&self.set, fd, EventData::new_u64(number), flags);
    }

    /// Removes such a descriptor, if it is there.
    pub(crate) fn forget_other(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.set, fd);
    }

    /// Adds a client's socket, which is not watched yet. Returns false if there is no memory for
    /// it.
    pub(crate) fn add(&mut self, slot: usize, stream: &Arc<OwnedFd>, has_tls: bool) -> bool {
        let place = match &mut self.ring {
            Some(ring) if !has_tls => {
                ring.add(slot, stream.clone());
                Place::Ring
            }
            _ => {
                let data = EventData::new_u64(slot as u64);
                if epoll::add(&self.set, stream, data, EventFlags::empty()).is_err() {
                    return false;
                }
                Place::Set { read: false, write: false }
            }
        };
        if self.places.len() <= slot {
            self.places.resize(slot + 1, Place::Free);
        }
        self.places[slot] = place;
        true
    }

    /// Sets for what a client's socket is watched, and how much is read of it at once.
    pub(crate) fn watch(
        &mut self,
        slot: usize,
        stream: &OwnedFd,
        read: bool,
        write: bool,
        len_max: usize,
    ) {
        let place = &mut self.places[slot];
        if let (Place::Ring, Some(ring)) = (*place, &mut self.ring) {
            if read {
                ring.receive(slot, len_max);
            }
            return;
        }
        let wanted = Place::Set { read, write };
        if *place != wanted {
            *place = wanted;
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, read);
            flags.set(EventFlags::OUT, write);
            // The socket is in the set, so this cannot fail.
            let _ = epoll::modify(&self.set, stream, EventData::new_u64(slot as u64), flags);
        }
    }

    /// Removes a client's socket. Returns false if it is in use: then the next news of it ask to
    /// try again.
    pub(crate) fn remove(&mut self, slot: usize, stream: &OwnedFd) -> bool {
        let is_removed = match (self.places[slot], &mut self.ring) {
            (Place::Ring, Some(ring)) => ring.remove(slot),
            // A socket whose other end is closed is always ready.
            (Place::Set { .. }, _) => {
                let _ = epoll::delete(&self.set, stream);
                true
            }
            _ => true,
        };
        if !is_removed {
            return false;
        }
        self.places[slot] = Place::Free;
        true
    }

    /// Takes what the descriptors announce. Returns whether there was anything.
    pub(crate) fn look(&mut self, news: &mut Vec<News>) -> bool {
        let is_found = self.collect(news);
        self.turns = self.turns.wrapping_add(1);
        if is_found && !self.turns.is_multiple_of(TURNS) {
            return true;
        }
        self.events.clear();
        let capacity = rustix::buffer::spare_capacity(&mut self.events);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If the wait fails, the next turn tries again.
        let _ = epoll::wait(&self.set, capacity, Some(&now));
        let mut rings = false;
        for event in &self.events {
            let reads = EventFlags::IN | EventFlags::HUP | EventFlags::ERR;
            match event.data.u64() {
                RING => rings = true,
                other if other >= OTHER => news.push(News::Other(other)),
                slot => {
                    let flags = event.flags;
                    let is_readable = flags.intersects(reads);
                    let arrival = if is_readable { Arrival::Readable } else { Arrival::Writable };
                    news.push(News::Client(slot as usize, arrival));
                }
            }
        }
        // The event is reset now, so the ring is looked at once more.
        if rings {
            self.collect(news);
        }
        !news.is_empty()
    }

    fn collect(&mut self, news: &mut Vec<News>) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        let is_found = ring.collect(&mut self.completions);
        news.extend(self.completions.drain(..).map(|(slot, event)| {
            News::Client(
                slot,
                match event {
                    SocketEvent::Received(received) => Arrival::Received(received),
                    SocketEvent::Moved(sent) => Arrival::Moved(sent),
                    SocketEvent::Sent(rest, sent) => Arrival::Sent(rest, sent),
                },
            )
        }));
        is_found
    }

    /// Takes an arrival: bytes that have come, which [`Sockets::give_back`] takes back, or the end
    /// of a send.
    ///
    /// # Errors
    /// The socket's, those of [`Peer::receive`], and `UnexpectedEof` at the end.
    pub(super) fn take(
        &mut self,
        arrival: Arrival,
        peer: &mut Peer,
        len_max: usize,
    ) -> io::Result<Option<Bytes>> {
        let (bytes, sent) = match arrival {
            Arrival::Received(bytes) => (bytes?.map(Bytes::Received), 0),
            Arrival::Readable => (self.read(peer, len_max)?, 0),
            Arrival::Writable => (None, 0),
            Arrival::Moved(sent) => (None, sent),
            Arrival::Sent(rest, sent) => {
                peer.output.come_back(rest);
                (None, sent?)
            }
        };
        if bytes.is_some() || sent > 0 {
            peer.moved_at = Instant::now();
        }
        if bytes.is_some() {
            peer.heard_at = peer.moved_at;
        }
        Ok(bytes)
    }

    fn read(&mut self, peer: &mut Peer, len_max: usize) -> io::Result<Option<Bytes>> {
        let mut staging = std::mem::take(&mut self.staging);
        staging.resize(STAGING_BYTES, 0);
        let read = peer.receive(&mut staging[..len_max.min(STAGING_BYTES)]);
        if let Ok(Some(len @ 1..)) = read {
            return Ok(Some(Bytes::Staged(staging, len)));
        }
        self.staging = staging;
        match read? {
            Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            None => Ok(None),
        }
    }

    pub(crate) fn give_back(&mut self, bytes: Bytes) {
        if let Bytes::Staged(staging, _) = bytes {
            self.staging = staging;
        }
    }

    /// Sends what the socket takes at once, and returns the number of bytes; by a ring, begins a
    /// send if none is under way, and returns 0.
    ///
    /// # Errors
    /// The socket's, if the client has gone.
    pub(super) fn send(&mut self, slot: usize, peer: &mut Peer) -> io::Result<usize> {
        let Peer { stream, tls, output, .. } = peer;
        match (self.places[slot], &mut self.ring, tls) {
            (Place::Ring, Some(ring), _) => {
                output.send_away(|outgoing| ring.send(slot, outgoing));
                Ok(0)
            }
            (_, _, Some(session)) => output.send_by(session, stream.as_fd()),
            _ => Ok(output.send(stream.as_fd())?),
        }
    }

    /// Begins the operations of a ring that this turn has asked for. Returns whether there were
    /// any.
    pub(crate) fn submit(&mut self) -> bool {
        self.ring.as_mut().is_some_and(SocketRing::submit)
    }

    /// Whether nothing is left to do before the descriptor polls readable.
    pub(crate) fn may_sleep(&mut self) -> bool {
        self.ring.as_mut().is_none_or(|ring| !ring.is_busy())
    }
}
