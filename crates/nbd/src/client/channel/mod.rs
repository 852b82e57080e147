//! A channel: a connection, and the requests in flight on it.
//!
//! Invariants:
//! - a request is in `jobs` from its submission until its completion is in `ended`; the number of
//!   its slot is its cookie;
//! - data goes to a buffer only inside the range of a read that is in flight;
//! - the socket is in the epoll set exactly while the link is up;
//! - while there is a job, the timer is set;
//! - no flush succeeds after a connection was lost with writes that none had covered.
//!
//! When the connection is lost, jobs stay, and are sent again by the next connection. A job that
//! takes longer than the time limit ends with an error, and the connection with it: a late answer
//! could not be told from that of the slot's next job.

mod link;
mod replies;

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, Error, IoChannel, IoError, Op, Request, Result,
    WaitClock, WaitOptions, WakeEvent, sleep,
};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use super::device::Count;
use super::handshake::Facts;
use super::tls::Wire;
use crate::wire::export_flag;
use crate::wire::request::flag;
use crate::wire::{Kind, Request as Message};
use link::Link;
pub(super) use link::Setting;
use replies::Following;

const STAGING_BYTES: usize = 256 << 10;
/// The time for which a channel that is dropped waits for its requests.
const GOODBYE: Duration = Duration::from_secs(5);

/// The events of the epoll set.
const SOCKET: u64 = 0;
const AGAIN: u64 = 1;
const TIMER: u64 = 2;

#[derive(Debug)]
struct Job {
    request: Request,
    since: Instant,
    error: Option<IoError>,
    /// The bytes of a read that have come.
    filled: u64,
    /// Whether the data is written, and a flush of it is in flight.
    is_flushing: bool,
    /// The writes of the device that had ended when a flush was submitted, which it covers.
    covers: u64,
}

pub(super) struct NbdChannel {
    setting: Setting,
    link: Link,
    connected_at: Instant,
    /// Signalled when a reconnection has ended, or when completions wait and the link is not up.
    again: Arc<WakeEvent>,
    timer: OwnedFd,
    /// The time for which the timer is set.
    looks_at: Option<Instant>,
    wire: Wire,
    set: OwnedFd,
    facts: Facts,
    jobs: Box<[Option<Job>]>,
    free: Vec<usize>,
    output: Vec<u8>,
    sent: usize,
    staging: Vec<u8>,
    /// The bytes of a reply's header that has not come as a whole.
    input: Vec<u8>,
    following: Option<Following>,
    ended: Vec<Completion>,
    taken: u32,
    watches_output: bool,
    wake: Option<Arc<WakeEvent>>,
    statistics: ChannelStatistics,
    _count: Count,
}
impl NbdChannel {
    pub(super) fn new(
        wire: Wire,
        facts: Facts,
        setting: Setting,
        options: &ChannelOptions,
        count: Count,
    ) -> Result<Self> {
        let failed = |errno: Errno| Error::os(errno.into(), "watching a connection of NBD");
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let again = WakeEvent::new()
            .map_err(|cause| Error::os(cause, "creating an event for a connection of NBD"))?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        let watch = |fd: BorrowedFd<'_>, number| {
            epoll::add(&set, fd, EventData::new_u64(number), EventFlags::IN).map_err(failed)
        };
        watch(wire.socket.as_fd(), SOCKET)?;
        watch(again.as_fd(), AGAIN)?;
        watch(timer.as_fd(), TIMER)?;
        let depth = options.depth as usize;
        Ok(Self {
            setting,
            link: Link::Up,
            connected_at: Instant::now(),
            again: Arc::new(again),
            timer,
            looks_at: None,
            wire,
            set,
            facts,
            jobs: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            output: Vec::new(),
            sent: 0,
            staging: vec![0; STAGING_BYTES],
            input: Vec::new(),
            following: None,
            ended: Vec::with_capacity(depth),
            taken: 0,
            watches_output: false,
            wake: options.wake.clone(),
            statistics: ChannelStatistics::default(),
            _count: count,
        })
    }

    /// Returns the result of a request that needs no server.
    fn answer(&self, request: &Request) -> Option<std::result::Result<(), IoError>> {
        if let Err(error) = self.setting.info.check(request, self.setting.size_bytes) {
            return Some(Err(error));
        }
        let info = &self.setting.info;
        match request.op {
            Op::Flush if !info.volatile_write_cache => Some(Ok(())),
            Op::Discard if !info.discards => Some(Err(IoError::UNSUPPORTED)),
            Op::WriteZeroes if !info.writes_zeroes => Some(Err(IoError::UNSUPPORTED)),
            _ if matches!(self.link, Link::Gone) => Some(Err(IoError::GONE)),
            Op::Flush if self.setting.writes.are_lost() => Some(Err(IoError::IO)),
            _ => None,
        }
    }

    fn end(&mut self, request: Request, result: std::result::Result<(), IoError>) {
        self.statistics.count(request.op, request.len_bytes, result);
        self.ended.push(request.complete(result));
    }

    /// Appends the message of a job.
    fn put(&mut self, slot: usize) {
        let Some(job) = &self.jobs[slot] else { return };
        let Request { op, force_unit_access, offset_bytes, len_bytes, .. } = job.request;
        let kind = match op {
            _ if job.is_flushing => Kind::Flush,
            Op::Read => Kind::Read,
            Op::Write => Kind::Write,
            Op::Flush => Kind::Flush,
            Op::Discard => Kind::Trim,
            Op::WriteZeroes => Kind::WriteZeroes,
        };
        let has_fua = self.facts.flags & export_flag::SEND_FUA != 0;
        let is_fua = kind == Kind::Write && force_unit_access && has_fua;
        let (offset, len) =
            if kind == Kind::Flush { (0, 0) } else { (offset_bytes, u64::from(len_bytes)) };
        let flags = if is_fua { flag::FUA } else { 0 };
        let cookie = slot as u64;
        Message { flags, kind, cookie, offset, len }.put(&mut self.output, false);
        if let (Kind::Write, Some(buffer)) = (kind, &job.request.buffer) {
            let at = self.output.len();
            self.output.resize(at + len_bytes as usize, 0);
            buffer.copy_to(job.request.buffer_offset_bytes as usize, &mut self.output[at..]);
        }
    }

    /// Sends from the front of the output; `None` if the socket takes nothing now.
    fn send_some(&mut self) -> io::Result<Option<usize>> {
        let rest = &self.output[self.sent..];
        if let Some(session) = &mut self.wire.tls {
            let count = session.send(&self.wire.socket, &[IoSlice::new(rest)])?;
            return Ok((count > 0).then_some(count));
        }
        match send(&self.wire.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::INTR) => Ok(Some(0)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether records of TLS wait until the socket takes them.
    fn has_records(&self) -> bool {
        self.wire.tls.as_ref().is_some_and(|session| session.has_output())
    }

    fn send(&mut self) {
        if self.is_up()
            && let Some(session) = &mut self.wire.tls
            && session.has_output()
            && let Err(error) = session.send(&self.wire.socket, &[])
        {
            return self.lose(&error.to_string());
        }
        while self.sent < self.output.len() && self.is_up() {
            self.statistics.system_calls += 1;
            match self.send_some() {
                Ok(Some(count)) => self.sent += count,
                Ok(None) => break,
                Err(error) => return self.lose(&error.to_string()),
            }
        }
        if !self.is_up() {
            if !self.ended.is_empty() && !self.again.is_signalled() {
                self.again.signal();
            }
            return;
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        } else if self.sent > STAGING_BYTES {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        // Completions without the server wake through the socket's readiness to be written.
        let wanted = !self.output.is_empty() || !self.ended.is_empty() || self.has_records();
        if wanted != self.watches_output {
            self.watches_output = wanted;
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, wanted);
            // The socket is in the set, so this cannot fail.
            let _ = epoll::modify(&self.set, &self.wire.socket, EventData::new_u64(SOCKET), flags);
        }
    }

    fn fail(&mut self, slot: usize, error: IoError) {
        if let Some(job) = self.jobs[slot].take() {
            self.free.push(slot);
            self.end(job.request, Err(error));
        }
    }

    fn turn(&mut self, completions: &mut Vec<Completion>) {
        if self.again.is_signalled() {
            self.again.clear();
            self.come_back();
        }
        self.send();
        while self.receive() {}
        self.look_at_times();
        self.taken -= self.ended.len() as u32;
        completions.append(&mut self.ended);
        self.send();
    }
}

impl IoChannel for NbdChannel {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.taken as usize >= self.jobs.len() {
            return Err(request);
        }
        if let Some(result) = self.answer(&request) {
            self.taken += 1;
            self.end(request, result);
            return Ok(());
        }
        let Some(slot) = self.free.pop() else { return Err(request) };
        self.taken += 1;
        let since = Instant::now();
        let covers = self.setting.writes.ended();
        let job = Job { request, since, error: None, filled: 0, is_flushing: false, covers };
        self.jobs[slot] = Some(job);
        if self.looks_at.is_none() {
            self.set_timer(since);
        }
        match self.link {
            Link::Up => self.put(slot),
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
            let left = end.map(|end| end.saturating_duration_since(now));
            let completion = (self.taken > 0).then(|| self.set.as_fd());
            self.statistics.system_calls += 1;
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
        self.statistics
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.set.as_fd()))
    }
}

impl Drop for NbdChannel {
    fn drop(&mut self) {
        let until = Instant::now() + GOODBYE;
        let mut completions = Vec::new();
        // Requests of a server that has become silent are given up: it reaches no memory of ours.
        self.wake = None;
        while self.taken > 0 && Instant::now() < until {
            let timeout = Some(until.saturating_duration_since(Instant::now()));
            self.wait(&mut completions, WaitOptions { want: 1, linger: Duration::ZERO, timeout });
            completions.clear();
        }
        let leave = Message { flags: 0, kind: Kind::Disconnect, cookie: 0, offset: 0, len: 0 };
        if self.is_up() {
            leave.put(&mut self.output, false);
            self.send();
            if let Some(session) = &mut self.wire.tls {
                session.close(&self.wire.socket);
            }
        }
    }
}
