//! The link to the peer: a connection that may be lost and made again, and the times of requests.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use qpair_block::{IoError, Op, Reconnection};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{Shutdown, shutdown};

use super::channel::{SOCKET, StreamChannel};
use super::jobs::Setting;
use super::protocol::{Event, Protocol};
use super::wire::Wire;

#[derive(Debug)]
pub(super) enum Link<T> {
    Up,
    /// The connection was lost without a request in flight. The next request connects again.
    Down,
    Lost(Reconnection<(Wire, T)>),
    /// The peer did not come back in time, or broke the protocol.
    Gone,
}

impl<P: Protocol> StreamChannel<P> {
    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up)
    }

    /// Closes the connection, and forgets what belongs to it.
    fn close(&mut self) {
        if self.is_up() {
            // The socket is in the set. Either call fails only if it is closed already.
            let _ = epoll::delete(&self.set, &self.wire.socket);
            let _ = shutdown(&self.wire.socket, Shutdown::Both);
        }
        self.wire.tls = None;
        self.jobs.output.clear();
        self.input.clear();
        self.sent = 0;
        self.protocol.forget();
        self.watches_output = false;
    }

    /// Takes notice that the connection is lost, and connects again if there are jobs.
    pub(super) fn lose(&mut self, why: &str) {
        let Setting { info, writes, .. } = &self.jobs.setting;
        P::report(&info.name, Event::Lost(why));
        if writes.lose() {
            P::report(&info.name, Event::LostWrites);
        }
        self.close();
        self.link = Link::Down;
        if !self.jobs.are_none() {
            self.connect_again();
        }
    }

    pub(super) fn connect_again(&mut self) {
        let now = Instant::now();
        // A peer that closes each connection at once is not asked without a pause.
        let is_early = now.duration_since(self.connected_at) < Duration::from_secs(1);
        let (connect, until) = (self.protocol.connector(), now + self.jobs.setting.limit);
        match Reconnection::begin(connect, is_early, until, self.again.clone()) {
            Ok(reconnection) => self.link = Link::Lost(reconnection),
            Err(error) => self.give_up(&error.to_string()),
        }
    }

    /// Ends all jobs with an error, and so all later ones.
    pub(super) fn give_up(&mut self, why: &str) {
        P::report(&self.jobs.setting.info.name, Event::Gone(why));
        self.close();
        self.link = Link::Gone;
        for slot in 0..self.jobs.slots.len() {
            self.jobs.fail(slot, IoError::GONE);
        }
    }

    /// Takes the result of a reconnection, and sends the jobs again.
    pub(super) fn come_back(&mut self) {
        let Link::Lost(reconnection) = &self.link else { return };
        let (wire, terms) = match reconnection.take() {
            None => return,
            Some(Ok(found)) => found,
            Some(Err(error)) => return self.give_up(&error.to_string()),
        };
        if let Err(why) = self.protocol.renew(terms) {
            return self.give_up(why);
        }
        let data = EventData::new_u64(SOCKET);
        if let Err(errno) = epoll::add(&self.set, &wire.socket, data, EventFlags::IN) {
            return self.give_up(&errno.to_string());
        }
        (self.wire, self.link) = (wire, Link::Up);
        self.connected_at = Instant::now();
        self.jobs.setting.resets.fetch_add(1, Ordering::Relaxed);
        P::report(&self.jobs.setting.info.name, Event::Back);
        for slot in 0..self.jobs.slots.len() {
            let op = self.jobs.slots[slot].as_ref().map(|job| job.request.op);
            if op == Some(Op::Flush) && self.jobs.setting.writes.are_lost() {
                self.jobs.fail(slot, IoError::IO);
            } else {
                self.begin_again(slot);
            }
        }
    }

    fn begin_again(&mut self, slot: usize) {
        let Some(job) = &mut self.jobs.slots[slot] else { return };
        (job.error, job.again_at) = (None, None);
        self.protocol.begin(&mut self.jobs, slot);
    }

    /// Ends the jobs whose time is over, and sends those again whose pause is over.
    pub(super) fn look_at_times(&mut self) {
        let Some(now) = self.jobs.look() else { return };
        let limit = self.jobs.setting.limit;
        let mut is_late = false;
        for slot in 0..self.jobs.slots.len() {
            let Some(job) = &self.jobs.slots[slot] else { continue };
            let again_at = job.again_at;
            if now.duration_since(job.since) >= limit {
                // Without a reply; a reply that leads to a pause is one.
                is_late |= again_at.is_none();
                self.jobs.fail(slot, IoError::TIMED_OUT);
            } else if self.is_up() && again_at.is_some_and(|at| at <= now) {
                self.begin_again(slot);
            }
        }
        if is_late && self.is_up() {
            self.lose(&format!("the {} does not answer", P::PEER));
        }
        if !self.jobs.are_none() {
            self.jobs.set_timer(now);
        }
    }
}
