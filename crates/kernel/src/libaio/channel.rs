//! The channel: turns requests into control blocks, and completions back into requests.
//!
//! Invariants:
//! - A control block describes its slot's request from `push` until `io_submit` took it; the kernel
//!   copies it then.
//! - `pending` lists the slots whose blocks the kernel has not taken, in order.
//! - `armed` is true from the push of the poll on the wake event until its completion was taken.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, Error, ErrorKind, IoChannel, IoError, Op,
    Request, Result, WaitOptions, WakeEvent,
};
use rustix::event::{EventfdFlags, eventfd};

use super::context::{Context, ControlBlock, Event};
use crate::file::File;
use crate::in_flight::{InFlight, Step, Transfer};
use crate::mode::Mode;
use crate::pace::Pace;
use crate::request::verify;
use crate::vectors::Vectors;

/// `IOCB_CMD_*`, linux/aio_abi.h.
const CMD_PREAD: u16 = 0;
const CMD_PWRITE: u16 = 1;
const CMD_FDSYNC: u16 = 3;
const CMD_POLL: u16 = 5;
const CMD_PREADV: u16 = 7;
const CMD_PWRITEV: u16 = 8;
/// `IOCB_FLAG_RESFD`: the completion also signals an eventfd.
const FLAG_RESFD: u32 = 1;

/// The time to sleep before submitting the blocks again for which the kernel had no room.
const RETRY: Duration = Duration::from_millis(1);

pub(super) struct Channel {
    // The order matters: dropping the context waits for the kernel, so it is dropped before the
    // slots that own memory.
    context: Context,
    in_flight: InFlight,
    /// One control block for each slot, and one for the poll on the wake event.
    blocks: Box<[ControlBlock]>,
    pending: Vec<u32>,
    pointers: Vec<*mut ControlBlock>,
    events: Box<[Event]>,
    vectors: Option<Vectors>,
    file: Arc<File>,
    wake: Option<Arc<WakeEvent>>,
    armed: bool,
    /// An event that every completion signals, once a caller has asked for it.
    watched: Option<OwnedFd>,
}

impl Channel {
    pub(super) fn open(file: Arc<File>, mode: &Mode, options: &ChannelOptions) -> Result<Self> {
        let count = options.depth as usize + 1;
        let mut context = Context::new(options.depth + 1)?;
        if !mode.mapped_ring {
            context.ignore_ring();
        }
        let mut channel = Self {
            context,
            vectors: Vectors::new(mode, &file.limits, options.depth),
            in_flight: InFlight::new(options.depth).with_lists(&options.arenas),
            blocks: vec![ControlBlock::default(); count].into_boxed_slice(),
            pending: Vec::with_capacity(count),
            pointers: Vec::with_capacity(count),
            events: vec![Event::default(); count].into_boxed_slice(),
            file,
            wake: options.wake.clone(),
            armed: false,
            watched: None,
        };
        channel.arm();
        channel.ring();
        if channel.wake.is_some() && !channel.armed {
            let what = "this kernel's libaio cannot wait for an event";
            return Err(Error::new(ErrorKind::Unsupported, what)
                .hint("Linux 4.18 or later can (IOCB_CMD_POLL); use posix"));
        }
        Ok(channel)
    }

    pub(super) fn mode(&self) -> String {
        let vectors = if self.vectors.is_some() { ", vectors" } else { "" };
        format!("io_submit, completions {}{vectors}", self.context.reaping())
    }

    #[inline]
    fn wake_slot(&self) -> u32 {
        (self.blocks.len() - 1) as u32
    }

    /// Fills a slot's control block with (the rest of) a transfer, for the next `io_submit`.
    #[inline]
    fn push(&mut self, slot: u32, transfer: Transfer) {
        let Some(block) = self.blocks.get_mut(slot as usize) else { return };
        block.data = slot.into();
        block.fd = self.file.raw_fd() as u32;
        block.opcode = match transfer.op {
            Op::Read => CMD_PREAD,
            Op::Write => CMD_PWRITE,
            Op::Flush | Op::Discard | Op::WriteZeroes => CMD_FDSYNC,
        };
        block.rw_flags = transfer.write_flags();
        // A flush with an address, length or offset is refused.
        let moves = matches!(transfer.op, Op::Read | Op::Write);
        block.buffer = if moves { transfer.address.expose_provenance() as u64 } else { 0 };
        block.len = if moves { transfer.len_bytes.into() } else { 0 };
        block.offset = if moves { transfer.offset_bytes as i64 } else { 0 };
        if moves && transfer.pieces > 0 {
            block.opcode = if transfer.op == Op::Read { CMD_PREADV } else { CMD_PWRITEV };
            block.len = transfer.pieces.into();
        } else if let (Some(vectors), true) = (&mut self.vectors, moves) {
            let pieces = vectors.fill(slot, &transfer);
            block.opcode = if transfer.op == Op::Read { CMD_PREADV } else { CMD_PWRITEV };
            block.buffer = pieces.as_ptr().expose_provenance() as u64;
            block.len = pieces.len() as u64;
        }
        (block.flags, block.event_fd) = match &self.watched {
            Some(fd) => (FLAG_RESFD, fd.as_raw_fd() as u32),
            None => (0, 0),
        };
        self.pending.push(slot);
    }

    /// Makes the wake event complete a control block.
    fn arm(&mut self) {
        let Some(wake) = self.wake.as_ref().filter(|_| !self.armed) else { return };
        let slot = self.wake_slot();
        let Some(block) = self.blocks.get_mut(slot as usize) else { return };
        block.data = slot.into();
        block.fd = wake.as_fd().as_raw_fd() as u32;
        block.opcode = CMD_POLL;
        block.buffer = libc::POLLIN as u64;
        self.pending.push(slot);
        self.armed = true;
    }

    /// Submits the pending blocks to the kernel. Those that it has no room for stay pending.
    fn ring(&mut self) {
        while !self.pending.is_empty() {
            let base = self.blocks.as_mut_ptr();
            self.pointers.clear();
            // In bounds: `pending` has numbers for which `push` and `arm` found blocks.
            self.pointers.extend(self.pending.iter().map(|&slot| base.wrapping_add(slot as usize)));
            self.in_flight.statistics.system_calls += 1;
            // SAFETY: the pointers are to distinct elements of `blocks`, which no other code
            // accesses during the call. Each block names memory of its slot's buffer, which the
            // slot owns until it is finished.
            match unsafe { self.context.submit(&mut self.pointers) } {
                Ok(0) => return,
                Ok(taken) => drop(self.pending.drain(..taken)),
                Err(cause) => match cause.raw_os_error().unwrap_or(libc::EIO) {
                    libc::EAGAIN | libc::EINTR => return,
                    // The first block is at fault; the others are submitted next.
                    errno => {
                        let slot = self.pending.remove(0);
                        if slot == self.wake_slot() {
                            self.armed = false;
                        } else if let Step::Done(completion) =
                            self.in_flight.finish(slot, -i64::from(errno))
                        {
                            self.in_flight.keep(completion);
                        }
                    }
                },
            }
        }
    }

    /// Takes the available completions. Returns whether the wake event was signalled.
    #[inline]
    fn reap(&mut self, completions: &mut Vec<Completion>) -> bool {
        let (count, called) = self.context.take(&mut self.events);
        self.in_flight.statistics.system_calls += u64::from(called);
        self.settle(count, completions)
    }

    #[inline]
    fn settle(&mut self, count: usize, completions: &mut Vec<Completion>) -> bool {
        let mut woken = false;
        for at in 0..count {
            let Event { data, result, .. } = self.events[at];
            let slot = data as u32;
            if slot == self.wake_slot() {
                self.armed = false;
                woken = true;
                continue;
            }
            match self.in_flight.finish(slot, result) {
                Step::Done(completion) => completions.push(completion),
                Step::Again(rest) => self.push(slot, rest),
                Step::Stray => {}
            }
        }
        self.in_flight.take_refused(completions);
        woken
    }
}

impl IoChannel for Channel {
    #[inline]
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.in_flight.is_full() {
            return Err(request);
        }
        let checked = verify(&request, &self.file.limits, self.file.size_bytes());
        let checked = match request.op {
            // Linux asynchronous I/O has no command for these operations.
            Op::Discard | Op::WriteZeroes => checked.and(Err(IoError::UNSUPPORTED)),
            Op::Read | Op::Write | Op::Flush => checked,
        };
        match checked {
            Ok(()) => {
                let (slot, transfer) = self.in_flight.insert(request)?;
                self.push(slot, transfer);
            }
            Err(error) => {
                self.in_flight.refuse(request, error);
                if let Some(fd) = &self.watched {
                    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn kick(&mut self) {
        self.ring();
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        if let Some(fd) = &self.watched {
            // Cleared before the check: a later completion signals again.
            let _ = rustix::io::read(fd, &mut [0; 8]);
            self.in_flight.statistics.system_calls += 1;
        }
        self.look(completions)
    }

    #[inline]
    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.reap(completions);
        if completions.len() == before && self.in_flight.occupied() > 0 && !self.pending.is_empty()
        {
            self.ring();
        }
        completions.len() - before
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let before = completions.len();
        let mapped = self.context.is_mapped();
        if mapped {
            // A signal from before this wait was for an earlier wait. If it is still set, the poll
            // fires at once.
            self.reap(completions);
        }
        let mut pace = Pace::new(options, self.wake.is_some());
        loop {
            let got = (completions.len() - before) as u32;
            let Some(sleep) = pace.next(got, self.in_flight.occupied()) else { break };
            self.arm();
            self.ring();
            let mut woken = false;
            if mapped {
                // Requests that fast devices complete within `io_submit` need no other call.
                woken = self.reap(completions);
            } else {
                self.in_flight.take_refused(completions);
            }
            if !woken && completions.len() - before > got as usize {
                continue;
            }
            let mut outcome = Ok(0);
            if !woken {
                let mut timeout = sleep.timeout;
                for limit in [
                    (!sleep.linger.is_zero()).then_some(sleep.linger),
                    (!self.pending.is_empty()).then_some(RETRY),
                ] {
                    timeout = timeout.into_iter().chain(limit).min();
                }
                self.in_flight.statistics.system_calls += 1;
                outcome = self.context.wait(sleep.want, &mut self.events, timeout);
                if let Ok(count) = &outcome {
                    woken = self.settle(*count, completions);
                }
                if mapped {
                    woken |= self.reap(completions);
                }
            }
            if woken {
                if let Some(wake) = &self.wake {
                    wake.clear();
                    self.in_flight.statistics.system_calls += 1;
                }
                break;
            }
            match outcome.map_err(|cause| cause.raw_os_error()) {
                Ok(_) | Err(Some(libc::EINTR | libc::EAGAIN)) => {}
                // The context itself is broken: return rather than spin.
                Err(_) => break,
            }
        }
        self.ring();
        if !mapped && completions.len() == before && self.in_flight.occupied() > 0 {
            // There was no time left to sleep, so no call was made yet.
            self.reap(completions);
        }
        self.in_flight.take_refused(completions);
        completions.len() - before
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.in_flight.count()
    }

    fn statistics(&self) -> ChannelStatistics {
        self.in_flight.statistics
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        if self.watched.is_none() {
            let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
                .map_err(|cause| Error::os(cause.into(), "creating an event for completions"))?;
            self.watched = Some(fd);
        }
        Ok(self.watched.as_ref().map(AsFd::as_fd))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let mut discarded = Vec::with_capacity(self.in_flight.occupied() as usize);
        while self.in_flight.occupied() > 0 {
            self.ring();
            let timeout = (!self.pending.is_empty()).then_some(RETRY);
            match self.context.wait(1, &mut self.events, timeout) {
                Ok(count) => drop(self.settle(count, &mut discarded)),
                Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.in_flight.leak();
                    return;
                }
            }
            discarded.clear();
        }
    }
}
