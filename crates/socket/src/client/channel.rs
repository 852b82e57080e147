//! A channel: a connection, and the requests in flight on it.
//!
//! Invariants:
//! - the socket is in the epoll set exactly while the link is up;
//! - no flush succeeds after a connection was lost with writes that none had covered.
//!
//! When the connection is lost, jobs stay, and are sent again by the next connection. A job that
//! takes longer than the time limit ends with an error, and the connection with it: a late answer
//! could not be told from that of the slot's next job.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, Error, IoChannel, IoError, Op, Request, Result,
    WaitClock, WaitOptions, WakeEvent, sleep,
};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::jobs::{Jobs, Setting};
use super::link::Link;
use super::protocol::Protocol;
use super::wire::Wire;

const STAGING_BYTES: usize = 256 << 10;
/// The time for which a channel that is dropped waits for its requests.
const GOODBYE: Duration = Duration::from_secs(5);

/// The events of the epoll set.
pub(super) const SOCKET: u64 = 0;
const AGAIN: u64 = 1;
const TIMER: u64 = 2;

/// A channel to a disk over a stream.
pub struct StreamChannel<P: Protocol> {
    pub(super) jobs: Jobs<P::State>,
    pub(super) link: Link<P::Terms>,
    pub(super) connected_at: Instant,
    /// Signalled when a reconnection has ended, or when completions wait and the link is not up.
    pub(super) again: Arc<WakeEvent>,
    pub(super) wire: Wire,
    pub(super) set: OwnedFd,
    /// The bytes of the output that are sent.
    pub(super) sent: usize,
    staging: Vec<u8>,
    /// The bytes of a message's header that has not come as a whole.
    pub(super) input: Vec<u8>,
    /// The requests that were submitted and whose completions were not polled.
    taken: u32,
    pub(super) watches_output: bool,
    wake: Option<Arc<WakeEvent>>,
    pub(super) protocol: P,
}

impl<P: Protocol> StreamChannel<P> {
    /// Makes a channel of a connection.
    ///
    /// # Errors
    /// `Limit` if there are no descriptors.
    pub fn new(
        protocol: P,
        wire: Wire,
        setting: Setting,
        options: &ChannelOptions,
    ) -> Result<Self> {
        let name = P::NAME;
        let failed =
            |errno: Errno| Error::os(errno.into(), format!("watching a connection of {name}"));
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let again = WakeEvent::new().map_err(|cause| {
            Error::os(cause, format!("creating an event for a connection of {name}"))
        })?;
        let jobs = Jobs::new(options.depth as usize, setting).map_err(failed)?;
        let watch = |fd: BorrowedFd<'_>, number| {
            epoll::add(&set, fd, EventData::new_u64(number), EventFlags::IN).map_err(failed)
        };
        watch(wire.socket.as_fd(), SOCKET)?;
        watch(again.as_fd(), AGAIN)?;
        watch(jobs.timer.as_fd(), TIMER)?;
        Ok(Self {
            jobs,
            link: Link::Up,
            connected_at: Instant::now(),
            again: Arc::new(again),
            wire,
            set,
            sent: 0,
            staging: vec![0; STAGING_BYTES],
            input: Vec::new(),
            taken: 0,
            watches_output: false,
            wake: options.wake.clone(),
            protocol,
        })
    }

    /// Returns the result of a request that needs no peer.
    fn answer(&self, request: &Request) -> Option<std::result::Result<(), IoError>> {
        let Setting { info, writes, .. } = &self.jobs.setting;
        if let Err(error) = info.check(request, self.protocol.size_bytes()) {
            return Some(Err(error));
        }
        match request.op {
            Op::Flush if !info.volatile_write_cache => Some(Ok(())),
            Op::Discard if !info.discards => Some(Err(IoError::UNSUPPORTED)),
            Op::WriteZeroes if !info.writes_zeroes => Some(Err(IoError::UNSUPPORTED)),
            _ if matches!(self.link, Link::Gone) => Some(Err(IoError::GONE)),
            Op::Flush if writes.are_lost() => Some(Err(IoError::IO)),
            _ => None,
        }
    }

    fn send(&mut self) {
        if self.is_up()
            && self.wire.has_records()
            && let Err(error) = self.wire.send(&[])
        {
            return self.lose(&error.to_string());
        }
        while self.sent < self.jobs.output.len() && self.is_up() {
            self.jobs.statistics.system_calls += 1;
            match self.wire.send(&self.jobs.output[self.sent..]) {
                Ok(Some(count)) => self.sent += count,
                Ok(None) => break,
                Err(error) => return self.lose(&error.to_string()),
            }
        }
        let Jobs { output, ended, .. } = &mut self.jobs;
        if !matches!(self.link, Link::Up) {
            if !ended.is_empty() && !self.again.is_signalled() {
                self.again.signal();
            }
            return;
        }
        if self.sent == output.len() {
            output.clear();
            self.sent = 0;
        } else if self.sent > STAGING_BYTES {
            output.drain(..self.sent);
            self.sent = 0;
        }
        // Completions without the peer wake through the socket's readiness to be written.
        let wanted = !output.is_empty() || !ended.is_empty() || self.wire.has_records();
        if wanted != self.watches_output {
            self.watches_output = wanted;
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, wanted);
            // The socket is in the set, so this cannot fail.
            let _ = epoll::modify(&self.set, &self.wire.socket, EventData::new_u64(SOCKET), flags);
        }
    }

    /// Reads messages. Returns whether there may be more.
    fn receive(&mut self) -> bool {
        if !self.is_up() {
            return false;
        }
        self.jobs.statistics.system_calls += 1;
        let count = match self.wire.receive(&mut self.staging) {
            Ok(Some(count)) if count > 0 => count,
            Ok(None) => return false,
            Ok(Some(_)) => {
                self.lose(&format!("the {} has closed it", P::PEER));
                return false;
            }
            Err(error) => {
                self.lose(&error.to_string());
                return false;
            }
        };
        if let Err(what) = self.parse(count) {
            // The next connection may fare better; the jobs' time is limited.
            if P::IS_STRICT { self.give_up(what) } else { self.lose(what) }
        }
        // TLS uses half of the buffer for records.
        count == STAGING_BYTES || count > STAGING_BYTES / 4 && self.wire.tls.is_some()
    }

    fn parse(&mut self, count: usize) -> std::result::Result<(), &'static str> {
        let received = &self.staging[..count];
        if self.input.is_empty() {
            let taken = self.protocol.parse(&mut self.jobs, received)?;
            self.input.extend_from_slice(&received[taken..]);
        } else {
            let mut input = std::mem::take(&mut self.input);
            input.extend_from_slice(received);
            let taken = self.protocol.parse(&mut self.jobs, &input)?;
            self.input.extend_from_slice(&input[taken..]);
        }
        Ok(())
    }

    fn turn(&mut self, completions: &mut Vec<Completion>) {
        if self.again.is_signalled() {
            self.again.clear();
            self.come_back();
        }
        self.send();
        while self.receive() {}
        self.look_at_times();
        self.taken -= self.jobs.ended.len() as u32;
        completions.append(&mut self.jobs.ended);
        self.send();
    }
}

impl<P: Protocol> IoChannel for StreamChannel<P> {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.taken as usize >= self.jobs.slots.len() {
            return Err(request);
        }
        if let Some(result) = self.answer(&request) {
            self.taken += 1;
            self.jobs.end(request, result);
            return Ok(());
        }
        let slot = self.jobs.insert(request)?;
        self.taken += 1;
        match self.link {
            Link::Up => self.protocol.begin(&mut self.jobs, slot),
            Link::Down => self.connect_again(),
            Link::Lost(_) | Link::Gone => {}
        }
        Ok(())
    }

    fn kick(&mut self) {
        self.send();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.turn(completions);
        completions.len() - before
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let before = completions.len();
        let clock = WaitClock::start(options, self.taken);
        loop {
            self.turn(completions);
            let (got, now) = (completions.len() - before, Instant::now());
            if clock.is_over(got, now) {
                return got;
            }
            let end = clock.end(got);
            if self.taken == 0 && end.is_none() && self.wake.is_none() {
                return got;
            }
            // A link that is not up comes back only after a while.
            if self.protocol.polls() && self.taken > 0 && self.is_up() {
                if self.wake.as_ref().is_some_and(|wake| wake.is_signalled()) {
                    return got;
                }
                continue;
            }
            let left = end.map(|end| end.saturating_duration_since(now));
            let completion = (self.taken > 0).then(|| self.set.as_fd());
            self.jobs.statistics.system_calls += 1;
            if sleep(completion, self.wake.as_deref(), left) {
                self.turn(completions);
                return completions.len() - before;
            }
        }
    }

    fn in_flight(&self) -> u32 {
        self.taken
    }

    fn statistics(&self) -> ChannelStatistics {
        self.jobs.statistics
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.set.as_fd()))
    }
}

impl<P: Protocol> Drop for StreamChannel<P> {
    fn drop(&mut self) {
        let until = Instant::now() + GOODBYE;
        let mut completions = Vec::new();
        // Requests of a peer that has become silent are given up: it reaches no memory of ours.
        self.wake = None;
        while self.taken > 0 && Instant::now() < until {
            let timeout = Some(until.saturating_duration_since(Instant::now()));
            self.wait(&mut completions, WaitOptions { want: 1, linger: Duration::ZERO, timeout });
            completions.clear();
        }
        if self.is_up() && self.protocol.leave(&mut self.jobs.output) {
            self.send();
            if let Some(session) = &mut self.wire.tls {
                session.close(&self.wire.socket);
            }
        }
    }
}
