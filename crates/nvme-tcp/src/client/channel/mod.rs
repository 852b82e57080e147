//! A channel: a connection, and the requests in flight on it.
//!
//! Invariants:
//! - a request is in `jobs` from its submission until its completion is in `ended`; its command
//!   identifier is the number of its slot, and of the slot's commands so far;
//! - data goes to a buffer only inside the range of a read that is in flight;
//! - the socket is in the epoll set exactly while the link is up;
//! - while there is a job, the timer is set;
//! - no flush succeeds after a connection was lost with writes that none had covered.
//!
//! When the connection is lost, jobs stay, and are sent again by the next connection. A job that
//! cannot be done because of the way to the namespace (ANA) stays as well, and is sent again after
//! a pause. A job that takes longer than the time limit ends with an error, and the connection with
//! it: a late answer could not be told from that of the slot's next job.

mod input;
mod link;

use std::io::IoSlice;
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

use qpair_nvme_wire::command::{DEALLOCATE, FORCE_UNIT_ACCESS, io};
use qpair_nvme_wire::fabrics::{Sgl, sgl};
use qpair_nvme_wire::{Command, Range};
use qpair_tls::Session;

use super::association::{Queue, with_data, without_data};
use crate::wire::{DataPdu, R2t, Receiver, crc32c, put};
use input::Following;
use link::Link;
pub(super) use link::Setting;

/// The bits of a command identifier that number a slot. The others count its commands, so that a
/// second answer to an earlier one is noticed.
const SLOT_BITS: u32 = 8;
const _: () = assert!(super::device::DEPTH_MAX <= 1 << SLOT_BITS);
const STAGING_BYTES: usize = 256 << 10;
/// The most blocks of a command that writes zeroes.
const ZEROES_BLOCKS_MAX: u32 = 1 << 16;
/// The time for which a channel that is dropped waits for its requests.
const GOODBYE: Duration = Duration::from_secs(5);

/// The events of the epoll set.
const SOCKET: u64 = 0;
const AGAIN: u64 = 1;
const TIMER: u64 = 2;

#[derive(Debug)]
struct Job {
    request: Request,
    /// The identifier of its command.
    cid: u16,
    since: Instant,
    error: Option<IoError>,
    /// The time to send the command again, after the target has said that the way to the namespace
    /// is closed.
    again_at: Option<Instant>,
    /// The bytes of a read that have come.
    filled: u32,
    /// The bytes of a write that the target has asked for.
    asked: u32,
    /// The bytes of zeroes that are written: a command has a limited number of blocks.
    done: u32,
    /// The writes of the device that had ended when a flush was submitted, which it covers.
    covers: u64,
}

pub(super) struct NvmeTcpChannel {
    setting: Setting,
    link: Link,
    connected_at: Instant,
    /// Signalled when a reconnection has ended, or when completions wait and the link is not up.
    again: Arc<WakeEvent>,
    timer: OwnedFd,
    /// The time for which the timer is set.
    looks_at: Option<Instant>,
    socket: OwnedFd,
    tls: Option<Box<Session>>,
    set: OwnedFd,
    receiver: Receiver,
    /// The most data of a PDU to the target, bytes.
    data_bytes_max: u32,
    jobs: Box<[Option<Job>]>,
    /// The number of commands so far, of which the last bits are part of identifiers.
    commands: u32,
    free: Vec<usize>,
    output: Vec<u8>,
    sent: usize,
    staging: Vec<u8>,
    /// The bytes of a PDU's header that has not come as a whole.
    input: Vec<u8>,
    following: Option<Following>,
    ended: Vec<Completion>,
    taken: u32,
    watches_output: bool,
    wake: Option<Arc<WakeEvent>>,
    statistics: ChannelStatistics,
}
impl NvmeTcpChannel {
    pub(super) fn new(queue: Queue, setting: Setting, options: &ChannelOptions) -> Result<Self> {
        let (socket, tls) = (OwnedFd::from(queue.stream), queue.tls);
        let failed = |errno: Errno| Error::os(errno.into(), "watching a connection of NVMe/TCP");
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let again = WakeEvent::new()
            .map_err(|cause| Error::os(cause, "creating an event for a connection of NVMe/TCP"))?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        let watch = |fd: BorrowedFd<'_>, number| {
            epoll::add(&set, fd, EventData::new_u64(number), EventFlags::IN).map_err(failed)
        };
        watch(socket.as_fd(), SOCKET)?;
        watch(again.as_fd(), AGAIN)?;
        watch(timer.as_fd(), TIMER)?;
        let depth = options.depth as usize;
        let setting_digests = setting.digests;
        Ok(Self {
            setting,
            link: Link::Up,
            connected_at: Instant::now(),
            again: Arc::new(again),
            timer,
            looks_at: None,
            socket,
            tls,
            set,
            receiver: link::receiver(setting_digests),
            data_bytes_max: queue.data_bytes_max,
            jobs: (0..depth).map(|_| None).collect(),
            commands: 0,
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
        })
    }

    /// Returns the result of a request that needs no server.
    fn answer(&self, request: &Request) -> Option<std::result::Result<(), IoError>> {
        if let Err(error) = self.setting.info.check(request, self.setting.association.size_bytes())
        {
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

    /// Appends the command of a job.
    fn put(&mut self, slot: usize) {
        let Some(job) = &mut self.jobs[slot] else { return };
        self.commands = self.commands.wrapping_add(1);
        job.again_at = None;
        job.cid = slot as u16 | (self.commands << SLOT_BITS) as u16;
        let Request { op, force_unit_access, offset_bytes, len_bytes, .. } = job.request;
        let (facts, digests) = (&self.setting.association.facts, self.setting.digests);
        let (nsid, block) = (facts.nsid, u64::from(facts.block_bytes));
        let first = (offset_bytes + u64::from(job.done)) / block;
        let blocks = (u64::from(len_bytes - job.done) / block) as u32;
        let mut ranges = [0; Range::BYTES];
        let mut in_capsule = 0;
        let capsule = |len_bytes| Sgl { address: 0, len_bytes, kind: sgl::IN_CAPSULE };
        let mut command = match op {
            Op::Flush => without_data(Command::new(io::FLUSH, nsid)),
            Op::Read => with_data(Command::blocks_of(io::READ, nsid, first, blocks), len_bytes),
            Op::Write => {
                let mut command = Command::blocks_of(io::WRITE, nsid, first, blocks);
                command.0[12] |= if force_unit_access { FORCE_UNIT_ACCESS } else { 0 };
                if len_bytes <= facts.capsule_bytes {
                    in_capsule = len_bytes;
                    command.set_sgl(capsule(len_bytes));
                    command
                } else {
                    with_data(command, len_bytes)
                }
            }
            Op::WriteZeroes => {
                let blocks = blocks.min(ZEROES_BLOCKS_MAX);
                without_data(Command::blocks_of(io::WRITE_ZEROES, nsid, first, blocks))
            }
            Op::Discard => {
                ranges = Range { attributes: 0, blocks, first_block: first }.encode();
                in_capsule = Range::BYTES as u32;
                let mut command = Command::new(io::DATASET_MANAGEMENT, nsid);
                command.0[11] = DEALLOCATE;
                command.set_sgl(capsule(in_capsule));
                command
            }
        };
        command.set_cid(job.cid);
        if op == Op::Write {
            // The target may ask for the rest.
            job.asked = in_capsule;
        }
        put::command(&mut self.output, digests, &command, in_capsule);
        if in_capsule == 0 {
            return;
        }
        let at = self.output.len();
        match (op, &job.request.buffer) {
            (Op::Write, Some(buffer)) => {
                self.output.resize(at + in_capsule as usize, 0);
                buffer.copy_to(job.request.buffer_offset_bytes as usize, &mut self.output[at..]);
            }
            _ => self.output.extend(ranges),
        }
        if digests.data {
            let digest = crc32c(&self.output[at..]);
            self.output.extend(digest.to_le_bytes());
        }
    }

    /// Appends the data that the target has asked for.
    fn put_data(&mut self, slot: usize, r2t: &R2t) {
        let Some(job) = &self.jobs[slot] else { return };
        let Some(buffer) = &job.request.buffer else { return };
        let digests = self.setting.digests;
        let (mut offset, end) = (r2t.offset, r2t.offset + r2t.len);
        while offset < end {
            let len = (end - offset).min(self.data_bytes_max);
            let is_last = offset + len == end;
            let (cid, tag) = (r2t.cid, r2t.tag);
            let pdu = DataPdu { cid, tag, offset, len, is_last, is_success: false };
            put::h2c_data(&mut self.output, digests, &pdu);
            let at = self.output.len();
            self.output.resize(at + len as usize, 0);
            let from = job.request.buffer_offset_bytes as usize + offset as usize;
            buffer.copy_to(from, &mut self.output[at..]);
            if digests.data {
                let digest = crc32c(&self.output[at..]);
                self.output.extend(digest.to_le_bytes());
            }
            offset += len;
        }
    }

    /// Sends from the front of the output; `None` if the socket takes nothing now.
    fn send_some(&mut self) -> std::io::Result<Option<usize>> {
        let rest = &self.output[self.sent..];
        if let Some(session) = &mut self.tls {
            let count = session.send(&self.socket, &[IoSlice::new(rest)])?;
            return Ok((count > 0).then_some(count));
        }
        match send(&self.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::INTR) => Ok(Some(0)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether records of TLS wait until the socket takes them.
    fn has_records(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.has_output())
    }

    fn send(&mut self) {
        if self.is_up()
            && let Some(session) = &mut self.tls
            && session.has_output()
            && let Err(error) = session.send(&self.socket, &[])
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
            let _ = epoll::modify(&self.set, &self.socket, EventData::new_u64(SOCKET), flags);
        }
    }

    /// Returns the slot of the job whose command has this identifier.
    fn slot_of(&self, cid: u16) -> Option<usize> {
        let slot = usize::from(cid) % (1 << SLOT_BITS);
        let job = self.jobs.get(slot)?.as_ref()?;
        (job.cid == cid && job.again_at.is_none()).then_some(slot)
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

impl IoChannel for NvmeTcpChannel {
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
        let job = Job {
            request,
            cid: 0,
            since,
            error: None,
            again_at: None,
            filled: 0,
            asked: 0,
            done: 0,
            covers,
        };
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
            // A link that is not up comes back only after a while.
            if self.setting.polls && self.taken > 0 && self.is_up() {
                if self.wake.as_ref().is_some_and(|wake| wake.is_signalled()) {
                    return got;
                }
                continue;
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

impl Drop for NvmeTcpChannel {
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
    }
}
