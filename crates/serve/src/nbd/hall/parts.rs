//! Parts of commands: each at most as long as a block of the pool, from the request to the device's
//! answer.

use qpair_block::{Op, Result};
use qpair_nbd::server::{Checked, check};
use qpair_nbd::wire::reply::put_status;
use qpair_nbd::wire::request::flag;
use qpair_nbd::wire::{BASE_ALLOCATION_ID, Kind, Request};

use super::{Hall, LANES};
use crate::nbd::client::{Command, Receiving};
use crate::queue::{End, Job, Lane};
use crate::stream::LARGE_BYTES;

/// The most parts of an export's commands at its device.
const HEADS: u16 = 512;
/// The most parts of one command at its device.
const PARTS_MAX: u32 = 8;
/// The largest part of a request without data: a multiple of every logical block size.
const RANGE_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Copy)]
struct Part {
    client: usize,
    command: usize,
    at: u64,
    len: u32,
}

pub(super) struct ExportLane {
    pub(super) lane: Lane,
    parts: Box<[Option<Part>]>,
    pub(super) free: Vec<u16>,
}

impl Hall {
    pub(super) fn open_lane(&mut self, export: usize) -> Result<()> {
        if self.lanes[export].is_some() {
            return Ok(());
        }
        let disk = &self.shared.exports.0[export].disk;
        let mut lane = Lane::open_with(disk, &self.pool.arenas(), HEADS)?;
        if let Some(completion) = lane.completion_fd()? {
            self.clients.sockets.watch_other(completion, LANES + export as u64)?;
        }
        let parts = (0..HEADS).map(|_| None).collect();
        self.lanes[export] = Some(ExportLane { lane, parts, free: (0..HEADS).rev().collect() });
        Ok(())
    }

    /// Takes the ends of parts from the lanes. Returns whether there was one.
    pub(super) fn settle(&mut self) -> bool {
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
                if let Some(client) = self.clients.all.get_mut(part.client) {
                    client.end_part(part.command, (part.at, part.len, job.op), list, result);
                    self.clients.soil(part.client);
                }
            }
        }
        self.ended = ended;
        progress
    }

    /// Begins a request.
    pub(super) fn begin(&mut self, slot: usize, request: Request) {
        let Some(client) = self.clients.all.get_mut(slot) else { return };
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
                let command =
                    client.commands.add(Command { request, begun: 0, parts: 0, error: None });
                client.stalled = Some(command);
                self.advance(slot);
            }
            Checked::Refuse(errno) => {
                let is_extended = settled.style == qpair_nbd::wire::Style::Extended;
                client.skip = request.payload_bytes(is_extended);
                client.answer(request.cookie, Err(errno));
            }
            Checked::Leave => client.peer.is_leaving = true,
            Checked::Disconnect(why) => self.send_away(slot, why),
        }
    }

    /// Begins the parts of a client's stalled command, as many as can be at the device.
    pub(super) fn advance(&mut self, slot: usize) {
        let Some(client) = self.clients.all.get_mut(slot) else { return };
        let (Some(number), Some(settled)) = (client.stalled, client.settled()) else { return };
        let is_simple = settled.style == qpair_nbd::wire::Style::Simple;
        let Some(it) = &mut self.lanes[settled.export] else { return };
        while !client.peer.is_dead && client.receiving.is_none() {
            let Some(command) = client.commands.get_mut(number) else { return };
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
                return self.clients.wait(slot);
            }
            let (Some(head), at) = (it.free.pop(), command.begun) else { return };
            command.begun += u64::from(part);
            let is_begun = command.begun >= len;
            let block = match (op, block) {
                (Op::Write, Some(block)) => {
                    // Counted already: the other parts may end before its data has come.
                    command.parts += 1;
                    let (command, since) = (number, client.peer.moved_at);
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
    pub(super) fn receive(&mut self, slot: usize, rest: &mut &[u8]) {
        let Some(client) = self.clients.all.get_mut(slot) else { return };
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
        let Some(command) = client.commands.get_mut(number) else { return };
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
}
