//! The link to the server: a connection that may be lost and made again, and the times of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{DeviceInfo, IoError, Op, Reconnection, UnflushedWrites};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{Shutdown, shutdown};
use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

use super::{Job, NbdChannel, SOCKET};
use crate::client::handshake::Facts;
use crate::client::peer::Peer;
use crate::client::tls::Wire;

#[derive(Debug)]
pub(super) enum Link {
    Up,
    /// The connection was lost without a request in flight. The next request connects again.
    Down,
    Lost(Reconnection<(Wire, Facts)>),
    /// The server did not come back in time, or broke the protocol.
    Gone,
}

/// The facts of a channel that do not change.
pub(in crate::client) struct Setting {
    pub(in crate::client) peer: Peer,
    pub(in crate::client) info: DeviceInfo,
    pub(in crate::client) size_bytes: u64,
    /// The time limit of a request.
    pub(in crate::client) limit: Duration,
    /// The number of connections of the device that were made again.
    pub(in crate::client) resets: Arc<AtomicU64>,
    pub(in crate::client) writes: Arc<UnflushedWrites>,
}

impl NbdChannel {
    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up)
    }

    /// Closes the connection, and forgets what belongs to it.
    pub(super) fn close(&mut self) {
        if self.is_up() {
            // The socket is in the set. Either call fails only if it is closed already.
            let _ = epoll::delete(&self.set, &self.wire.socket);
            let _ = shutdown(&self.wire.socket, Shutdown::Both);
        }
        self.output.clear();
        self.input.clear();
        self.sent = 0;
        self.following = None;
        self.watches_output = false;
    }

    /// Takes notice that the connection is lost, and connects again if there are jobs.
    pub(super) fn lose(&mut self, why: &str) {
        let device = &self.setting.info.name;
        tracing::warn!(name: "lost", device, error = why, "a connection of NBD was lost");
        if self.setting.writes.lose() {
            tracing::warn!(
                name: "lost_writes",
                device,
                "the NBD server may have lost writes, so flushes fail until the device is opened again"
            );
        }
        self.close();
        self.link = Link::Down;
        if self.free.len() < self.jobs.len() {
            self.connect_again();
        }
    }

    pub(super) fn connect_again(&mut self) {
        let now = Instant::now();
        // A server that closes each connection at once is not asked without a pause.
        let is_early = now.duration_since(self.connected_at) < Duration::from_secs(1);
        let (peer, until) = (self.setting.peer.clone(), now + self.setting.limit);
        match Reconnection::begin(move || peer.connect(), is_early, until, self.again.clone()) {
            Ok(reconnection) => self.link = Link::Lost(reconnection),
            Err(error) => self.give_up(&error.to_string()),
        }
    }

    /// Ends all jobs with an error, and so all later ones.
    pub(super) fn give_up(&mut self, why: &str) {
        let device = &self.setting.info.name;
        tracing::warn!(name: "gone", device, error = why, "an NBD server was given up");
        self.close();
        self.link = Link::Gone;
        for slot in 0..self.jobs.len() {
            self.fail(slot, IoError::GONE);
        }
    }

    /// Takes the result of a reconnection, and sends the jobs again.
    pub(super) fn come_back(&mut self) {
        let Link::Lost(reconnection) = &self.link else { return };
        let (wire, facts) = match reconnection.take() {
            None => return,
            Some(Ok(found)) => found,
            Some(Err(error)) => return self.give_up(&error.to_string()),
        };
        let had = &self.facts;
        if facts.size_bytes < had.size_bytes
            || facts.block_bytes != had.block_bytes
            || facts.flags & had.flags != had.flags
        {
            return self.give_up("the export has changed");
        }
        let data = EventData::new_u64(SOCKET);
        if let Err(errno) = epoll::add(&self.set, &wire.socket, data, EventFlags::IN) {
            return self.give_up(&errno.to_string());
        }
        (self.wire, self.facts, self.link) = (wire, facts, Link::Up);
        self.connected_at = Instant::now();
        self.setting.resets.fetch_add(1, Ordering::Relaxed);
        let device = &self.setting.info.name;
        tracing::info!(name: "back", device, "a connection of NBD was made again");
        for slot in 0..self.jobs.len() {
            let is_flush = |job: &Job| job.request.op == Op::Flush;
            if self.setting.writes.are_lost() && self.jobs[slot].as_ref().is_some_and(is_flush) {
                self.fail(slot, IoError::IO);
            } else if let Some(job) = &mut self.jobs[slot] {
                // A write that only its flush was missing for may be lost in the server's cache.
                (job.error, job.filled, job.is_flushing) = (None, 0, false);
                self.put(slot);
            }
        }
    }

    /// Sets the timer, for the next look at the jobs' times.
    pub(super) fn set_timer(&mut self, now: Instant) {
        let pause =
            (self.setting.limit / 8).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let value = Timespec::try_from(pause).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        // The descriptor is a timer and the time is valid, so this cannot fail.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec);
        self.looks_at = Some(now + pause);
    }

    /// Ends the jobs whose time is over.
    pub(super) fn look_at_times(&mut self) {
        let Some(at) = self.looks_at else { return };
        let now = Instant::now();
        if now < at {
            return;
        }
        self.looks_at = None;
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        let limit = self.setting.limit;
        let mut is_late = false;
        for slot in 0..self.jobs.len() {
            let since = self.jobs[slot].as_ref().map(|job| job.since);
            if since.is_some_and(|since| now.duration_since(since) >= limit) {
                is_late = true;
                self.fail(slot, IoError::TIMED_OUT);
            }
        }
        if is_late && self.is_up() {
            self.lose("the server does not answer");
        }
        if self.free.len() < self.jobs.len() {
            self.set_timer(now);
        }
    }
}
