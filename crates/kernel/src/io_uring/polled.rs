//! The channel that polls for reads and writes.
//!
//! A ring that polls (IOPOLL) accepts only reads and writes, because there is no queue to poll for
//! a flush. Given a flush anyway, such a ring refuses it or, as some programs have found, forgets
//! it. A channel therefore has two rings. `polled` has the reads and writes. `plain` has flushes,
//! discards, write-zeroes, writes that must be durable (FUA), transfers that the kernel would have
//! to cut, and the poll on the wake event.
//!
//! Invariants:
//! - A slot's entry is in one of the two rings, and `in_polled` and `in_plain` count the slots of
//!   each.
//! - Reads and writes without FUA that the drive executes as one command (`reach`) are in `polled`;
//!   all other requests are in `plain`.
//! - While requests are in `polled` and no submission thread polls for them, a wait polls and does
//!   not sleep.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode};
use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, Error, IoChannel, Op, Request, Result,
    WaitOptions, WakeEvent,
};
use rustix::event::{EventfdFlags, eventfd};

use super::channel::WAKE;
use super::dialect::Dialect;
use super::poll_queues::Reach;
use super::ring::{Enter, Ring};
use super::set_up::SetUp;
use crate::in_flight::{InFlight, Step, Transfer};
use crate::mode::Mode;
use crate::pace::{Pace, Sleep, WAKE_DELAY_MAX};

/// The number of checks of the queues that a submission thread fills, before a sleep.
const SPINS: u32 = 20_000;

pub(super) struct Channel<D: Dialect> {
    // The order matters: the rings name memory, so they are dropped before the slots and arenas
    // that own the memory.
    polled: Ring<D::Submission, D::Completion>,
    plain: Ring<D::Submission, D::Completion>,
    in_flight: InFlight,
    polled_encoder: D,
    plain_encoder: D,
    /// The reads and writes that go to `polled`.
    reach: Reach,
    in_polled: u32,
    in_plain: u32,
    /// Whether a submission thread submits to `polled`, and polls for it.
    thread: bool,
    /// Whether a sleeping submission thread would miss an entry that was pushed.
    unseen: bool,
    target: Arc<D::Target>,
    wake: Option<Arc<WakeEvent>>,
    armed: bool,
    /// An event that is readable while there is something to poll, once a caller has asked for it.
    event: Option<OwnedFd>,
    told: bool,
    /// Ties the channel to its thread, with which the rings are registered.
    one_thread: PhantomData<*const ()>,
}

impl<D: Dialect> Channel<D> {
    pub(super) fn open(
        target: Arc<D::Target>,
        mode: &Mode,
        options: &ChannelOptions,
    ) -> Result<Self> {
        let reach = D::reach(&target)?;
        Self::on(target, mode, reach, options)
    }

    /// Opens a channel that sends the transfers in `reach` to the ring of `mode`, whether that ring
    /// polls or not.
    pub(super) fn on(
        target: Arc<D::Target>,
        mode: &Mode,
        reach: Reach,
        options: &ChannelOptions,
    ) -> Result<Self> {
        // Each ring has an entry for each slot, so it is never full. The plain ring also has the
        // poll on the wake event.
        let polled = Ring::open(options.depth, mode)?;
        let plain_mode = Mode {
            registered_buffers: false,
            registered_file: false,
            registered_ring: mode.registered_ring,
            segments: mode.segments,
            ..Mode::new(mode.interface)
        };
        // Do not use DEFER_TASKRUN, because completions of this ring must appear while the other
        // ring is being entered.
        let plain = Ring::open_with(options.depth + 1, &plain_mode, &SetUp::ALL[2..], true)?;
        Ok(Self {
            polled_encoder: D::new(&polled, &target, mode, options)?,
            plain_encoder: D::new(&plain, &target, &plain_mode, options)?,
            polled,
            plain,
            in_flight: InFlight::new(options.depth).with_lists(match D::TAKES_VECTORS {
                true => &options.arenas,
                false => &[],
            }),
            reach,
            in_polled: 0,
            in_plain: 0,
            thread: mode.submission_thread.is_some(),
            unseen: false,
            target,
            wake: options.wake.clone(),
            armed: false,
            event: None,
            told: false,
            one_thread: PhantomData,
        })
    }

    pub(super) fn mode(&self) -> String {
        let (ring, encoder) = (self.polled.mode(), self.polled_encoder.words());
        format!("{ring}, {encoder}, second ring for flushes")
    }

    /// Pushes the entry for (the rest of) a transfer. Returns whether its ring took it.
    #[inline]
    fn push(&mut self, slot: u32, transfer: Transfer) -> bool {
        let polls = matches!(transfer.op, Op::Read | Op::Write)
            && !transfer.force_unit_access
            && self.reach.holds(&transfer);
        let slot = u64::from(slot);
        let (ring, entry) = if polls {
            self.unseen = true;
            self.polled_encoder.prepare(&self.polled, &transfer);
            (&mut self.polled, self.polled_encoder.encode(transfer, slot))
        } else {
            (&mut self.plain, self.plain_encoder.encode(transfer, slot))
        };
        // SAFETY: `transfer` names memory of the request's buffer, which the slot owns until it is
        // finished.
        let pushed = unsafe { ring.push(&entry) }.is_ok();
        if pushed {
            let count = if polls { &mut self.in_polled } else { &mut self.in_plain };
            *count += 1;
        }
        pushed
    }

    /// Takes the completions of both queues. Returns whether the wake event was signalled.
    fn reap(&mut self, completions: &mut Vec<Completion>) -> bool {
        let mut woken = false;
        loop {
            let next = self.polled.queues().completion().next();
            let Some(entry) = next else { break };
            let entry: cqueue::Entry = entry.into();
            self.in_polled -= 1;
            self.settle(
                entry.user_data() as u32,
                self.polled_encoder.result(entry.result()),
                completions,
            );
        }
        loop {
            let next = self.plain.queues().completion().next();
            let Some(entry) = next else { break };
            let entry: cqueue::Entry = entry.into();
            if entry.user_data() == WAKE {
                self.armed = false;
                woken = true;
            } else {
                self.in_plain -= 1;
                self.settle(
                    entry.user_data() as u32,
                    self.plain_encoder.result(entry.result()),
                    completions,
                );
            }
        }
        self.in_flight.take_refused(completions);
        woken
    }

    #[inline]
    fn settle(&mut self, slot: u32, result: i64, completions: &mut Vec<Completion>) {
        match self.in_flight.finish(slot, result) {
            Step::Done(completion) => completions.push(completion),
            Step::Again(rest) => {
                // There is room: each ring has an entry for each slot, and this slot's entry is
                // done.
                let _ = self.push(slot, rest);
            }
            Step::Stray => {}
        }
    }

    /// Makes one system call on the polled ring, which submits, and polls once or until there are
    /// `want` completions.
    #[inline]
    fn enter_polled(&mut self, want: u32) -> std::io::Result<()> {
        self.in_flight.statistics.system_calls += 1;
        self.polled.enter(Enter { want, collect: true, ..Enter::default() })
    }

    #[inline]
    fn enter_plain(&mut self, enter: Enter) -> std::io::Result<()> {
        self.in_flight.statistics.system_calls += 1;
        self.plain.enter(enter)
    }

    #[inline]
    fn ring_plain(&mut self) {
        let collect = self.plain.has_hidden_work();
        if collect || self.plain.unsubmitted() > 0 {
            let _ = self.enter_plain(Enter { collect, ..Enter::default() });
        }
    }

    #[inline]
    fn ring_polled(&mut self) {
        if self.thread {
            if std::mem::take(&mut self.unseen) && self.polled.thread_sleeps() {
                self.in_flight.statistics.system_calls += 1;
                let _ = self.polled.enter(Enter { wake: true, ..Enter::default() });
            }
        } else if self.polled.unsubmitted() > 0 {
            // Entries that the kernel could not take stay in the queue for the next call.
            self.in_flight.statistics.system_calls += 1;
            let _ = self.polled.enter(Enter::default());
        }
    }

    fn collect(&mut self, completions: &mut Vec<Completion>) -> bool {
        self.ring_plain();
        if self.thread {
            self.ring_polled();
        } else if self.in_polled > 0 {
            let _ = self.enter_polled(0);
        }
        self.reap(completions)
    }

    /// Makes the wake event complete an entry of the plain ring.
    fn arm(&mut self) {
        let Some(wake) = self.wake.as_ref().filter(|_| !self.armed) else { return };
        let fd = Fd(wake.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build().user_data(WAKE).into();
        // SAFETY: the entry names no memory.
        self.armed = unsafe { self.plain.push(&entry) }.is_ok();
    }

    /// Waits until there may be completions: polls while there is something to poll, and sleeps
    /// otherwise.
    fn rest(&mut self, sleep: Sleep, bounded: bool) -> std::io::Result<()> {
        self.ring_plain();
        if self.in_polled == 0 {
            let timeout = sleep.timeout.into_iter();
            let timeout = timeout.chain((!sleep.linger.is_zero()).then_some(sleep.linger)).min();
            let want = sleep.want;
            return self.enter_plain(Enter { want, collect: true, timeout, ..Enter::default() });
        }
        if !self.thread {
            // The kernel polls until there are `want` completions, without a time-out. If another
            // event may end the wait, request one completion: the drive's answer then bounds how
            // late that event is noticed.
            let want =
                if bounded || self.in_plain > 0 { 1 } else { sleep.want.min(self.in_polled) };
            return self.enter_polled(want);
        }
        self.ring_polled();
        let start = Instant::now();
        for spin in 0..SPINS {
            if self.polled.has_completions() || self.plain.has_completions() {
                return Ok(());
            }
            let over = |limit: Duration| start.elapsed() >= limit;
            if spin % 128 == 127 && sleep.timeout.is_some_and(over) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        // A thread cannot sleep on two rings at once: a short sleep on one bounds how late the
        // other is noticed.
        self.in_flight.statistics.system_calls += 1;
        let timeout = sleep.timeout.unwrap_or(WAKE_DELAY_MAX).min(WAKE_DELAY_MAX);
        let timeout = Some(timeout);
        self.polled.enter(Enter { want: 1, collect: true, timeout, ..Enter::default() })
    }

    /// Makes the descriptor readable exactly while there is something to poll.
    fn tell(&mut self) {
        let Some(event) = &self.event else { return };
        let busy = self.in_flight.count() > 0;
        if busy == self.told {
            return;
        }
        self.in_flight.statistics.system_calls += 1;
        let _ = match busy {
            true => rustix::io::write(event, &1u64.to_ne_bytes()),
            false => rustix::io::read(event, &mut [0; 8]),
        };
        self.told = busy;
    }
}

impl<D: Dialect> IoChannel for Channel<D> {
    #[inline]
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.in_flight.is_full() {
            return Err(request);
        }
        if let Some(result) = D::answer(&self.target, &request) {
            self.in_flight.answer(request, result);
        } else {
            let (slot, transfer) = self.in_flight.insert(request)?;
            if !self.push(slot, transfer) {
                // Never happens while each ring has an entry for each slot. If it does, the queue
                // counts as full.
                return self.in_flight.give_back(slot).map_or(Ok(()), Err);
            }
        }
        self.tell();
        Ok(())
    }

    #[inline]
    fn kick(&mut self) {
        self.ring_plain();
        self.ring_polled();
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.collect(completions);
        self.kick();
        self.tell();
        completions.len() - before
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let before = completions.len();
        // A signal from before this wait was for an earlier wait. If it is still set, the poll
        // fires at once.
        self.reap(completions);
        let mut pace = Pace::new(options, self.wake.is_some());
        let bounded = options.timeout.is_some() || self.wake.is_some();
        loop {
            let got = (completions.len() - before) as u32;
            let Some(sleep) = pace.next(got, self.in_flight.occupied()) else { break };
            self.arm();
            let outcome = self.rest(sleep, bounded);
            if self.reap(completions) {
                if let Some(wake) = &self.wake {
                    wake.clear();
                    self.in_flight.statistics.system_calls += 1;
                }
                break;
            }
            match outcome.map_err(|cause| cause.raw_os_error()) {
                Ok(()) | Err(Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                // The ring itself is broken: return rather than spin.
                Err(_) => break,
            }
        }
        if completions.len() == before {
            self.collect(completions);
        }
        self.kick();
        self.tell();
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
        // Only this channel polls the drive, so nothing else could signal a completion. The
        // descriptor is therefore readable while there is something to poll, and a thread that
        // sleeps on it polls.
        let event = match self.event.take() {
            Some(event) => event,
            None => eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
                .map_err(|cause| Error::os(cause.into(), "creating an event for completions"))?,
        };
        let event: &OwnedFd = self.event.insert(event);
        Ok(Some(event.as_fd()))
    }
}

impl<D: Dialect> Drop for Channel<D> {
    fn drop(&mut self) {
        // Accepted requests are completed, not cancelled.
        let mut discarded = Vec::with_capacity(self.in_flight.occupied() as usize);
        while self.in_flight.occupied() > 0 {
            let sleep = Sleep { want: 1, linger: Duration::ZERO, timeout: None };
            let outcome = self.rest(sleep, true);
            self.reap(&mut discarded);
            discarded.clear();
            match outcome.map_err(|cause| cause.raw_os_error()) {
                Ok(()) | Err(Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(_) => {
                    self.in_flight.leak();
                    self.polled_encoder.leak();
                    self.plain_encoder.leak();
                    return;
                }
            }
        }
        self.polled.unregister();
    }
}
