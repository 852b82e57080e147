//! The link to the target: a connection that may be lost and made again, and the times of requests.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{DeviceInfo, IoError, Op, Reconnection, UnflushedWrites};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{Shutdown, shutdown};
use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

use super::{Job, NvmeTcpChannel, SOCKET};
use crate::client::association::{Association, Queue};
use crate::wire::{Digests, End, Receiver};

#[derive(Debug)]
pub(super) enum Link {
    Up,
    /// The connection was lost without a request in flight. The next request connects again.
    Down,
    Lost(Reconnection<Queue>),
    /// The target did not come back in time, or broke the protocol.
    Gone,
}

/// The facts of a channel that do not change.
pub(in crate::client) struct Setting {
    pub(in crate::client) association: Arc<Association>,
    /// The number and the entries of the queue.
    pub(in crate::client) number: u16,
    pub(in crate::client) entries: u32,
    pub(in crate::client) info: DeviceInfo,
    pub(in crate::client) digests: Digests,
    pub(in crate::client) polls: bool,
    /// The time limit of a request.
    pub(in crate::client) limit: Duration,
    /// The number of connections of the device that were made again.
    pub(in crate::client) resets: Arc<AtomicU64>,
    pub(in crate::client) writes: Arc<UnflushedWrites>,
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.association.give_number(self.number);
    }
}

impl NvmeTcpChannel {
    pub(super) fn is_up(&self) -> bool {
        matches!(self.link, Link::Up)
    }

    /// Closes the connection, and forgets what belongs to it.
    pub(super) fn close(&mut self) {
        if self.is_up() {
            // The socket is in the set. Either call fails only if it is closed already.
            let _ = epoll::delete(&self.set, &self.socket);
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
        self.tls = None;
        self.output.clear();
        self.input.clear();
        self.sent = 0;
        self.following = None;
        self.receiver = receiver(self.setting.digests);
        self.watches_output = false;
    }

    /// Takes notice that the connection is lost, and connects again if there are jobs.
    pub(super) fn lose(&mut self, why: &str) {
        let device = &self.setting.info.name;
        tracing::warn!(name: "lost", device, error = why, "a connection of NVMe/TCP was lost");
        if self.setting.writes.lose() {
            tracing::warn!(
                name: "lost_writes",
                device,
                "the NVMe/TCP target may have lost writes, so flushes fail until the device is opened again"
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
        let Setting { association, number, entries, limit, .. } = &self.setting;
        let (association, number, entries) = (association.clone(), *number, *entries);
        let connect = move || association.connect_queue(number, entries);
        match Reconnection::begin(connect, is_early, now + *limit, self.again.clone()) {
            Ok(reconnection) => self.link = Link::Lost(reconnection),
            Err(error) => self.give_up(&error.to_string()),
        }
    }

    /// Ends all jobs with an error, and so all later ones.
    pub(super) fn give_up(&mut self, why: &str) {
        let device = &self.setting.info.name;
        tracing::warn!(name: "gone", device, error = why, "an NVMe/TCP target was given up");
        self.close();
        self.link = Link::Gone;
        for slot in 0..self.jobs.len() {
            self.fail(slot, IoError::GONE);
        }
    }

    /// Takes the result of a reconnection, and sends the jobs again.
    pub(super) fn come_back(&mut self) {
        let Link::Lost(reconnection) = &self.link else { return };
        let queue = match reconnection.take() {
            None => return,
            Some(Ok(queue)) => queue,
            Some(Err(error)) => return self.give_up(&error.to_string()),
        };
        let socket = OwnedFd::from(queue.stream);
        let data = EventData::new_u64(SOCKET);
        if let Err(errno) = epoll::add(&self.set, &socket, data, EventFlags::IN) {
            return self.give_up(&errno.to_string());
        }
        (self.socket, self.tls, self.link) = (socket, queue.tls, Link::Up);
        self.data_bytes_max = queue.data_bytes_max;
        self.connected_at = Instant::now();
        self.setting.resets.fetch_add(1, Ordering::Relaxed);
        let device = &self.setting.info.name;
        tracing::info!(name: "back", device, "a connection of NVMe/TCP was made again");
        for slot in 0..self.jobs.len() {
            let is_flush = |job: &Job| job.request.op == Op::Flush;
            if self.setting.writes.are_lost() && self.jobs[slot].as_ref().is_some_and(is_flush) {
                self.fail(slot, IoError::IO);
            } else if let Some(job) = &mut self.jobs[slot] {
                (job.error, job.filled, job.asked) = (None, 0, 0);
                self.put(slot);
            }
        }
    }

    /// Sets the timer, for the next look at the jobs' times.
    pub(super) fn set_timer(&mut self, now: Instant) {
        let pause =
            (self.setting.limit / 8).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let soonest = self.jobs.iter().flatten().filter_map(|job| job.again_at).min();
        let left = soonest.map(|at| at.saturating_duration_since(now));
        let pause = left.map_or(pause, |left| left.clamp(Duration::from_millis(1), pause));
        let value = Timespec::try_from(pause).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        // The descriptor is a timer and the time is valid, so this cannot fail.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec);
        self.looks_at = Some(now + pause);
    }

    /// Sets the timer for a time, if it is not set for an earlier one.
    pub(super) fn look_by(&mut self, time: Instant) {
        if self.looks_at.is_none_or(|at| at > time) {
            self.set_timer(Instant::now());
        }
    }

    /// Ends the jobs whose time is over, and sends those again whose pause is over.
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
            let Some(job) = &self.jobs[slot] else { continue };
            let again_at = job.again_at;
            if now.duration_since(job.since) >= limit {
                // Without an answer; an answer that the way is closed is one.
                is_late |= again_at.is_none();
                self.fail(slot, IoError::TIMED_OUT);
            } else if self.is_up() && again_at.is_some_and(|at| at <= now) {
                self.put(slot);
            }
        }
        if is_late && self.is_up() {
            self.lose("the target does not answer");
        }
        if self.free.len() < self.jobs.len() {
            self.set_timer(now);
        }
    }
}

/// Makes the reception of a connection whose parameters are agreed on.
pub(super) fn receiver(digests: Digests) -> Receiver {
    let mut receiver = Receiver::new(End::Host, u32::MAX);
    receiver.initialize(digests);
    receiver
}
