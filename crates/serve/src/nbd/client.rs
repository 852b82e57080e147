//! A client: its socket, and its commands under way.
//!
//! Invariants:
//! - a command is in `commands` from its request until its reply is in `output`;
//! - while a command is `stalled`, no more requests are taken;
//! - while a long simple reply is being sent (`streaming`), other replies wait in `held`;
//! - a client that has asked for TLS gets its session when the last byte in the open is sent, and
//!   until then nothing is read.

use std::os::fd::OwnedFd;
use std::time::Instant;

use qpair_block::{Buffer, IoError, Op};
use qpair_nbd::server::{Negotiation, Settled};
use qpair_nbd::wire::reply::{put_data, put_end, put_simple};
use qpair_nbd::wire::{Errno, Request, Style};

use crate::stream::{Output, Peer, Slots};

/// The most commands of a client under way.
const COMMANDS_MAX: usize = 256;
/// No more requests are taken while so many bytes of replies wait, or so many without the data of
/// reads.
const OUTPUT_BYTES_MAX: usize = 2 << 20;
const HEADS_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(crate) enum Phase {
    Negotiation(Box<Negotiation>),
    Transmission(Settled),
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) request: Request,
    /// The bytes whose parts have begun.
    pub(crate) begun: u64,
    /// The parts at the device, and the part whose data is arriving.
    pub(crate) parts: u32,
    pub(crate) error: Option<Errno>,
}

/// A part of a write whose data is arriving.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) command: usize,
    pub(crate) head: u16,
    pub(crate) block: Buffer,
    pub(crate) len: u32,
    pub(crate) filled: u32,
    pub(crate) since: Instant,
}

#[derive(Debug)]
pub(crate) struct Client {
    /// A client that has said goodbye leaves after its last reply.
    pub(crate) peer: Peer,
    pub(crate) phase: Phase,
    held: Output,
    streaming: Option<usize>,
    pub(crate) commands: Slots<Command>,
    /// The command whose parts have not all begun.
    pub(crate) stalled: Option<usize>,
    pub(crate) receiving: Option<Receiving>,
    /// The bytes of payload to skip.
    pub(crate) skip: u64,
    /// The parts of all commands at the device.
    pub(crate) parts: u32,
}

impl AsMut<Peer> for Client {
    fn as_mut(&mut self) -> &mut Peer {
        &mut self.peer
    }
}

impl Client {
    pub(crate) fn new(stream: OwnedFd, requires_tls: bool) -> Self {
        let mut greeting = Vec::new();
        let negotiation = match requires_tls {
            true => Negotiation::begin_with_tls(&mut greeting),
            false => Negotiation::begin(&mut greeting),
        };
        let mut peer = Peer::new(stream, None);
        peer.output.push(&greeting, None);
        Self {
            peer,
            phase: Phase::Negotiation(Box::new(negotiation)),
            held: Output::default(),
            streaming: None,
            commands: Slots::default(),
            stalled: None,
            receiving: None,
            skip: 0,
            parts: 0,
        }
    }

    pub(crate) fn settled(&self) -> Option<Settled> {
        match self.phase {
            Phase::Transmission(settled) => Some(settled),
            Phase::Negotiation(_) => None,
        }
    }

    pub(crate) fn style(&self) -> Style {
        self.settled().map_or(Style::Simple, |settled| settled.style)
    }

    /// Whether TLS begins after the last byte of the output.
    pub(crate) fn starts_tls(&self) -> bool {
        matches!(&self.phase, Phase::Negotiation(it) if it.starts_tls())
    }

    /// Whether the client's next request or option can be taken.
    pub(crate) fn may_take(&self) -> bool {
        self.stalled.is_none()
            && !self.peer.is_dead
            && !self.peer.is_leaving
            && !self.starts_tls()
            && self.commands.used() < COMMANDS_MAX
            && self.peer.output.bytes() + self.held.bytes() < OUTPUT_BYTES_MAX
            && self.peer.output.heads_bytes() + self.held.heads_bytes() < HEADS_BYTES_MAX
    }

    /// Whether the client keeps blocks that others may need.
    pub(crate) fn keeps_blocks(&self) -> bool {
        self.receiving.is_some() || self.peer.output.has_data()
    }

    /// Answers a request without data.
    pub(crate) fn answer(&mut self, cookie: u64, result: Result<(), Errno>) {
        let style = self.style();
        self.push(None, |head| put_end(head, style, cookie, result), None);
    }

    /// Appends a reply, behind a long reply that is being sent by another command.
    pub(crate) fn push(
        &mut self,
        command: Option<usize>,
        put: impl FnOnce(&mut Vec<u8>),
        data: Option<(Buffer, u32)>,
    ) {
        let is_held = self.streaming.is_some() && self.streaming != command;
        let output = if is_held { &mut self.held } else { &mut self.peer.output };
        output.put(put, data);
    }

    /// Takes the end of a part. `at` is the part's first byte in the command.
    pub(crate) fn end_part(
        &mut self,
        number: usize,
        (at, len, op): (u64, u32, Op),
        block: Option<Buffer>,
        result: Result<(), IoError>,
    ) {
        self.parts -= 1;
        let style = self.style();
        let Some(command) = self.commands.get_mut(number) else { return };
        command.parts -= 1;
        if let Err(error) = result {
            command.error.get_or_insert(Errno::of(error));
        }
        let (request, is_read) = (command.request, op == Op::Read);
        let is_last = command.parts == 0
            && (command.begun >= request.len || command.error.is_some() && op != Op::Write);
        let error = command.error;
        let is_whole = u64::from(len) == request.len;
        let Request { cookie, offset, .. } = request;
        if let (true, None, Some(block)) = (is_read, error, block) {
            let data = Some((block, len));
            match style {
                Style::Simple if at == 0 => {
                    self.push(Some(number), |head| put_simple(head, cookie, 0), data);
                    self.streaming = (!is_whole).then_some(number);
                }
                Style::Simple => self.push(Some(number), |_| {}, data),
                _ => self.push(
                    Some(number),
                    |head| put_data(head, style, is_whole, cookie, offset + at, len),
                    data,
                ),
            }
            if is_last && (is_whole || style == Style::Simple) {
                return self.close(number);
            }
        }
        if !is_last {
            return;
        }
        if let (Some(_), true) = (error, self.streaming == Some(number)) {
            // The reply has promised data that cannot be read.
            self.peer.is_dead = true;
            return;
        }
        self.answer(cookie, error.map_or(Ok(()), Err));
        self.close(number);
    }

    /// Forgets a command whose reply is complete.
    pub(crate) fn close(&mut self, number: usize) {
        self.commands.take(number);
        if self.stalled == Some(number) {
            self.stalled = None;
        }
        if self.streaming == Some(number) {
            self.streaming = None;
            self.peer.output.append(&mut self.held);
        }
    }
}
