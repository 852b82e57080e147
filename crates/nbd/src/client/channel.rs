//! A channel: a connection, and the requests in flight on it.
//!
//! Invariants:
//! - a request is in `jobs` from its submission until its completion is in `ended`; the number of
//!   its slot is its cookie;
//! - data goes to a buffer only inside the range of a read that is in flight.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, DeviceInfo, Error, IoChannel, IoError, Op,
    Request, Result, WaitClock, WaitOptions, WakeEvent, sleep,
};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::device::Count;
use super::handshake::Facts;
use crate::wire::export_flag;
use crate::wire::request::flag;
use crate::wire::{Chunk, Kind, Reply, Request as Message};

const STAGING_BYTES: usize = 256 << 10;
/// The time for which a channel that is dropped waits for its requests.
const GOODBYE: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Job {
    request: Request,
    error: Option<IoError>,
    /// The bytes of a read that have come.
    filled: u64,
    /// Whether the data is written, and a flush of it is in flight.
    is_flushing: bool,
}

/// The data that follows the header of the last reply.
#[derive(Clone, Copy, Debug)]
struct Following {
    slot: usize,
    /// The offset in the read; `None` for bytes to skip.
    at: Option<u64>,
    left: u64,
    done: bool,
}

pub(super) struct NbdChannel {
    socket: OwnedFd,
    set: OwnedFd,
    facts: Facts,
    info: DeviceInfo,
    size_bytes: u64,
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
    is_dead: bool,
    watches_output: bool,
    wake: Option<Arc<WakeEvent>>,
    statistics: ChannelStatistics,
    _count: Count,
}

impl NbdChannel {
    pub(super) fn new(
        socket: OwnedFd,
        facts: Facts,
        info: &DeviceInfo,
        size_bytes: u64,
        options: &ChannelOptions,
        count: Count,
    ) -> Result<Self> {
        let failed = |errno: Errno| Error::os(errno.into(), "watching a connection of NBD");
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&set, &socket, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        let depth = options.depth as usize;
        Ok(Self {
            socket,
            set,
            facts,
            info: info.clone(),
            size_bytes,
            jobs: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            output: Vec::new(),
            sent: 0,
            staging: vec![0; STAGING_BYTES],
            input: Vec::new(),
            following: None,
            ended: Vec::with_capacity(depth),
            taken: 0,
            is_dead: false,
            watches_output: false,
            wake: options.wake.clone(),
            statistics: ChannelStatistics::default(),
            _count: count,
        })
    }

    /// Returns the result of a request that needs no server.
    fn answer(&self, request: &Request) -> Option<std::result::Result<(), IoError>> {
        if let Err(error) = self.info.check(request, self.size_bytes) {
            return Some(Err(error));
        }
        match request.op {
            Op::Flush if !self.info.volatile_write_cache => Some(Ok(())),
            Op::Discard if !self.info.discards => Some(Err(IoError::UNSUPPORTED)),
            Op::WriteZeroes if !self.info.writes_zeroes => Some(Err(IoError::UNSUPPORTED)),
            _ if self.is_dead => Some(Err(IoError::GONE)),
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

    fn send(&mut self) {
        while self.sent < self.output.len() && !self.is_dead {
            self.statistics.system_calls += 1;
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(&self.socket, &self.output[self.sent..], flags) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.is_dead = true,
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        } else if self.sent > STAGING_BYTES {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        // Completions without the server wake through the socket's readiness to be written.
        let wanted = !self.output.is_empty() || !self.ended.is_empty();
        if wanted != self.watches_output {
            self.watches_output = wanted;
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, wanted);
            // The socket is in the set, so this cannot fail.
            let _ = epoll::modify(&self.set, &self.socket, EventData::new_u64(0), flags);
        }
    }

    /// Reads replies. Returns whether there may be more.
    fn receive(&mut self) -> bool {
        if self.is_dead || self.free.len() == self.jobs.len() {
            return false;
        }
        self.statistics.system_calls += 1;
        let mut staging = std::mem::take(&mut self.staging);
        let received = recv(&self.socket, &mut staging[..], RecvFlags::DONTWAIT);
        let count = match received {
            Ok((_, 0)) => {
                self.is_dead = true;
                0
            }
            Ok((_, count)) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => {
                self.is_dead = true;
                0
            }
        };
        if count > 0 {
            let parsed = if self.input.is_empty() {
                self.parse(&staging[..count]).map(|taken| self.input.extend(&staging[taken..count]))
            } else {
                let mut input = std::mem::take(&mut self.input);
                input.extend(&staging[..count]);
                self.parse(&input).map(|taken| self.input.extend(&input[taken..]))
            };
            if let Err(what) = parsed {
                let device = &self.info.name;
                tracing::warn!(name: "lost", device, error = what, "a connection of NBD was ended");
                self.is_dead = true;
            }
        }
        self.staging = staging;
        count == STAGING_BYTES
    }

    /// Takes whole headers and their data, and returns how many bytes these have.
    fn parse(&mut self, bytes: &[u8]) -> std::result::Result<usize, &'static str> {
        let mut rest = bytes;
        loop {
            if let Some(mut following) = self.following.take() {
                let count = rest.len().min(usize::try_from(following.left).unwrap_or(usize::MAX));
                if let Some(at) = &mut following.at {
                    self.fill(following.slot, *at, &rest[..count])?;
                    *at += count as u64;
                }
                rest = &rest[count..];
                following.left -= count as u64;
                if following.left > 0 {
                    self.following = Some(following);
                    break;
                }
                if following.done {
                    self.conclude(following.slot);
                }
                continue;
            }
            let Some((reply, head)) = Reply::decode(rest)? else { break };
            rest = &rest[head..];
            let slot = usize::try_from(reply.cookie).unwrap_or(usize::MAX);
            let job = self.jobs.get_mut(slot).and_then(Option::as_mut);
            let Some(job) = job else { return Err("the server answered no request") };
            let Request { op, offset_bytes, len_bytes, .. } = job.request;
            let inside = |offset: u64, len: u64| {
                let at = offset.checked_sub(offset_bytes);
                at.filter(|at| at.checked_add(len).is_some_and(|end| end <= len_bytes.into()))
            };
            let (mut at, mut left) = (None, 0);
            match reply.chunk {
                Chunk::Simple if op == Op::Read => (at, left) = (Some(0), len_bytes.into()),
                Chunk::Simple | Chunk::None => {}
                Chunk::Error { errno, skip } => {
                    job.error.get_or_insert(errno.io_error());
                    left = skip;
                }
                Chunk::Data { offset, len } if op == Op::Read => {
                    at = inside(offset, len);
                    left = len;
                    if at.is_none() {
                        return Err("the server sent data outside a request");
                    }
                }
                Chunk::Hole { offset, len } if op == Op::Read => {
                    let at =
                        inside(offset, len).ok_or("the server sent a hole outside a request")?;
                    self.fill_zeroes(slot, at, len)?;
                }
                Chunk::Data { .. } | Chunk::Hole { .. } => {
                    return Err("the server sent data for a request without");
                }
                Chunk::Other { skip } if skip < 1 << 20 => left = skip,
                Chunk::Other { .. } => return Err("the server sent a chunk that is too long"),
            }
            self.following = Some(Following { slot, at, left, done: reply.done });
        }
        Ok(bytes.len() - rest.len())
    }

    fn fill(&mut self, slot: usize, at: u64, data: &[u8]) -> std::result::Result<(), &'static str> {
        let Some(job) = &mut self.jobs[slot] else { return Ok(()) };
        job.filled += data.len() as u64;
        if job.filled > u64::from(job.request.len_bytes) {
            return Err("the server sent data twice");
        }
        if let Some(buffer) = &mut job.request.buffer {
            buffer.copy_from(job.request.buffer_offset_bytes as usize + at as usize, data);
        }
        Ok(())
    }

    fn fill_zeroes(
        &mut self,
        slot: usize,
        mut at: u64,
        len: u64,
    ) -> std::result::Result<(), &'static str> {
        const ZEROES: [u8; 4096] = [0; 4096];
        let end = at + len;
        while at < end {
            let part = (end - at).min(ZEROES.len() as u64);
            self.fill(slot, at, &ZEROES[..part as usize])?;
            at += part;
        }
        Ok(())
    }

    /// Ends the job whose reply is complete.
    fn conclude(&mut self, slot: usize) {
        let Some(mut job) = self.jobs[slot].take() else { return };
        let Request { op, force_unit_access, len_bytes, .. } = job.request;
        let needs_flush = op == Op::Write
            && force_unit_access
            && self.info.volatile_write_cache
            && self.facts.flags & export_flag::SEND_FUA == 0;
        if job.error.is_none() && needs_flush && !job.is_flushing {
            job.is_flushing = true;
            self.jobs[slot] = Some(job);
            return self.put(slot);
        }
        let is_short = op == Op::Read && job.filled != u64::from(len_bytes);
        let result = match job.error {
            Some(error) => Err(error),
            None if is_short => Err(IoError::IO),
            None => Ok(()),
        };
        self.free.push(slot);
        self.end(job.request, result);
    }

    fn turn(&mut self, completions: &mut Vec<Completion>) {
        self.send();
        while self.receive() {}
        if self.is_dead {
            self.output.clear();
            self.sent = 0;
            for slot in 0..self.jobs.len() {
                if let Some(job) = self.jobs[slot].take() {
                    self.free.push(slot);
                    self.end(job.request, Err(IoError::GONE));
                }
            }
        }
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
        self.jobs[slot] = Some(Job { request, error: None, filled: 0, is_flushing: false });
        self.put(slot);
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
        while self.taken > 0 && Instant::now() < until {
            let timeout = Some(until.saturating_duration_since(Instant::now()));
            self.wake = None;
            self.wait(&mut completions, WaitOptions { want: 1, linger: Duration::ZERO, timeout });
            completions.clear();
        }
        let leave = Message { flags: 0, kind: Kind::Disconnect, cookie: 0, offset: 0, len: 0 };
        leave.put(&mut self.output, false);
        self.send();
    }
}
