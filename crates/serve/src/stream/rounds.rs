//! Rounds: a turn of a hall takes what the sockets announce, and at its end looks at the peers to
//! which something has happened.

use std::io;
use std::time::Instant;

use super::peer::Peer;
use super::peers::{DOOR, POST, Peers};
use super::sockets::{Arrival, News};

/// A hall: the peers of a server that one worker serves.
pub(crate) trait Rounds {
    type Peer: AsMut<Peer>;

    fn peers(&mut self) -> &mut Peers<Self::Peer>;

    /// Takes new peers.
    fn take_post(&mut self);

    /// Takes what can be taken of `bytes`, and returns how many that are.
    fn take(&mut self, slot: usize, bytes: &[u8]) -> usize;

    /// Notes why the connection of a peer has ended.
    fn note_end(&mut self, slot: usize, error: &io::Error);

    /// Moves on what waits for something.
    fn proceed(&mut self, slot: usize);

    /// Removes a peer that has ended, or sets for what its socket is watched.
    fn conclude(&mut self, slot: usize);

    /// Handles what the sockets announce. Returns whether there was anything but the descriptors of
    /// lanes, which stay readable until the hall rests.
    fn listen_to_sockets(&mut self) -> bool {
        let mut news = std::mem::take(&mut self.peers().news);
        self.peers().sockets.look(&mut news);
        let mut progress = false;
        for news in news.drain(..) {
            match news {
                News::Other(DOOR) => self.peers().open_door(),
                News::Other(POST) => {
                    self.peers().clear_post();
                    self.take_post();
                }
                News::Other(_) => continue,
                News::Client(slot, arrival) => {
                    self.read(slot, arrival);
                    self.peers().soil(slot);
                }
            }
            progress = true;
        }
        self.peers().news = news;
        progress
    }

    /// Takes what has come from a peer.
    fn read(&mut self, slot: usize, arrival: Arrival) {
        let most = self.peers().read_bytes_max();
        let Some((peer, sockets)) = self.peers().with_sockets(slot) else { return };
        if peer.is_dead {
            return;
        }
        match sockets.take(arrival, peer, most) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                if peer.input.is_empty() {
                    let taken = self.take(slot, &bytes);
                    if let Some(peer) = self.peers().peer(slot) {
                        peer.input.extend(&bytes[taken..]);
                    }
                } else {
                    peer.input.extend(&*bytes);
                    self.take_input(slot);
                }
                self.peers().sockets.give_back(bytes);
            }
            Err(error) => {
                peer.is_dead = true;
                self.note_end(slot, &error);
            }
        }
    }

    /// Sends what the socket of a peer takes at once. Returns whether bytes moved, or the
    /// connection has ended.
    fn send(&mut self, slot: usize) -> bool {
        let Some((peer, sockets)) = self.peers().with_sockets(slot) else { return false };
        if peer.is_dead {
            return false;
        }
        match sockets.send(slot, peer) {
            Ok(0) => return false,
            Ok(_) => peer.moved_at = Instant::now(),
            Err(_) => peer.is_dead = true,
        }
        true
    }

    /// Takes what can be taken of the bytes that were read before. Returns how many they were.
    fn take_input(&mut self, slot: usize) -> usize {
        let Some(peer) = self.peers().peer(slot) else { return 0 };
        let mut input = std::mem::take(&mut peer.input);
        let before = input.len();
        if before > 0 {
            let taken = self.take(slot, &input);
            input.drain(..taken);
        }
        // A peer that sent much once does not keep the memory.
        if input.is_empty() && input.capacity() > 4096 {
            input = Vec::new();
        }
        if let Some(peer) = self.peers().peer(slot) {
            peer.input = input;
        }
        before
    }

    /// Looks at the peers to which something has happened, and at those that wait.
    fn attend(&mut self) {
        while let Some(slot) = self.peers().dirty.pop() {
            let Some(peer) = self.peers().peer(slot) else { continue };
            peer.is_dirty = false;
            loop {
                self.proceed(slot);
                let before = self.take_input(slot);
                let is_sent = self.send(slot);
                let left = self.peers().peer(slot).map_or(0, |peer| peer.input.len());
                if !is_sent && left == before {
                    break;
                }
            }
            self.conclude(slot);
        }
        for _ in 0..self.peers().waiting.len() {
            let Some(slot) = self.peers().waiting.pop_front() else { return };
            let Some(peer) = self.peers().peer(slot) else { continue };
            peer.is_waiting = false;
            self.proceed(slot);
            let peers = self.peers();
            if peers.peer(slot).is_some_and(|peer| peer.is_waiting) {
                peers.waiting.pop_back();
                peers.waiting.push_front(slot);
                return;
            }
            peers.soil(slot);
        }
    }
}
