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

use qpair_block::Result;
use qpair_virtio::ring::Broken;

pub(crate) use chain::{Head, put, segments_of, take};
pub(crate) use inflight::{Inflight, bytes_of as inflight_bytes};
pub(crate) use lane::{End, Job, Lane, SEGMENTS_MAX};
pub(crate) use ring::{Guest, GuestRing, RingOptions};

use crate::unit::{Stopped, Unit};

/// The maximum number of heads taken in one turn, so that other queues get their turns.
const TURN_MAX: usize = 64;

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
    verbs: V,
}

impl<V: Verbs> Served<V> {
    /// Starts a queue with the requests that were under way in an earlier target.
    pub(crate) fn start(ring: GuestRing, verbs: V) -> Self {
        let mut queue = Self { ring, verbs };
        let memory = queue.ring.memory();
        let guest = queue.ring.guest(&memory);
        for head in queue.ring.recover(guest) {
            queue.begin(head, guest);
        }
        queue.ring.be_quiet(guest);
        queue
    }

    #[inline]
    fn begin(&mut self, head: u16, guest: Guest<'_>) {
        if self.ring.begin(head) && self.verbs.begin(head, &mut self.ring, guest).is_err() {
            self.ring.drop_head(head);
        }
    }

    /// Gives back the heads whose requests have ended, and takes none. Returns whether any were
    /// given back.
    #[inline]
    fn settle(&mut self, guest: Guest<'_>) -> bool {
        self.verbs.settle(&mut self.ring, guest);
        let published = self.ring.publish(guest);
        if let Some(is_called) = published {
            self.verbs.published(is_called);
        }
        published.is_some()
    }
}

impl<V: Verbs> Unit for Served<V> {
    fn turn(&mut self) -> bool {
        let memory = self.ring.memory();
        let guest = self.ring.guest(&memory);
        let mut taken = 0;
        while taken < TURN_MAX
            && self.verbs.wants()
            && let Some(head) = self.ring.take(guest)
        {
            taken += 1;
            self.begin(head, guest);
        }
        let given = self.settle(guest);
        taken > 0 || given
    }

    fn listen(&mut self) -> bool {
        if self.ring.kick_fd().is_none() || self.verbs.is_unsignalled() || !self.verbs.rest() {
            return false;
        }
        let memory = self.ring.memory();
        !self.verbs.wants() || self.ring.listen(self.ring.guest(&memory))
    }

    fn be_quiet(&mut self) {
        let memory = self.ring.memory();
        self.ring.be_quiet(self.ring.guest(&memory));
    }

    fn stop(mut self: Box<Self>) -> Stopped {
        let memory = self.ring.memory();
        let guest = self.ring.guest(&memory);
        self.verbs.stopping(&mut self.ring, guest);
        while self.ring.busy() > 0 {
            if !self.settle(guest) {
                std::thread::yield_now();
            }
        }
        self.settle(guest);
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
