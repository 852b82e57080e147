//! The protocol of a channel: a message for each request, and replies.
//!
//! Invariants:
//! - the number of a request's slot is its cookie;
//! - data goes to a buffer only inside the range of a read that is in flight.

use qpair_block::{IoError, Op, Request, Result};
use qpair_socket::client::{Event, Jobs, Parsed, Protocol, StreamChannel, Wire};

use super::device::Count;
use super::handshake::Facts;
use super::peer::Peer;
use crate::wire::request::flag;
use crate::wire::{Chunk, Kind, Reply, Request as Message, export_flag};

pub(super) type NbdChannel = StreamChannel<Nbd>;

pub(super) struct Nbd {
    pub(super) peer: Peer,
    pub(super) facts: Facts,
    pub(super) size_bytes: u64,
    pub(super) following: Option<Following>,
    pub(super) _count: Count,
}

/// The data that follows the header of the last reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Following {
    slot: usize,
    /// The offset in the read; `None` for bytes to skip.
    at: Option<u64>,
    left: u64,
    done: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The bytes of a read that have come.
    filled: u64,
    /// Whether the data is written, and a flush of it is in flight.
    is_flushing: bool,
}

impl Nbd {
    /// Appends the message of a job.
    fn put(&self, jobs: &mut Jobs<State>, slot: usize) {
        let Some(job) = &jobs.slots[slot] else { return };
        let Request { op, force_unit_access, offset_bytes, len_bytes, .. } = job.request;
        let kind = match op {
            _ if job.state.is_flushing => Kind::Flush,
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
        Message { flags, kind, cookie, offset, len }.put(&mut jobs.output, false);
        if kind == Kind::Write {
            job.put_data(0, len_bytes, &mut jobs.output);
        }
    }

    /// Ends the job whose reply is complete.
    fn conclude(&self, jobs: &mut Jobs<State>, slot: usize) {
        let Some(job) = &mut jobs.slots[slot] else { return };
        let Request { op, force_unit_access, len_bytes, .. } = job.request;
        let needs_flush = op == Op::Write
            && force_unit_access
            && jobs.setting.info.volatile_write_cache
            && self.facts.flags & export_flag::SEND_FUA == 0;
        if job.error.is_none() && needs_flush && !job.state.is_flushing {
            job.state.is_flushing = true;
            return self.put(jobs, slot);
        }
        let is_short = op == Op::Read && job.state.filled != u64::from(len_bytes);
        let result = match job.error {
            Some(error) => Err(error),
            None if is_short => Err(IoError::IO),
            None => Ok(()),
        };
        jobs.conclude(slot, result);
    }
}

fn fill(jobs: &mut Jobs<State>, slot: usize, at: u64, data: &[u8]) -> Parsed {
    let Some(job) = &mut jobs.slots[slot] else { return Ok(()) };
    job.state.filled += data.len() as u64;
    if job.state.filled > u64::from(job.request.len_bytes) {
        return Err("the server has sent data twice");
    }
    job.fill(at as u32, data);
    Ok(())
}

fn fill_zeroes(jobs: &mut Jobs<State>, slot: usize, mut at: u64, len: u64) -> Parsed {
    const ZEROES: [u8; 4096] = [0; 4096];
    let end = at + len;
    while at < end {
        let part = (end - at).min(ZEROES.len() as u64);
        fill(jobs, slot, at, &ZEROES[..part as usize])?;
        at += part;
    }
    Ok(())
}

impl Protocol for Nbd {
    type State = State;
    type Terms = Facts;

    const NAME: &'static str = "NBD";
    const PEER: &'static str = "server";
    const IS_STRICT: bool = true;

    fn report(device: &str, event: Event<'_>) {
        match event {
            Event::Lost(error) => {
                tracing::warn!(name: "lost", device, error, "a connection of NBD was lost");
            }
            Event::LostWrites => tracing::warn!(
                name: "lost_writes",
                device,
                "the NBD server may have lost writes, so flushes fail until the device is opened again"
            ),
            Event::Gone(error) => {
                tracing::warn!(name: "gone", device, error, "an NBD server was given up");
            }
            Event::Back => {
                tracing::info!(name: "back", device, "a connection of NBD was made again");
            }
        }
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn connector(&self) -> impl FnMut() -> Result<(Wire, Facts)> + Send + 'static {
        let peer = self.peer.clone();
        move || peer.connect()
    }

    fn renew(&mut self, facts: Facts) -> Parsed {
        let had = &self.facts;
        if facts.size_bytes < had.size_bytes
            || facts.block_bytes != had.block_bytes
            || facts.flags & had.flags != had.flags
        {
            return Err("the export has changed");
        }
        self.facts = facts;
        Ok(())
    }

    fn forget(&mut self) {
        self.following = None;
    }

    fn begin(&mut self, jobs: &mut Jobs<State>, slot: usize) {
        if let Some(job) = &mut jobs.slots[slot] {
            // A write that only its flush was missing for may be lost in the server's cache.
            job.state = State::default();
        }
        self.put(jobs, slot);
    }

    fn parse(&mut self, jobs: &mut Jobs<State>, bytes: &[u8]) -> Parsed<usize> {
        let mut rest = bytes;
        loop {
            if let Some(mut following) = self.following.take() {
                let count = rest.len().min(usize::try_from(following.left).unwrap_or(usize::MAX));
                if let Some(at) = &mut following.at {
                    fill(jobs, following.slot, *at, &rest[..count])?;
                    *at += count as u64;
                }
                rest = &rest[count..];
                following.left -= count as u64;
                if following.left > 0 {
                    self.following = Some(following);
                    break;
                }
                if following.done {
                    self.conclude(jobs, following.slot);
                }
                continue;
            }
            let Some((reply, head)) = Reply::decode(rest)? else { break };
            rest = &rest[head..];
            let slot = usize::try_from(reply.cookie).unwrap_or(usize::MAX);
            let job = jobs.slots.get_mut(slot).and_then(Option::as_mut);
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
                        return Err("the server has sent data outside a request");
                    }
                }
                Chunk::Hole { offset, len } if op == Op::Read => {
                    let at = inside(offset, len)
                        .ok_or("the server has sent a hole outside a request")?;
                    fill_zeroes(jobs, slot, at, len)?;
                }
                Chunk::Data { .. } | Chunk::Hole { .. } => {
                    return Err("the server has sent data for a request without");
                }
                Chunk::Other { skip } if skip < 1 << 20 => left = skip,
                Chunk::Other { .. } => return Err("the server has sent a chunk that is too long"),
            }
            self.following = Some(Following { slot, at, left, done: reply.done });
        }
        Ok(bytes.len() - rest.len())
    }

    fn leave(&self, output: &mut Vec<u8>) -> bool {
        let leave = Message { flags: 0, kind: Kind::Disconnect, cookie: 0, offset: 0, len: 0 };
        leave.put(output, false);
        true
    }
}
