//! A controller of a subsystem, which runs on a worker: its socket, its queues, and a channel to
//! each of its namespaces.
//!
//! Invariant: the client's messages are handled, admin commands are executed, and namespaces and
//! channels change only while no command is under way. While one of these waits, no more commands
//! are taken.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use qpair_block::{Arena, Buffer, Error, ErrorKind, IoError, Mapping, Op, Result, Segment};
use qpair_memory::mappings_cut;
use qpair_nvme_device::{
    Delegated, Names, NamespaceInfo, NvmeController, Operation, Part, Ticket, status_of,
};
use qpair_nvme_wire::Status;
use qpair_pci::{Listened, PciDevice as _};
use qpair_vfio_user::{Ended as Left, Server};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::subsystem::{Namespace, Post, Subsystem};
use crate::queue::{End, Job, Lane};
use crate::target::told_of_client;
use crate::unit::{Stopped, Unit};

/// The maximum number of bytes of a request without data: a multiple of every logical block size.
const RANGE_BYTES_MAX: u64 = 1 << 31;
/// The maximum number of commands under way.
const COMMANDS: u16 = 256;
/// The number of turns between two checks of the socket while there is other work.
const SOCKET_TURNS: u32 = 1024;
/// The number of turns in which the socket is checked every time, after it had a message: registers
/// are accessed one after the other.
const TALK_TURNS: u32 = 256;
/// The same number after the controller has asked the driver to ring.
const RING_TURNS: u32 = 16;
/// The sleep between two looks at doorbells that wake no thread is this part of the time for which
/// the controller has been idle. A command then waits for at most 1/64 of the pause before it, and
/// a long pause costs next to nothing.
const NAP_PART: u32 = 64;
const NAP_MIN: Duration = Duration::from_micros(20);
const NAP_MAX: Duration = Duration::from_millis(8);

/// The parts of a controller.
pub(crate) struct ControllerOptions {
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) device: Arc<NvmeController<Delegated>>,
    pub(crate) server: Server,
    pub(crate) post: Arc<Post>,
    pub(crate) transfer_bytes_max: u32,
}

pub(crate) struct Controller {
    options: ControllerOptions,
    operations: Operations,
    /// The segments of the operation that is being begun.
    segments: Vec<Segment>,
    /// The version of the namespaces that the controller works with.
    version: Option<u64>,
    /// The number of mappings that had been cut at the last look.
    cut: u64,
    /// Whether the socket, or the code that serves it, has something to do.
    has_news: bool,
    turns: u32,
    talk_turns: u32,
    /// The time since when the controller is idle, if its driver may ring doorbells that wake no
    /// thread. Such a controller is turned at intervals.
    idle_at: Option<Instant>,
    /// The descriptors that wake the controller: sockets, channels, and new versions of the
    /// namespaces.
    set: OwnedFd,
}

impl Controller {
    /// Starts the controller on the thread that will run it.
    ///
    /// # Errors
    /// `Limit` if there are no more descriptors.
    pub(crate) fn start(options: ControllerOptions) -> Result<Box<Self>> {
        let limit = |errno: rustix::io::Errno| {
            Error::os(errno.into(), "creating an epoll set for a controller")
        };
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(limit)?;
        epoll::add(&set, options.post.as_fd(), EventData::new_u64(0), EventFlags::IN)
            .map_err(limit)?;
        let operations = Operations::new(options.transfer_bytes_max);
        Ok(Box::new(Self {
            options,
            operations,
            segments: Vec::new(),
            version: None,
            cut: mappings_cut(),
            has_news: true,
            turns: 0,
            talk_turns: 0,
            idle_at: None,
            set,
        }))
    }

    /// Drives the commands under way. Returns whether one has ended.
    fn settle(&mut self) -> bool {
        let mut ended = std::mem::take(&mut self.operations.ended);
        for lane in self.operations.lanes.values_mut() {
            lane.settle(|end| ended.push(end));
        }
        let progress = !ended.is_empty();
        for end in ended.drain(..) {
            if let Some((ticket, status)) = self.operations.end(end) {
                self.options.device.answer(ticket, status);
            }
        }
        self.operations.ended = ended;
        progress
    }

    /// Begins operations, as many as can be under way. Returns whether there was one.
    fn begin(&mut self) -> bool {
        let device = &self.options.device;
        let (mut segments, mut progress) = (std::mem::take(&mut self.segments), false);
        while self.operations.room() > 0
            && let Some(operation) = device.backend().next(&mut segments)
        {
            progress = true;
            let (ticket, op) = (operation.ticket, operation.first.op);
            if let Err(error) = self.operations.begin(operation, &segments) {
                device.answer(ticket, status_of(op, Err(error)));
            }
        }
        self.segments = segments;
        progress
    }

    /// Looks whether the socket has something to do, and whether a client must be disconnected
    /// because its memory was cut short.
    fn look_at_sockets(&mut self) {
        self.turns += 1;
        if self.has_news
            || self.turns < SOCKET_TURNS && self.talk_turns == 0 && self.idle_at.is_none()
        {
            return;
        }
        self.turns = 0;
        self.talk_turns = self.talk_turns.saturating_sub(1);
        let cut = mappings_cut();
        self.has_news = std::mem::replace(&mut self.cut, cut) != cut || self.is_heard();
    }

    fn is_heard(&self) -> bool {
        let sockets: Vec<BorrowedFd<'_>> = self.options.server.sockets().collect();
        let mut fds: Vec<_> = sockets.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If the poll fails, the code that reads the socket reports the error.
        let ready = rustix::event::poll(&mut fds, Some(&at_once)).map_or(true, |ready| ready > 0);
        ready || self.options.server.is_sending()
    }

    /// Handles the client's messages.
    fn hear(&mut self) -> bool {
        let ControllerOptions { server, post, .. } = &mut self.options;
        let progress = server.poll();
        self.has_news = progress;
        if progress {
            self.talk_turns = TALK_TURNS;
        }
        let name = post.path.to_string_lossy();
        let has_client = server.has_client();
        if post.has_client.swap(has_client, Ordering::Relaxed) != has_client {
            let left = server.take_ended();
            let why = left.filter(|left| !matches!(left, Left::Closed | Left::Disconnected));
            let why = why.map(|left| Error::new(ErrorKind::Invalid, left.to_string()));
            told_of_client(&name, has_client, why);
        }
        progress
    }

    /// Adopts the current namespaces of the subsystem.
    fn renew(&mut self, version: u64) {
        let ControllerOptions { subsystem, device, post, .. } = &self.options;
        self.operations.set(subsystem.namespaces());
        device.set_namespaces(
            self.operations.namespaces.iter().map(|(it, blocks)| described(it, *blocks)).collect(),
        );
        self.version = Some(version);
        post.settle(version);
    }

    /// Whether a namespace has changed its size.
    fn is_resized(&self) -> bool {
        self.operations.namespaces.iter().any(|(it, blocks)| blocks_of(it) != *blocks)
    }
}

/// Returns the number of blocks of a namespace now.
pub(crate) fn blocks_of(namespace: &Namespace) -> u64 {
    let device = &namespace.disk.device;
    device.size_bytes() / u64::from(device.info().logical_block_bytes)
}

/// Describes a namespace to drivers.
pub(crate) fn described(namespace: &Namespace, blocks: u64) -> NamespaceInfo {
    let (info, uuid) = (namespace.disk.device.info(), namespace.uuid);
    NamespaceInfo {
        nsid: namespace.nsid,
        blocks,
        logical_block_bytes: info.logical_block_bytes,
        read_only: info.read_only,
        deallocates: info.discards,
        names: Names { uuid, nguid: uuid, ..Names::default() },
    }
}

impl Unit for Controller {
    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.set.as_fd()))
    }

    fn is_busy(&self) -> bool {
        self.operations.busy() > 0
    }

    fn turn(&mut self) -> bool {
        let mut progress = self.settle();
        self.look_at_sockets();
        let may = self.operations.busy() == 0;
        // A driver that rings by message waits for the answer, so take the message before other
        // work.
        if self.has_news && self.options.server.poll_doorbells() {
            progress = true;
            self.has_news = self.options.server.is_holding();
        }
        let version = self.options.subsystem.version();
        // Check sizes as rarely as the socket.
        let is_other = self.version != Some(version) || self.turns == 0 && self.is_resized();
        let has_admin = self.options.device.has_admin_commands();
        let waits = is_other || self.has_news || has_admin;
        if may && is_other {
            self.renew(version);
        }
        if may && self.has_news {
            progress |= self.hear();
        }
        progress |= self.options.device.step_admin(may);
        let device = &self.options.device;
        if may && let Some(regions) = device.backend().new_memory() {
            self.operations.open(regions);
        }
        device.backend().set_room(if waits && !may { 0 } else { self.operations.room() });
        progress |= device.step_io().progress;
        progress | self.begin()
    }

    fn listen(&mut self) -> bool {
        let mut is_signalled = true;
        for lane in self.operations.lanes.values_mut() {
            lane.rest();
            is_signalled &= match lane.completion_fd() {
                Ok(Some(fd)) => watch(&self.set, fd),
                Ok(None) => lane.busy() == 0,
                Err(_) => false,
            };
        }
        for socket in self.options.server.sockets() {
            is_signalled &= watch(&self.set, socket);
        }
        let listened = self.options.device.listen();
        let is_idle =
            is_signalled && !self.has_news && listened != Listened::Busy && !self.is_heard();
        self.idle_at = (is_idle && listened == Listened::Unsignalled).then(Instant::now);
        is_idle
    }

    fn be_quiet(&mut self) {
        self.idle_at = None;
        // The driver may have been asked to ring, and may ring now.
        self.talk_turns = self.talk_turns.max(RING_TURNS);
        self.options.post.hear();
    }

    fn nap(&self) -> Option<Duration> {
        // Without a driver no doorbell is rung.
        let idle = self.idle_at.filter(|_| self.options.post.has_client())?.elapsed();
        Some((idle / NAP_PART).clamp(NAP_MIN, NAP_MAX))
    }

    fn stop(mut self: Box<Self>) -> Stopped {
        while self.operations.busy() > 0 {
            if !self.settle() {
                std::thread::yield_now();
            }
        }
        let ControllerOptions { post, .. } = &self.options;
        if post.has_client.swap(false, Ordering::Relaxed) {
            told_of_client(&post.path.to_string_lossy(), false, None);
        }
        Stopped::default()
    }
}

/// Puts a descriptor into a set, if it is not there.
fn watch(set: &OwnedFd, fd: BorrowedFd<'_>) -> bool {
    match epoll::add(set, fd, EventData::new_u64(0), EventFlags::IN) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => true,
        Err(_) => false,
    }
}

/// An operation under way.
struct Command {
    ticket: Ticket,
    /// The parts that come after the current one, the last one first.
    rest: Vec<Part>,
    force_unit_access: bool,
}

/// The operations under way, and the channels that carry them out.
struct Operations {
    /// The namespaces, each with the number of blocks that the driver was told.
    namespaces: Vec<(Namespace, u64)>,
    /// The lanes, by the numbers of their namespaces.
    lanes: BTreeMap<u32, Lane>,
    arena: Arc<Arena>,
    /// The arena's lists that no operation uses.
    lists: Vec<Buffer>,
    /// The commands, by tag.
    commands: Box<[Option<Command>]>,
    free: Vec<u16>,
    transfer_bytes_max: u32,
    ended: Vec<End>,
}

impl Operations {
    fn new(transfer_bytes_max: u32) -> Self {
        Self {
            namespaces: Vec::new(),
            lanes: BTreeMap::new(),
            arena: Arena::foreign(Vec::new(), 1, 1),
            lists: Vec::new(),
            commands: (0..COMMANDS).map(|_| None).collect(),
            free: (0..COMMANDS).rev().collect(),
            transfer_bytes_max,
            ended: Vec::with_capacity(COMMANDS.into()),
        }
    }

    /// Returns how many more operations can be under way.
    fn room(&self) -> u32 {
        self.free.len() as u32
    }

    fn busy(&self) -> usize {
        usize::from(COMMANDS) - self.free.len()
    }

    /// Changes the namespaces. Channels to disks that are still namespaces stay open.
    fn set(&mut self, namespaces: Vec<Namespace>) {
        self.lanes.retain(|nsid, lane| {
            namespaces.iter().any(|it| it.nsid == *nsid && std::ptr::eq(&*it.disk, lane.disk()))
        });
        self.namespaces = namespaces.into_iter().map(|it| (it.clone(), blocks_of(&it))).collect();
    }

    /// Changes the memory of the driver that operations use.
    fn open(&mut self, regions: Vec<Arc<Mapping>>) {
        const PAGE_BYTES: u32 = 4096;
        self.lanes.clear();
        // The first and the last page may be used in part.
        let segments_max = (self.transfer_bytes_max / PAGE_BYTES + 1) as usize;
        self.arena = Arena::foreign(regions, COMMANDS.into(), segments_max);
        self.lists = std::iter::from_fn(|| self.arena.lease()).collect();
    }

    fn lane(&mut self, nsid: u32) -> std::result::Result<&mut Lane, IoError> {
        let Self { namespaces, lanes, arena, .. } = self;
        match lanes.entry(nsid) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(place) => {
                let found = namespaces.iter().find(|(it, _)| it.nsid == nsid);
                let (namespace, _) = found.ok_or(IoError::GONE)?;
                // The driver may retry: resources that are short now may be available later.
                let mut lane =
                    Lane::open(&namespace.disk, arena, COMMANDS).map_err(|_| IoError::NO_THREAD)?;
                // Ask for the descriptor before the first request. The caller checks for a missing
                // descriptor again before it sleeps.
                let _ = lane.completion_fd();
                Ok(place.insert(lane))
            }
        }
    }

    /// Begins a part of an operation, as much of it as one request carries. Returns the rest.
    fn begin_part(
        &mut self,
        tag: u16,
        part: Part,
        force_unit_access: bool,
        list: Option<Buffer>,
    ) -> std::result::Result<Option<Part>, IoError> {
        let Part { nsid, op, offset_bytes, len_bytes } = part;
        let now_bytes = len_bytes.min(RANGE_BYTES_MAX);
        let lane = match self.lane(nsid) {
            Ok(lane) => lane,
            Err(error) => {
                self.lists.extend(list);
                return Err(error);
            }
        };
        lane.count_taken();
        let durable = force_unit_access;
        lane.begin(tag, Job { op, durable, offset_bytes, len_bytes: now_bytes as u32 }, list);
        let (offset_bytes, len_bytes) = (offset_bytes + now_bytes, len_bytes - now_bytes);
        Ok((len_bytes > 0).then_some(Part { offset_bytes, len_bytes, ..part }))
    }

    /// Handles the end of a part of a command. Returns the command's status if it was the last
    /// part.
    fn end(&mut self, end: End) -> Option<(Ticket, Status)> {
        let End { head: tag, job: Job { op, .. }, list, mut result } = end;
        self.lists.extend(list);
        let command = self.commands.get_mut(usize::from(tag))?.as_mut()?;
        if let (Ok(()), Some(next)) = (result, command.rest.pop()) {
            let force_unit_access = command.force_unit_access;
            match self.begin_part(tag, next, force_unit_access, None) {
                Ok(left) => {
                    self.commands[usize::from(tag)].as_mut()?.rest.extend(left);
                    return None;
                }
                Err(error) => result = Err(error),
            }
        }
        let command = self.commands.get_mut(usize::from(tag))?.take()?;
        self.free.push(tag);
        Some((command.ticket, status_of(op, result)))
    }

    /// Begins an operation with its data in these segments.
    fn begin(
        &mut self,
        operation: Operation,
        segments: &[Segment],
    ) -> std::result::Result<(), IoError> {
        let Operation { ticket, first, then, force_unit_access, .. } = operation;
        let moves = matches!(first.op, Op::Read | Op::Write);
        let list = match moves {
            true => {
                let mut list = self.lists.pop().ok_or(IoError::NO_THREAD)?;
                if list.fill(segments.iter().copied()).is_err() {
                    self.lists.push(list);
                    return Err(IoError::INVALID);
                }
                Some(list)
            }
            false => None,
        };
        let tag = self.free.pop().ok_or(IoError::NO_THREAD)?;
        match self.begin_part(tag, first, force_unit_access, list) {
            Ok(left) => {
                let mut rest = then;
                rest.reverse();
                rest.extend(left);
                self.commands[usize::from(tag)] = Some(Command { ticket, rest, force_unit_access });
                Ok(())
            }
            Err(error) => {
                self.free.push(tag);
                Err(error)
            }
        }
    }
}
