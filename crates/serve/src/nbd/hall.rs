//! A hall: the clients of a server that one worker serves, and a channel to each export.
//!
//! Invariants:
//! - a part of a command has a head of its lane from before its data arrives until it has ended;
//! - a client with parts at a device stays in its slot, also after its connection has ended;
//! - a client that waits for a head or a block is in `waiting`, in the order of arrival.
//!
//! Long, because all of it changes the same state: clients, lanes and blocks.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{Error, Op, Result};
use qpair_nbd::server::{Checked, Settled, Step, check};
use qpair_nbd::wire::reply::put_status;
use qpair_nbd::wire::request::{flag, header_bytes};
use qpair_nbd::wire::{BASE_ALLOCATION_ID, Kind, Request};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{RecvFlags, recv};
use tracing::{info, warn};

use super::client::{Client, Interest, Phase, Receiving};
use super::pool::{LARGE_BYTES, Pool};
use super::server::Shared;
use crate::queue::{End, Job, Lane};
use crate::unit::{Stopped, Unit};

/// The most parts of an export's commands at its device.
const HEADS: u16 = 512;
/// The most parts of one command at its device.
const PARTS_MAX: u32 = 8;
/// The largest part of a request without data: a multiple of every logical block size.
const RANGE_BYTES_MAX: u64 = 1 << 30;
/// The bytes that are read from a socket at once.
const STAGING_BYTES: usize = 256 << 10;
/// The time limit of a negotiation.
const NEGOTIATION: Duration = Duration::from_secs(10);
/// The time after which a client that keeps blocks and moves no bytes is disconnected, if others
/// wait for blocks; and the time limit of a part's data.
const STALL: Duration = Duration::from_secs(1);
const PART: Duration = Duration::from_secs(10);
/// The interval of looks at these times.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The events of the hall's own: new clients; and the first of those of lanes.
const POST: u64 = u64::MAX;
const DOOR: u64 = u64::MAX - 1;
const LANES: u64 = 1 << 32;

/// A part of a command at the device.
#[derive(Clone, Copy)]
struct Part {
    client: usize,
    command: usize,
    at: u64,
    len: u32,
}

struct ExportLane {
    lane: Lane,
    parts: Box<[Option<Part>]>,
    free: Vec<u16>,
}

pub(crate) struct Hall {
    shared: Arc<Shared>,
    number: usize,
    set: OwnedFd,
    events: Vec<epoll::Event>,
    pool: Pool,
    lanes: Vec<Option<ExportLane>>,
    clients: Vec<Option<Box<Client>>>,
    free: Vec<usize>,
    staging: Vec<u8>,
    ended: Vec<End>,
    dirty: Vec<usize>,
    waiting: VecDeque<usize>,
    negotiating: usize,
    looked_at: Instant,
}

impl Hall {
    /// Starts the hall on the thread of its worker.
    ///
    /// # Errors
    /// `Limit` if there is no memory or no descriptor.
    pub(crate) fn start(shared: Arc<Shared>, number: usize) -> Result<Box<Self>> {
        let limit = |errno: rustix::io::Errno| {
            Error::os(errno.into(), "creating an epoll set for clients of NBD")
        };
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(limit)?;
        let post = shared.posts[number].wake.as_fd();
        epoll::add(&set, post, EventData::new_u64(POST), EventFlags::IN).map_err(limit)?;
        if number == 0 {
            let data = EventData::new_u64(DOOR);
            epoll::add(&set, shared.door.as_fd(), data, EventFlags::IN).map_err(limit)?;
        }
        let exports = &shared.exports.0;
        let is_shared = exports.iter().any(|it| it.disk.device.info().shared_memory);
        Ok(Box::new(Self {
            pool: Pool::new(is_shared)?,
            lanes: exports.iter().map(|_| None).collect(),
            shared,
            number,
            set,
            events: Vec::with_capacity(64),
            clients: Vec::new(),
            free: Vec::new(),
            staging: vec![0; STAGING_BYTES],
            ended: Vec::new(),
            dirty: Vec::new(),
            waiting: VecDeque::new(),
            negotiating: 0,
            looked_at: Instant::now(),
        }))
    }

    /// Takes the ends of parts from the lanes. Returns whether there was one.
    fn settle(&mut self) -> bool {
        let (mut progress, mut ended) = (false, std::mem::take(&mut self.ended));
        for number in 0..self.lanes.len() {
            let Some(it) = &mut self.lanes[number] else { continue };
            it.lane.settle(|end| ended.push(end));
            progress |= !ended.is_empty();
            for End { head, job, list, result } in ended.drain(..) {
                let it = self.lanes[number].as_mut();
                let Some(part) = it.and_then(|it| {
                    it.free.push(head);
                    it.parts[usize::from(head)].take()
                }) else {
                    continue;
                };
                if let Some(client) = &mut self.clients[part.client] {
                    client.end_part(part.command, (part.at, part.len, job.op), list, result);
                    self.soil(part.client);
                }
            }
        }
        self.ended = ended;
        progress
    }

    /// Notes that a client is to be looked at in this turn.
    fn soil(&mut self, slot: usize) {
        if let Some(client) = &mut self.clients[slot]
            && !std::mem::replace(&mut client.is_dirty, true)
        {
            self.dirty.push(slot);
        }
    }

    /// Handles what the sockets announce. Returns whether there was anything.
    fn listen_to_sockets(&mut self) -> bool {
        self.events.clear();
        let capacity = rustix::buffer::spare_capacity(&mut self.events);
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // If the wait fails, the next turn tries again.
        let count = epoll::wait(&self.set, capacity, Some(&now)).unwrap_or(0);
        let events = std::mem::take(&mut self.events);
        let mut progress = false;
        for event in &events {
            let flags = event.flags;
            match event.data.u64() {
                DOOR => self.open_door(),
                POST => self.take_post(),
                data if data >= LANES => continue,
                data => {
                    let slot = data as usize;
                    if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                        self.read(slot);
                    }
                    self.soil(slot);
                }
            }
            progress = true;
        }
        self.events = events;
        progress && count > 0
    }

    /// Gives new clients to the halls with the fewest.
    fn open_door(&mut self) {
        for _ in 0..16 {
            let Some(stream) = self.shared.door.accept() else { return };
            self.shared.admit(stream);
        }
    }

    fn take_post(&mut self) {
        let shared = self.shared.clone();
        let post = &shared.posts[self.number];
        post.wake.clear();
        loop {
            let Some(stream) = post.streams.lock().pop_front() else { return };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.clients.push(None);
                self.clients.len() - 1
            });
            let data = EventData::new_u64(slot as u64);
            if epoll::add(&self.set, &stream, data, EventFlags::empty()).is_err() {
                self.free.push(slot);
                shared.leave(self.number);
                continue;
            }
            self.clients[slot] = Some(Box::new(Client::new(stream)));
            self.negotiating += 1;
            self.soil(slot);
        }
    }

    /// Reads from a client, and takes its requests.
    fn read(&mut self, slot: usize) {
        let mut staging = std::mem::take(&mut self.staging);
        if let Some(client) = self.clients[slot].as_mut().filter(|client| !client.is_dead) {
            let received = recv(&client.stream, &mut staging[..], RecvFlags::DONTWAIT);
            match received {
                Ok((_, 0)) => client.is_dead = true,
                Ok((_, count)) => {
                    client.moved_at = Instant::now();
                    if client.input.is_empty() {
                        let taken = self.take(slot, &staging[..count]);
                        if let Some(client) = &mut self.clients[slot] {
                            client.input.extend(&staging[taken..count]);
                        }
                    } else {
                        client.input.extend(&staging[..count]);
                        self.take_input(slot);
                    }
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => client.is_dead = true,
            }
        }
        self.staging = staging;
    }

    /// Takes requests from the bytes that were read before.
    fn take_input(&mut self, slot: usize) {
        let Some(client) = &mut self.clients[slot] else { return };
        let mut input = std::mem::take(&mut client.input);
        let taken = self.take(slot, &input);
        if let Some(client) = &mut self.clients[slot] {
            input.drain(..taken);
            // A client that sent much once does not keep the memory.
            if input.is_empty() && input.capacity() > 4096 {
                input = Vec::new();
            }
            client.input = input;
        }
    }

    /// Takes what can be taken of `bytes`, and returns how many that are.
    fn take(&mut self, slot: usize, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        loop {
            let Some(client) = &mut self.clients[slot] else { break };
            if client.is_dead || rest.is_empty() {
                break;
            }
            if let Phase::Negotiation(negotiation) = &mut client.phase {
                if client.output.bytes > 1 << 20 {
                    break;
                }
                let mut output = Vec::new();
                let step = negotiation.take(&mut rest, &self.shared.exports, &mut output);
                client.output.push(&output, None);
                match step {
                    Ok(Step::Continues) => break,
                    Ok(Step::Ended) => client.is_leaving = true,
                    Ok(Step::Settled(settled)) => self.begin_transmission(slot, settled),
                    Err(fault) => self.send_away(slot, fault.0),
                }
                continue;
            }
            if client.skip > 0 {
                let count = rest.len().min(usize::try_from(client.skip).unwrap_or(usize::MAX));
                client.skip -= count as u64;
                rest = &rest[count..];
            } else if client.receiving.is_some() {
                self.receive(slot, &mut rest);
            } else if !client.may_take() {
                break;
            } else {
                let is_extended = client.style() == qpair_nbd::wire::Style::Extended;
                let len = header_bytes(is_extended);
                if rest.len() < len {
                    break;
                }
                match Request::decode(rest, is_extended) {
                    Some(request) => self.begin(slot, request),
                    None => self.send_away(slot, "the client sent no request of NBD"),
                }
                rest = &rest[len..];
            }
        }
        bytes.len() - rest.len()
    }

    fn begin_transmission(&mut self, slot: usize, settled: Settled) {
        self.negotiating -= 1;
        let shared = self.shared.clone();
        let disk = &shared.exports.0[settled.export].disk.name;
        if let Err(error) = self.open_lane(settled.export) {
            warn!(name: "refused", disk, %error, "a client of NBD was sent away");
            self.end_client(slot);
        } else {
            info!(name: "connected", disk, "a client of NBD has come");
        }
        if let Some(client) = &mut self.clients[slot] {
            client.phase = Phase::Transmission(settled);
        }
    }

    fn open_lane(&mut self, export: usize) -> Result<()> {
        if self.lanes[export].is_some() {
            return Ok(());
        }
        let disk = &self.shared.exports.0[export].disk;
        let mut lane = Lane::open_with(disk, &self.pool.arenas(), HEADS)?;
        if let Some(completion) = lane.completion_fd()? {
            let data = EventData::new_u64(LANES + export as u64);
            epoll::add(&self.set, completion, data, EventFlags::IN)
                .map_err(|errno| Error::os(errno.into(), "watching a channel"))?;
        }
        let parts = (0..HEADS).map(|_| None).collect();
        self.lanes[export] = Some(ExportLane { lane, parts, free: (0..HEADS).rev().collect() });
        Ok(())
    }

    /// Disconnects a client that breaks the protocol.
    fn send_away(&mut self, slot: usize, why: &str) {
        let address = &self.shared.address;
        warn!(name: "left", %address, error = why, "a client of NBD was sent away");
        self.end_client(slot);
    }

    fn end_client(&mut self, slot: usize) {
        if let Some(client) = &mut self.clients[slot] {
            client.is_dead = true;
        }
        self.soil(slot);
    }

    /// Begins a request.
    fn begin(&mut self, slot: usize, request: Request) {
        let Some(client) = &mut self.clients[slot] else { return };
        let Some(settled) = client.settled() else { return };
        let export = &self.shared.exports.0[settled.export];
        let limits = export.limits(settled.has_status);
        if let Some(it) = &self.lanes[settled.export] {
            it.lane.count_taken();
        }
        match check(&request, settled.style, &limits) {
            Checked::Execute if request.kind == Kind::BlockStatus => {
                let most = if request.flags & flag::REQ_ONE != 0 { 1 } else { 128 };
                let extents = export.extents(request.offset, request.len, most);
                let (style, cookie) = (settled.style, request.cookie);
                let put =
                    |head: &mut _| put_status(head, style, cookie, BASE_ALLOCATION_ID, &extents);
                client.push(None, put, None);
            }
            Checked::Execute => {
                let command = client.add(request);
                client.stalled = Some(command);
                self.advance(slot);
            }
            Checked::Refuse(errno) => {
                let is_extended = settled.style == qpair_nbd::wire::Style::Extended;
                client.skip = request.payload_bytes(is_extended);
                client.answer(request.cookie, Err(errno));
            }
            Checked::Leave => client.is_leaving = true,
            Checked::Disconnect(why) => self.send_away(slot, why),
        }
    }

    /// Begins the parts of a client's stalled command, as many as can be at the device.
    fn advance(&mut self, slot: usize) {
        let Some(client) = &mut self.clients[slot] else { return };
        let (Some(number), Some(settled)) = (client.stalled, client.settled()) else { return };
        let is_simple = settled.style == qpair_nbd::wire::Style::Simple;
        let Some(it) = &mut self.lanes[settled.export] else { return };
        while !client.is_dead && client.receiving.is_none() {
            let Some(command) = client.command(number) else { return };
            let Request { kind, flags, offset, len, .. } = command.request;
            let left = len - command.begun;
            let most = if kind == Kind::Read && is_simple { 1 } else { PARTS_MAX };
            // An error ends a command when its parts have ended; a write takes all of its data.
            if command.parts >= most || command.error.is_some() && kind != Kind::Write {
                return;
            }
            let (op, part) = match kind {
                Kind::Read => (Op::Read, left.min(LARGE_BYTES.into())),
                Kind::Write => (Op::Write, left.min(LARGE_BYTES.into())),
                Kind::Trim => (Op::Discard, left.min(RANGE_BYTES_MAX)),
                Kind::WriteZeroes => (Op::WriteZeroes, left.min(RANGE_BYTES_MAX)),
                _ => (Op::Flush, 0),
            };
            let part = part as u32;
            let needs_block = matches!(op, Op::Read | Op::Write);
            let block = if needs_block { self.pool.lease(part) } else { None };
            if it.free.is_empty() || needs_block && block.is_none() {
                if !std::mem::replace(&mut client.is_waiting, true) {
                    self.waiting.push_back(slot);
                }
                return;
            }
            let (Some(head), at) = (it.free.pop(), command.begun) else { return };
            command.begun += u64::from(part);
            let is_begun = command.begun >= len;
            let block = match (op, block) {
                (Op::Write, Some(block)) => {
                    // Counted already: the other parts may end before its data has come.
                    command.parts += 1;
                    let (command, since) = (number, client.moved_at);
                    client.receiving =
                        Some(Receiving { command, head, block, len: part, filled: 0, since });
                    return;
                }
                (_, block) => block,
            };
            command.parts += 1;
            client.parts += 1;
            if is_begun {
                client.stalled = None;
            }
            let durable = flags & flag::FUA != 0;
            let job = Job { op, durable, offset_bytes: offset + at, len_bytes: part };
            let begun = Part { client: slot, command: number, at, len: part };
            it.parts[usize::from(head)] = Some(begun);
            it.lane.begin(head, job, block);
            if is_begun {
                return;
            }
        }
    }

    /// Takes the data of a write, and begins its part when the data is complete.
    fn receive(&mut self, slot: usize, rest: &mut &[u8]) {
        let Some(client) = &mut self.clients[slot] else { return };
        let (Some(mut receiving), Some(settled)) = (client.receiving.take(), client.settled())
        else {
            return;
        };
        let count = rest.len().min((receiving.len - receiving.filled) as usize);
        receiving.block.copy_from(receiving.filled as usize, &rest[..count]);
        *rest = &rest[count..];
        receiving.filled += count as u32;
        if receiving.filled < receiving.len {
            client.receiving = Some(receiving);
            return;
        }
        let Receiving { command: number, head, block, len, .. } = receiving;
        let Some(command) = client.command(number) else { return };
        let Request { flags, offset, len: all, .. } = command.request;
        let at = command.begun - u64::from(len);
        let is_begun = command.begun >= all;
        client.parts += 1;
        if is_begun {
            client.stalled = None;
        }
        let durable = flags & flag::FUA != 0;
        let job = Job { op: Op::Write, durable, offset_bytes: offset + at, len_bytes: len };
        if let Some(it) = &mut self.lanes[settled.export] {
            let part = Part { client: slot, command: number, at, len };
            it.parts[usize::from(head)] = Some(part);
            it.lane.begin(head, job, Some(block));
        }
        if !is_begun {
            self.advance(slot);
        }
    }

    /// Looks at the clients to which something has happened.
    fn attend(&mut self) {
        while let Some(slot) = self.dirty.pop() {
            let Some(client) = &mut self.clients[slot] else { continue };
            client.is_dirty = false;
            loop {
                self.advance(slot);
                let Some(client) = &mut self.clients[slot] else { break };
                let before = client.input.len();
                if before > 0 {
                    self.take_input(slot);
                }
                let Some(client) = &mut self.clients[slot] else { break };
                let sent = match client.is_dead {
                    true => Ok(0),
                    false => client.output.send(client.stream.as_fd()),
                };
                match sent {
                    Ok(0) if client.input.len() == before => break,
                    Ok(0) => {}
                    Ok(_) => client.moved_at = Instant::now(),
                    Err(_) => client.is_dead = true,
                }
            }
            self.conclude(slot);
        }
        for _ in 0..self.waiting.len() {
            let Some(slot) = self.waiting.pop_front() else { return };
            let Some(client) = &mut self.clients[slot] else { continue };
            client.is_waiting = false;
            self.advance(slot);
            let Some(client) = &mut self.clients[slot] else { continue };
            if client.is_waiting {
                self.waiting.pop_back();
                self.waiting.push_front(slot);
                return;
            }
            self.soil(slot);
        }
    }

    /// Removes a client that has left, or sets for what its socket is watched.
    fn conclude(&mut self, slot: usize) {
        let Some(client) = &mut self.clients[slot] else { return };
        if client.is_leaving && client.busy() == 0 && client.output.is_empty() {
            client.is_dead = true;
        }
        if !client.is_dead {
            let reads = client.skip > 0 || client.receiving.is_some() || client.may_take();
            let wanted =
                Interest { read: reads && !client.is_leaving, write: !client.output.is_empty() };
            if client.interest != wanted {
                client.interest = wanted;
                let mut flags = EventFlags::empty();
                flags.set(EventFlags::IN, wanted.read);
                flags.set(EventFlags::OUT, wanted.write);
                // The socket is in the set, so this cannot fail.
                let data = EventData::new_u64(slot as u64);
                let _ = epoll::modify(&self.set, &client.stream, data, flags);
            }
            return;
        }
        let settled = client.settled();
        if let (Some(receiving), Some(settled)) = (client.receiving.take(), settled)
            && let Some(it) = &mut self.lanes[settled.export]
        {
            it.free.push(receiving.head);
        }
        // A socket whose other end is closed is always ready; it may have been removed before.
        let _ = epoll::delete(&self.set, &client.stream);
        if client.parts > 0 {
            return;
        }
        match settled {
            None => self.negotiating -= 1,
            Some(settled) => {
                let disk = &self.shared.exports.0[settled.export].disk.name;
                info!(name: "left", disk, "a client of NBD has gone");
            }
        }
        if client.is_waiting {
            self.waiting.retain(|waiting| *waiting != slot);
        }
        self.clients[slot] = None;
        self.free.push(slot);
        self.shared.leave(self.number);
    }

    /// Disconnects clients that take too long: for the negotiation; or for data while they keep
    /// blocks that others wait for.
    fn look_at_times(&mut self) {
        if self.nap().is_none() || self.looked_at.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked_at = Instant::now();
        let is_full = self.shared.is_full();
        let limit = if is_full { LOOK_EVERY } else { NEGOTIATION };
        let mut late = Vec::new();
        for (slot, client) in self.clients.iter().enumerate() {
            let Some(client) = client else { continue };
            let keeps = client.keeps_blocks() && !self.waiting.is_empty();
            let part = client.receiving.as_ref().map(|part| part.since.elapsed());
            let is_slow = match client.phase {
                Phase::Negotiation(_) => client.since.elapsed() > limit,
                Phase::Transmission(_) => {
                    keeps && (client.moved_at.elapsed() > STALL || part.is_some_and(|t| t > PART))
                }
            };
            if is_slow && !client.is_dead {
                late.push(slot);
            }
        }
        for slot in late {
            self.send_away(slot, "the client was too slow");
        }
    }
}

impl Unit for Hall {
    fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.set.as_fd()))
    }

    fn count_kick(&self) {}

    fn is_busy(&self) -> bool {
        self.lanes.iter().flatten().any(|it| it.lane.busy() > 0)
    }

    fn turn(&mut self) -> bool {
        let mut progress = self.listen_to_sockets();
        progress |= self.settle();
        progress |= !self.dirty.is_empty();
        self.attend();
        self.look_at_times();
        progress
    }

    fn listen(&mut self) -> bool {
        if self.lanes.iter().flatten().any(|it| it.lane.is_unsignalled()) {
            return false;
        }
        self.lanes.iter_mut().flatten().for_each(|it| it.lane.rest());
        self.dirty.is_empty()
    }

    fn be_quiet(&mut self) {}

    fn sleeps_at_once(&self) -> bool {
        true
    }

    fn nap(&self) -> Option<Duration> {
        (self.negotiating > 0 || !self.waiting.is_empty()).then_some(LOOK_EVERY)
    }

    fn stop(self: Box<Self>) -> Stopped {
        // Dropping a channel waits for its requests.
        Stopped::default()
    }
}
