//! A queue pair with commands built in advance: the throughput of the controller without the rest
//! of the driver (docs/design/floor.md).
//!
//! Invariants:
//! - A slot's command is in `commands` from opening on; only its address changes.
//! - The queue pair's life cycle is that of its channel. The channel holds each slot's request, and
//!   so its buffer, until the controller has finished with it.

use std::sync::Arc;

use qpair_block::{
    Arena, BlockDevice as _, Buffer, ChannelOptions, Error, ErrorKind, Op, Request, Result,
};

use crate::channel::{NvmeChannel, data_opcode};
use crate::device::NvmeDevice;
use crate::rings::Words;
use crate::slots::Stage;
use crate::status::error_of;

pub struct PrebuiltQueue {
    channel: NvmeChannel,
    commands: Box<[Words]>,
    doorbells: u64,
}

impl NvmeDevice {
    /// Opens a queue pair with `depth` commands that each move `len_bytes` to or from a buffer of
    /// their own. Writes write random data.
    ///
    /// # Errors
    /// `Unsupported` if one command cannot move `len_bytes`; `Invalid` if `op` is neither a read
    /// nor a write, or if `len_bytes` is not a multiple of the block; the errors of opening a
    /// channel.
    pub fn open_prebuilt(&self, op: Op, len_bytes: u32, depth: u32) -> Result<PrebuiltQueue> {
        let info = self.info();
        let (name, most) = (&info.name, self.geometry().piece_bytes_max);
        if !matches!(op, Op::Read | Op::Write) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a prebuilt command can only read or write",
            ));
        }
        if len_bytes == 0 || !len_bytes.is_multiple_of(info.logical_block_bytes) {
            let block = info.logical_block_bytes;
            let context =
                format!("{len_bytes} bytes are not a multiple of {name}'s blocks of {block}");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        if len_bytes > most {
            let context =
                format!("a command of {name} moves at most {most} bytes, not {len_bytes}");
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        let mut options = ChannelOptions { depth, ..ChannelOptions::default() };
        info.check_channel(&options)?;
        let buffer_bytes = (len_bytes as usize).next_power_of_two().max(4096);
        let arena = Arena::new(buffer_bytes, depth, info.arena_options())
            .map_err(|cause| Error::os(cause, "mapping memory for prebuilt commands"))?;
        options.arenas.push(arena.clone());
        let (controller, waits) = (self.controller(), self.controller().wait());
        let channel = NvmeChannel::open(controller, self.geometry(), info, waits, &options)?;
        PrebuiltQueue::new(channel, op, len_bytes, &arena)
    }
}

impl PrebuiltQueue {
    fn new(mut channel: NvmeChannel, op: Op, len_bytes: u32, arena: &Arc<Arena>) -> Result<Self> {
        let mut commands = Vec::new();
        let mut random = fastrand::Rng::with_seed(1);
        let mut noise = vec![0; len_bytes as usize];
        while let Some(mut buffer) = arena.lease() {
            if op == Op::Write {
                random.fill(&mut noise);
                buffer.copy_from(0, &noise);
            }
            let block = u64::from(buffer.block().0);
            let in_arena = block * buffer.len() as u64;
            let request = match op {
                Op::Write => Request::write(0, len_bytes, buffer, 0),
                _ => Request::read(0, len_bytes, buffer, 0),
            };
            let iova = channel.iova_of(arena.id()).ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, "the controller cannot reach the buffers")
            })?;
            let (opcode, flags) = data_opcode(&request);
            // Slots are taken from 0 on, so a slot's number is its index here.
            let slot = channel.keep(request)?;
            commands.push(channel.data_words(slot, opcode, flags, 0, len_bytes, iova + in_arena));
        }
        Ok(Self { channel, commands: commands.into(), doorbells: 0 })
    }

    /// Returns the number of slots, which is the maximum number of commands in flight. Slots are
    /// numbered from 0.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.commands.len() as u16
    }

    /// Returns the number of submission doorbells rung so far.
    #[must_use]
    pub fn doorbells(&self) -> u64 {
        self.doorbells
    }

    /// Sends a slot's command, for the data at `offset_bytes` (rounded down to a block). Returns
    /// false if the command is already in flight.
    #[inline]
    pub fn submit(&mut self, slot: u16, offset_bytes: u64) -> bool {
        let channel = &mut self.channel;
        let Some(words) = self.commands.get_mut(usize::from(slot)) else { return false };
        let state = channel.slots.get_mut(slot);
        if state.stage != Stage::Idle {
            return false;
        }
        (state.stage, state.epoch) = (Stage::Active, channel.epoch);
        words.first = offset_bytes >> channel.geometry.block_shift;
        channel.rings.push(*words);
        channel.rings.kick();
        self.doorbells += 1;
        true
    }

    /// Adds the slots whose commands have completed to `done`. Does not wait.
    ///
    /// # Errors
    /// The error of a command that failed; `Gone` or `Io` if the queue pair was deleted because a
    /// command took too long or the controller was reset.
    #[inline]
    pub fn poll(&mut self, done: &mut Vec<u16>) -> Result<()> {
        let channel = &mut self.channel;
        channel.step();
        let before = done.len();
        while let Some(taken) = channel.rings.take() {
            let Some(slot) = channel.slots.active(taken.cid) else { continue };
            slot.stage = Stage::Idle;
            if !taken.status.is_success() {
                let cause = error_of(taken.status);
                let context = format!("a prebuilt command failed ({:?})", taken.status);
                return Err(Error::new(cause.kind, context).caused_by(cause));
            }
            done.push(taken.cid);
        }
        let found = done.len() > before;
        if found {
            channel.line.has_progress = true;
            channel.rings.release();
        }
        channel.look_after(found);
        if channel.is_open { Ok(()) } else { Err(self.lost()) }
    }

    #[cold]
    fn lost(&self) -> Error {
        Error::new(ErrorKind::Io, "the queue pair of prebuilt commands was deleted")
            .hint("a command took too long, or the controller was reset or is gone")
    }

    /// Returns the buffer of a slot, unless its command is in flight.
    #[must_use]
    pub fn buffer(&mut self, slot: u16) -> Option<&mut Buffer> {
        if slot >= self.depth() {
            return None;
        }
        let state = self.channel.slots.get_mut(slot);
        let is_idle = state.stage == Stage::Idle;
        state.request.as_mut().filter(|_| is_idle)?.buffer.as_mut()
    }
}

impl NvmeChannel {
    /// Keeps a request in a slot for as long as the channel lives.
    fn keep(&mut self, request: Request) -> Result<u16> {
        let full =
            |_| Error::new(ErrorKind::Limit, "the channel has no slot left for a prebuilt command");
        let slot = self.slots.begin(request).map_err(full)?;
        self.slots.get_mut(slot).is_whole = true;
        self.taken += 1;
        Ok(slot)
    }
}

impl std::fmt::Debug for PrebuiltQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrebuiltQueue of {} commands", self.commands.len())
    }
}
