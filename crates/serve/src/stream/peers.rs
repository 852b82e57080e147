//! The peers of a hall: their sockets, and the way by which new ones come.
//!
//! Invariants:
//! - a peer to which something has happened in this turn is in `dirty`;
//! - a peer that waits for a head or a block is in `waiting`, in the order of arrival.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use qpair_block::Result;

use super::lobby::Lobby;
use super::peer::Peer;
use super::slots::Slots;
use super::sockets::{News, SocketWay, Sockets};

/// The number of a hall's peers above which less is read of each at once, in bytes: a peer that
/// cannot be served now keeps what was read.
const CROWD: usize = 64;
const CROWDED_BYTES: usize = 32 << 10;
/// The events of new peers: in this hall, and at the listening socket.
pub(super) const POST: u64 = u64::MAX;
pub(super) const DOOR: u64 = u64::MAX - 1;

/// Peers, each with its state in a protocol, which is `P`.
pub(crate) struct Peers<P> {
    pub(crate) all: Slots<Box<P>>,
    pub(crate) sockets: Sockets,
    lobby: Arc<Lobby>,
    /// The number of the hall.
    number: usize,
    pub(super) dirty: Vec<usize>,
    pub(super) waiting: VecDeque<usize>,
    pub(super) news: Vec<News>,
    /// Whether the listening socket is not watched until [`Peers::wake_door`].
    door_rests: bool,
}

impl<P: AsMut<Peer>> Peers<P> {
    /// # Errors
    /// `Limit` if there is no memory or no descriptor; the errors of opening a ring.
    pub(crate) fn new(lobby: Arc<Lobby>, number: usize, way: SocketWay) -> Result<Self> {
        let sockets = Sockets::new(way)?;
        sockets.watch_other(lobby.posts[number].wake.as_fd(), POST)?;
        if number == 0 {
            sockets.watch_other(lobby.door.as_fd(), DOOR)?;
        }
        Ok(Self {
            all: Slots::default(),
            sockets,
            lobby,
            number,
            dirty: Vec::new(),
            waiting: VecDeque::new(),
            news: Vec::new(),
            door_rests: false,
        })
    }

    /// Gives new peers to the halls with the fewest.
    pub(super) fn open_door(&mut self) {
        for count in 0..16 {
            let Some(stream) = self.lobby.door.accept() else {
                // Without a descriptor for it, a peer stays at the door and would keep the worker
                // awake.
                if count == 0 {
                    self.rest_door(true);
                }
                return;
            };
            self.lobby.admit(stream);
        }
    }

    fn rest_door(&mut self, rests: bool) {
        self.door_rests = rests;
        self.sockets.rest_other(self.lobby.door.as_fd(), DOOR, rests);
    }

    /// Watches the listening socket again.
    pub(crate) fn wake_door(&mut self) {
        if self.door_rests {
            self.rest_door(false);
        }
    }

    pub(super) fn clear_post(&self) {
        self.lobby.posts[self.number].wake.clear();
    }

    /// Returns the socket of the next new peer.
    pub(crate) fn next_stream(&self) -> Option<OwnedFd> {
        self.lobby.posts[self.number].streams.lock().pop_front()
    }

    /// Adds a new peer, which has TLS or will have it. Returns false if there is no memory for it.
    pub(crate) fn add(&mut self, mut new: P, has_tls: bool) -> bool {
        let stream = new.as_mut().stream.clone();
        let slot = self.all.add(Box::new(new));
        let is_added = self.sockets.add(slot, &stream, has_tls);
        if is_added {
            self.soil(slot);
        } else {
            self.remove(slot);
        }
        is_added
    }

    /// Removes a peer whose connection and parts have ended.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Box<P>> {
        if self.peer(slot)?.is_waiting {
            self.waiting.retain(|waiting| *waiting != slot);
        }
        self.lobby.leave(self.number);
        self.all.take(slot)
    }

    pub(super) fn peer(&mut self, slot: usize) -> Option<&mut Peer> {
        self.with_sockets(slot).map(|(peer, _)| peer)
    }

    pub(super) fn with_sockets(&mut self, slot: usize) -> Option<(&mut Peer, &mut Sockets)> {
        Some(((**self.all.get_mut(slot)?).as_mut(), &mut self.sockets))
    }

    /// Notes that a peer is to be looked at in this turn.
    pub(crate) fn soil(&mut self, slot: usize) {
        if let Some(peer) = self.peer(slot)
            && !std::mem::replace(&mut peer.is_dirty, true)
        {
            self.dirty.push(slot);
        }
    }

    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Notes that a peer waits for a head or a block.
    pub(crate) fn wait(&mut self, slot: usize) {
        if let Some(peer) = self.peer(slot)
            && !std::mem::replace(&mut peer.is_waiting, true)
        {
            self.waiting.push_back(slot);
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether something is to be tried again: for a peer that waits, or at the listening socket.
    pub(crate) fn tries_again(&self) -> bool {
        self.has_waiting() || self.door_rests
    }

    /// Ends the connection of a peer.
    pub(crate) fn end(&mut self, slot: usize) {
        if let Some(peer) = self.peer(slot) {
            peer.is_dead = true;
        }
        self.soil(slot);
    }

    /// Returns how much is read of a peer at once, in bytes.
    pub(super) fn read_bytes_max(&self) -> usize {
        if self.all.used() > CROWD { CROWDED_BYTES } else { usize::MAX }
    }

    /// Sets whether a peer's socket is read.
    pub(crate) fn watch(&mut self, slot: usize, reads: bool) {
        let most = self.read_bytes_max();
        if let Some((peer, sockets)) = self.with_sockets(slot) {
            sockets.watch(slot, &peer.stream, reads, peer.has_output(), most);
        }
    }

    /// Removes the socket of a peer, as [`Sockets::remove`] does.
    pub(crate) fn remove_socket(&mut self, slot: usize) -> bool {
        let it = self.with_sockets(slot);
        it.is_none_or(|(peer, sockets)| sockets.remove(slot, &peer.stream))
    }

    /// Whether nothing is left to do before the sockets' descriptor polls readable.
    pub(crate) fn may_sleep(&mut self) -> bool {
        self.dirty.is_empty() && self.sockets.may_sleep()
    }
}
