//! A connection: its socket, its queue, and the commands under way.
//!
//! Invariants:
//! - a command is in `commands` from its capsule until its response is in `output`;
//! - a command in `pending` waits for a block or for a head of its namespace's lane;
//! - while `stalled`, nothing is taken from the socket: the data of a capsule has no block;
//! - with an `authentication` that has not succeeded, no other command is carried out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use qpair_block::Buffer;
use qpair_nvme_auth::Controller as Authentication;
use qpair_nvme_device::{AdminState, ControllerOptions, Part};
use qpair_nvme_tcp::wire::{DataPdu, Digests, End, Receiver, crc32c, put};
use qpair_nvme_wire::fabrics::{ConnectData, NO_SQ_HEAD};
use qpair_nvme_wire::{Command as Entry, Completion, Status};

use super::controller::Seat;
use crate::stream::{Peer, Slots};

/// The most data of a capsule of an admin queue, and of one before Connect, bytes.
pub(crate) const ADMIN_CAPSULE_BYTES: u32 = 8192;
/// Nothing is taken while so many bytes of output wait, or so many without the data of reads.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
const HEADS_BYTES_MAX: usize = 64 << 10;

/// A queue's work that only admin queues have.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) state: AdminState,
    pub(crate) options: ControllerOptions,
    pub(crate) configuration: u32,
    pub(crate) status: u32,
    /// The time without a message after which the controller ends; zero: none.
    pub(crate) keep_alive: Duration,
    /// The generation of the discovery log that the host knows.
    pub(crate) generation: u64,
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// The connection's parameters are missing.
    New,
    /// Connect is missing.
    Initialized,
    /// Connect waits until an earlier connection has ended.
    Deferred(Entry, Box<ConnectData>),
    Admin(Box<Admin>),
    Io,
}

/// The thing that a pending command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A block, and then data from the host.
    Data,
    /// A head of a lane; for a read, a block too.
    Part,
    /// The command is not pending.
    Away,
}

#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) entry: Entry,
    pub(crate) stage: Stage,
    /// The part that is next or at a device; `None` for ranges that have not come.
    pub(crate) part: Option<Part>,
    /// The parts after it, the last one first.
    pub(crate) rest: Vec<Part>,
    pub(crate) durable: bool,
    pub(crate) block: Option<Buffer>,
    /// The bytes of data, and those that have come.
    pub(crate) len: u32,
    pub(crate) filled: u32,
    /// Whether R2T has asked for the data, into a small block.
    pub(crate) has_small_grant: bool,
    pub(crate) failed: Option<Status>,
}

/// The use of the data of the last PDU.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sink {
    Skip,
    /// The command that the data of a capsule belongs to.
    Capsule(Entry),
    Command(usize),
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    pub(crate) phase: Phase,
    pub(crate) seat: Option<Seat>,
    /// The authentication of a host that must prove who it is.
    pub(crate) authentication: Option<Box<Authentication>>,
    pub(crate) receiver: Receiver,
    pub(crate) sink: Sink,
    pub(crate) capsule: Vec<u8>,
    pub(crate) commands: Slots<Command>,
    pub(crate) pending: VecDeque<usize>,
    pub(crate) stalled: Option<usize>,
    /// The number of parts at devices.
    pub(crate) parts: u32,
    /// The number of entries of the submission queue.
    entries: u32,
    sq_head: u16,
    pub(crate) has_flow_control: bool,
    /// The time by which it ends after its last output, unless the host does so before.
    pub(crate) leaves_by: Option<Instant>,
}

impl AsMut<Peer> for Connection {
    fn as_mut(&mut self) -> &mut Peer {
        &mut self.peer
    }
}

impl Connection {
    pub(crate) fn new(peer: Peer) -> Self {
        Self {
            peer,
            phase: Phase::New,
            seat: None,
            authentication: None,
            receiver: Receiver::new(End::Controller, ADMIN_CAPSULE_BYTES),
            sink: Sink::Skip,
            capsule: Vec::new(),
            commands: Slots::default(),
            pending: VecDeque::new(),
            stalled: None,
            parts: 0,
            entries: 1,
            sq_head: 0,
            has_flow_control: true,
            leaves_by: None,
        }
    }

    /// Whether Connect or the authentication after it has not succeeded.
    pub(crate) fn is_unassociated(&self) -> bool {
        matches!(self.phase, Phase::New | Phase::Initialized | Phase::Deferred(..))
            || self.is_unproved()
    }

    /// Whether the host must still prove who it is.
    pub(crate) fn is_unproved(&self) -> bool {
        self.authentication.as_ref().is_some_and(|it| !it.is_authenticated())
    }

    pub(crate) fn admin(&mut self) -> Option<&mut Admin> {
        match &mut self.phase {
            Phase::Admin(admin) => Some(admin),
            _ => None,
        }
    }

    pub(crate) fn set_queue(&mut self, entries: u32, has_flow_control: bool) {
        (self.entries, self.has_flow_control) = (entries, has_flow_control);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.commands.used() >= self.entries as usize
    }

    /// Whether the next PDU can be taken.
    pub(crate) fn may_take(&self) -> bool {
        !self.peer.is_dead
            && !self.peer.is_leaving
            && self.stalled.is_none()
            && !matches!(self.phase, Phase::Deferred(..))
            && self.peer.output.bytes() < OUTPUT_BYTES_MAX
            && self.peer.output.heads_bytes() < HEADS_BYTES_MAX
    }

    /// Whether the connection keeps blocks while the host is to act.
    pub(crate) fn keeps_blocks(&self) -> bool {
        let receives = |it: &Command| it.stage == Stage::Away && it.filled < it.len;
        self.peer.output.has_data()
            || self.commands.iter().any(|(_, it)| it.block.is_some() && receives(it))
    }

    fn digests(&self) -> Digests {
        self.receiver.digests()
    }

    /// Appends a PDU without data.
    pub(crate) fn push(&mut self, put: impl FnOnce(&mut Vec<u8>, Digests)) {
        let digests = self.digests();
        self.peer.output.put(|head| put(head, digests), None);
    }

    /// Notes that a command has left the submission queue.
    pub(crate) fn take_entry(&mut self) {
        self.sq_head = ((u32::from(self.sq_head) + 1) % self.entries) as u16;
    }

    /// Appends a response.
    pub(crate) fn respond(&mut self, cid: u16, status: Status, result: u64) {
        let sq_head = if self.has_flow_control { self.sq_head } else { NO_SQ_HEAD };
        let sq_id = self.seat.as_ref().map_or(0, |seat| seat.queue);
        let completion =
            Completion { result: result as u32, sq_head, sq_id, cid, phase: false, status };
        let high = (result >> 32) as u32;
        self.push(|head, digests| put::response(head, digests, &completion, high));
    }

    /// Appends data for the host, and the response of its command.
    pub(crate) fn send_data(&mut self, cid: u16, data: Result<(Buffer, u32), &[u8]>) {
        let digests = self.digests();
        let bytes = match &data {
            Ok((block, len)) => block.as_slice().get(..*len as usize).unwrap_or_default(),
            Err(bytes) => bytes,
        };
        let is_success = !self.has_flow_control;
        let pdu =
            DataPdu { cid, tag: 0, offset: 0, len: bytes.len() as u32, is_last: true, is_success };
        let sum = digests.data.then(|| crc32c(bytes).to_le_bytes());
        let (small, block) = match data {
            Ok(block) => (&[][..], Some(block)),
            Err(bytes) => (bytes, None),
        };
        let put = |head: &mut Vec<u8>| {
            put::c2h_data(head, digests, &pdu);
            head.extend(small);
        };
        self.peer.output.put(put, block);
        if let Some(sum) = sum {
            self.peer.output.push(&sum, None);
        }
        if !is_success {
            self.respond(cid, Status::SUCCESS, 0);
        }
    }

    /// Forgets a command, and responds.
    pub(crate) fn finish(&mut self, number: usize, status: Status) {
        if let Some(cid) = self.close(number) {
            self.respond(cid, status, 0);
        }
    }

    /// Forgets a command that has ended. Returns its identifier.
    pub(crate) fn close(&mut self, number: usize) -> Option<u16> {
        Some(self.commands.take(number)?.entry.cid())
    }
}
