//! Queues of a guest's devices: a ring in the guest's memory, and the operations on its chains.
//!
//! [`Served`] runs a queue on its worker, in the same way for each kind of device. [`Verbs`] are
//! the operations of one kind of device. A [`Lane`] carries requests to a block device and back.

mod chain;
mod inflight;
mod lane;
#[cfg(test)]
pub(crate) mod rig;
mod ring;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use qpair_block::Result;
use qpair_virtio::ring::Broken;

pub(crate) use chain::{Head, put, segments_of, take, take_array};
pub(crate) use inflight::{Inflight, bytes_of as inflight_bytes};
pub(crate) use lane::{End, Job, Lane, SEGMENTS_MAX};
pub(crate) use ring::{Guest, GuestRing, RingOptions};

use crate::memory::GuestMemory;
use crate::unit::{Stopped, Unit};

/// The maximum number of heads taken in one turn, so that other queues get their turns.
const TURN_MAX: usize = 64;
/// The number of turns in which heads were given back after which the queue asks at the latest
/// whether the guest has begun to wait for them.
const OWING_TURNS_MAX: u32 = 4;

/// The operations of a kind of device on the chains of a ring.
pub(crate) trait Verbs {
    /// Begins the request of a head's chain, or answers it.
    ///
    /// # Errors
    /// The chain is malformed, and has no place for an answer.
    fn begin(
        &mut self,
        head: u16,
        ring: &mut GuestRing,
        guest: Guest<'_>,
    ) -> std::result::Result<(), Broken>;

    /// Gives back the heads whose requests have ended.
    fn settle(&mut self, ring: &mut GuestRing, guest: Guest<'_>);

    /// Whether the device takes heads now.
    #[inline]
    fn wants(&self) -> bool {
        true
    }

    /// Called after the guest can see the heads that were given back. The parameter says whether
    /// the guest was signalled.
    #[inline]
    fn published(&mut self, _is_called: bool) {}

    /// Called before the queue goes idle: makes descriptors unreadable that are readable without a
    /// reason. Returns false if there is something to do.
    fn rest(&mut self) -> bool {
        true
    }

    /// Called when the ring is to stop: ends the requests that would wait for other rings.
    fn stopping(&mut self, _ring: &mut GuestRing, _guest: Guest<'_>) {}

    /// See [`Unit::completion_fd`].
    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>>;

    /// Whether a request is under way whose end no descriptor signals, although the queue has a
    /// completion descriptor.
    fn is_unsignalled(&self) -> bool {
        false
    }

    /// See [`Unit::count_kick`].
    fn count_kick(&self) {}
}

/// A queue: a ring, and the operations on its chains.
pub(crate) struct Served<V> {
    ring: GuestRing,
    /// The ring's memory.
    memory: Arc<GuestMemory>,
    verbs: V,
    owing_turns: u32,
}

impl<V: Verbs> Served<V> {
    /// Starts a queue with the requests that were under way in an earlier target.
    pub(crate) fn start(mut ring: GuestRing, mut verbs: V) -> Self {
        let memory = ring.memory();
        let guest = ring.guest(&memory);
        for head in ring.recover(guest) {
            begin(&mut ring, &mut verbs, head, guest);
        }
        ring.be_quiet(guest);
        Self { ring, memory, verbs, owing_turns: 0 }
    }

    /// Gives back the heads whose requests have ended, and takes none. Returns whether any were
    /// given back.
    ///
    /// Whether the guest has begun to wait for them is asked in a turn that gives back none, and so
    /// costs no turn that is busy the time until the guest's processor has seen the new index.
    #[inline]
    fn settle(&mut self) -> bool {
        let guest = self.ring.guest(&self.memory);
        self.verbs.settle(&mut self.ring, guest);
        let published = self.ring.publish(guest);
        if let Some(is_called) = published {
            self.verbs.published(is_called);
        }
        if self.ring.is_owing() {
            self.owing_turns += 1;
            if published.is_none() || self.owing_turns >= OWING_TURNS_MAX {
                self.ask();
            }
        }
        published.is_some()
    }

    fn ask(&mut self) {
        self.owing_turns = 0;
        if self.ring.ask(self.ring.guest(&self.memory)) {
            self.verbs.published(true);
        }
    }
}

#[inline]
fn begin<V: Verbs>(ring: &mut GuestRing, verbs: &mut V, head: u16, guest: Guest<'_>) {
    if ring.begin(head) && verbs.begin(head, ring, guest).is_err() {
        ring.drop_head(head);
    }
}

impl<V: Verbs> Unit for Served<V> {
    fn turn(&mut self) -> bool {
        let guest = self.ring.guest(&self.memory);
        let mut taken = 0;
        while taken < TURN_MAX
            && self.verbs.wants()
            && let Some(head) = self.ring.take(guest)
        {
            taken += 1;
            begin(&mut self.ring, &mut self.verbs, head, guest);
        }
        let given = self.settle();
        taken > 0 || given
    }

    fn listen(&mut self) -> bool {
        if self.ring.is_owing() {
            self.ask();
        }
        if self.ring.kick_fd().is_none() || self.verbs.is_unsignalled() || !self.verbs.rest() {
            return false;
        }
        !self.verbs.wants() || self.ring.listen(self.ring.guest(&self.memory))
    }

    fn be_quiet(&mut self) {
        self.ring.be_quiet(self.ring.guest(&self.memory));
    }

    fn stop(mut self: Box<Self>) -> Stopped {
        let guest = self.ring.guest(&self.memory);
        self.verbs.stopping(&mut self.ring, guest);
        while self.ring.busy() > 0 {
            if !self.settle() {
                std::thread::yield_now();
            }
        }
        self.settle();
        self.ask();
        self.ring.stop()
    }

    fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ring.kick_fd()
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.verbs.completion_fd()
    }

    fn is_busy(&self) -> bool {
        self.ring.busy() > 0
    }

    fn count_kick(&self) {
        self.verbs.count_kick();
    }
}
