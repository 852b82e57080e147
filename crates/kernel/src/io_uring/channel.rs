//! The channel: turns requests into entries, and completions back into requests.
//!
//! Invariants:
//! - Every entry in the ring that names memory has an occupied slot, whose number is its user data.
//! - After each public call every pushed entry is either in the kernel or counted by
//!   `Ring::unsubmitted`.
//! - `armed` is true from the push of the poll on the wake event until its completion was taken.
//! - With a submission thread (`THREAD`), `unseen` is true if entries were pushed since the last
//!   check whether that thread sleeps.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode};
use qpair_block::{
    Arrival, ChannelOptions, ChannelStatistics, Completion, Error, IoChannel, Request, Result,
    WaitOptions, WakeEvent,
};
use rustix::event::{EventfdFlags, eventfd};

use super::dialect::Dialect;
use super::ring::{Enter, Ring};
use crate::in_flight::{InFlight, Step, Transfer};
use crate::mode::Mode;
use crate::pace::{Pace, Sleep};

/// User data of the poll on the wake event.
pub(super) const WAKE: u64 = u64::MAX;
/// User data of entries whose completion is ignored.
const NOTHING: u64 = u64::MAX - 1;

const TIMEOUT_LONG: Duration = Duration::from_secs(3600);

/// The number of entries in addition to those of requests: the poll on the wake event, and a
/// no-operation.
const EXTRA_ENTRIES: u32 = 2;

/// The maximum time that a wait with a submission thread polls an empty completion queue before it
/// sleeps.
///
/// Drives answer sooner, so a wait usually makes no system call. If the polling keeps the
/// submission thread off the processor, the limit ends it.
const SPIN_MAX: Duration = Duration::from_millis(1);
/// The number of checks of the completion queue between two checks of the clock.
const SPINS: u32 = 128;

/// A channel with one ring of dialect `D`, with a submission thread if `THREAD`.
pub(super) struct Channel<D: Dialect, const THREAD: bool> {
    // The order matters: the ring names memory, so it is dropped before the slots and arenas that
    // own the memory.
    ring: Ring<D::Submission, D::Completion>,
    in_flight: InFlight,
    encoder: D,
    target: Arc<D::Target>,
    wake: Option<Arc<WakeEvent>>,
    armed: bool,
    /// Whether the rest of a transfer was pushed and waits to be submitted.
    unfinished: bool,
    /// Whether a sleeping submission thread would miss an entry that was pushed.
    unseen: bool,
    /// An event that the kernel signals for every completion, once a caller wants to sleep on it.
    event: Option<OwnedFd>,
    /// Whether a no-operation is in flight that makes the ring's descriptor readable.
    told: bool,
    /// Transfers whose rest found no place in the submission queue.
    without_room: Vec<(u64, Transfer)>,
    /// Ties the channel to its thread, with which the ring is registered.
    one_thread: PhantomData<*const ()>,
}

impl<D: Dialect, const THREAD: bool> Channel<D, THREAD> {
    pub(super) fn open(
        target: Arc<D::Target>,
        mode: &Mode,
        options: &ChannelOptions,
    ) -> Result<Self> {
        Self::on(Ring::open(Self::entries(options), mode)?, target, mode, options)
    }

    /// Returns the number of entries that the ring of such a channel must have so that it is never
    /// full.
    pub(super) fn entries(options: &ChannelOptions) -> u32 {
        options.depth + EXTRA_ENTRIES
    }

    pub(super) fn on(
        ring: Ring<D::Submission, D::Completion>,
        target: Arc<D::Target>,
        mode: &Mode,
        options: &ChannelOptions,
    ) -> Result<Self> {
        Ok(Self {
            encoder: D::new(&ring, &target, mode, options)?,
            ring,
            in_flight: InFlight::new(options.depth).with_lists(match D::TAKES_VECTORS {
                true => &options.arenas,
                false => &[],
            }),
            target,
            wake: options.wake.clone(),
            armed: false,
            unfinished: false,
            unseen: false,
            event: None,
            told: false,
            without_room: Vec::with_capacity(options.depth as usize),
            one_thread: PhantomData,
        })
    }

    pub(super) fn mode(&self) -> String {
        format!("{}, {}", self.ring.mode(), self.encoder.words())
    }

    /// Takes the completions in the queue. Returns whether the wake event was signalled.
    #[inline]
    fn reap(&mut self, completions: &mut Vec<Completion>) -> bool {
        let mut woken = false;
        let (_, mut submission, mut queue) = self.ring.queues().split();
        for entry in &mut queue {
            let entry: cqueue::Entry = entry.into();
            match entry.user_data() {
                WAKE => {
                    self.armed = false;
                    woken = true;
                }
                NOTHING => self.told = false,
                slot => {
                    match self.in_flight.finish(slot as u32, self.encoder.result(entry.result())) {
                        Step::Done(completion) => completions.push(completion),
                        Step::Again(rest) => {
                            let entry = self.encoder.encode(rest, slot);
                            self.unfinished = true;
                            self.unseen = true;
                            // SAFETY: `rest` names memory that the slot owns until it is finished.
                            if unsafe { submission.push(&entry) }.is_err() {
                                // A completion may be visible before the kernel has released the
                                // entry's place.
                                self.without_room.push((slot, rest));
                            }
                        }
                        Step::Stray => {}
                    }
                }
            }
        }
        drop((submission, queue));
        while let Some((slot, rest)) = self.without_room.pop() {
            let entry = self.encoder.encode(rest, slot);
            // SAFETY: as above.
            if unsafe { self.ring.push(&entry) }.is_err()
                && let Step::Done(completion) =
                    self.in_flight.finish(slot as u32, -i64::from(libc::EIO))
            {
                completions.push(completion);
            }
        }
        self.in_flight.take_refused(completions);
        woken
    }

    /// Takes the completions in the queue, and those that the kernel holds back until it is asked.
    fn collect(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.reap(completions);
        if THREAD {
            self.alert();
        } else if self.unfinished || (completions.len() == before && self.ring.has_hidden_work()) {
            let _ = self.enter(Enter { collect: true, ..Enter::default() });
            self.reap(completions);
        }
    }

    #[inline]
    fn enter(&mut self, enter: Enter) -> std::io::Result<()> {
        self.in_flight.statistics.system_calls += 1;
        self.unfinished = false;
        self.ring.enter(enter)
    }

    /// Wakes the submission thread if it sleeps and has entries to submit.
    #[inline]
    fn alert(&mut self) {
        if self.unseen {
            self.unseen = false;
            self.unfinished = false;
            if self.ring.thread_sleeps() {
                let _ = self.enter(Enter { wake: true, ..Enter::default() });
            }
        }
    }

    /// Polls the completion queue until it has an entry, or for as long as `sleep` would last.
    ///
    /// Returns false if the time is longer than [`SPIN_MAX`]: the caller should then sleep for the
    /// rest.
    #[inline]
    fn spin(&mut self, sleep: Sleep) -> bool {
        let mut started = None;
        let linger = (!sleep.linger.is_zero()).then_some(sleep.linger);
        let limit = sleep.timeout.into_iter().chain(linger).min().filter(|&limit| limit < SPIN_MAX);
        loop {
            for _ in 0..SPINS {
                if self.ring.has_completions() {
                    return true;
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            let elapsed = now - *started.get_or_insert(now);
            if elapsed >= limit.unwrap_or(SPIN_MAX) {
                return limit.is_some();
            }
        }
    }

    #[inline]
    fn sleep(&mut self, sleep: Sleep) -> std::io::Result<()> {
        let mut enter = Enter {
            want: sleep.want,
            collect: true,
            min_wait: sleep.linger,
            timeout: sleep.timeout,
            wake: false,
        };
        if !sleep.linger.is_zero() {
            enter.timeout = if self.ring.has_min_wait() {
                // Without a time-out the kernel would return empty-handed if nothing arrives before
                // the end of the linger.
                sleep.timeout.or(Some(TIMEOUT_LONG))
            } else {
                // The next round waits for the rest of the time.
                enter.min_wait = Duration::ZERO;
                Some(sleep.timeout.map_or(sleep.linger, |timeout| timeout.min(sleep.linger)))
            };
        }
        self.enter(enter)
    }

    /// Makes the wake event complete an entry.
    fn arm(&mut self) {
        let Some(wake) = self.wake.as_ref().filter(|_| !self.armed) else { return };
        let fd = Fd(wake.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build().user_data(WAKE).into();
        // SAFETY: the entry names no memory.
        self.armed = unsafe { self.ring.push(&entry) }.is_ok();
        self.unseen = true;
    }
}

impl<D: Dialect, const THREAD: bool> IoChannel for Channel<D, THREAD> {
    #[inline]
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.in_flight.is_full() {
            return Err(request);
        }
        if let Some(result) = D::answer(&self.target, &request) {
            self.in_flight.answer(request, result);
            if self.event.is_some() && !self.told {
                // A thread that sleeps on the descriptor must notice the completions.
                let entry = opcode::Nop::new().build().user_data(NOTHING).into();
                // SAFETY: the entry names no memory.
                self.told = unsafe { self.ring.push(&entry) }.is_ok();
                self.unseen = true;
            }
            return Ok(());
        }
        let (slot, transfer) = self.in_flight.insert(request)?;
        self.encoder.prepare(&self.ring, &transfer);
        let entry = self.encoder.encode(transfer, u64::from(slot));
        if THREAD {
            self.unseen = true;
        }
        // SAFETY: `transfer` names memory of the request's buffer, which the slot owns until it is
        // finished.
        match unsafe { self.ring.push(&entry) } {
            Ok(()) => Ok(()),
            // Never happens while the ring has `entries` entries. If it does, the queue counts as
            // full.
            Err(_) => self.in_flight.give_back(slot).map_or(Ok(()), Err),
        }
    }

    #[inline]
    fn kick(&mut self) {
        if THREAD {
            self.alert();
        } else if self.ring.unsubmitted() > 0 {
            // Entries that the kernel could not take stay in the queue for the next call.
            let collect = self.ring.has_hidden_work();
            let _ = self.enter(Enter { collect, ..Enter::default() });
        }
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.collect(completions);
        if completions.len() == before
            && let Some(event) = &self.event
        {
            // The queue is empty, so a thread that sleeps on the event waits for later completions.
            // The second check finds completions from before the event was cleared.
            let _ = rustix::io::read(event, &mut [0; 8]);
            self.in_flight.statistics.system_calls += 1;
            self.collect(completions);
        }
        completions.len() - before
    }

    #[inline]
    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.collect(completions);
        completions.len() - before
    }

    fn arrival(&self) -> Arrival {
        if THREAD { Arrival::Seen } else { Arrival::Called }
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let before = completions.len();
        // A signal from before this wait was for an earlier wait. If it is still set, the poll
        // fires at once.
        self.reap(completions);
        let mut pace = Pace::new(options, self.wake.is_some());
        let mut called = false;
        loop {
            let got = (completions.len() - before) as u32;
            let Some(sleep) = pace.next(got, self.in_flight.occupied()) else { break };
            self.arm();
            if THREAD {
                self.alert();
            }
            // With a submission thread, completions arrive without a system call, so checking
            // memory may be enough.
            let outcome = if THREAD && self.in_flight.occupied() > 0 && self.spin(sleep) {
                Ok(())
            } else {
                called = true;
                self.sleep(sleep)
            };
            let woken = self.reap(completions);
            if woken {
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
        if !called || self.unfinished {
            self.kick();
            if completions.len() == before {
                self.poll(completions);
            }
        }
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
        // Do not use the ring's own descriptor: an epoll set with that descriptor does not wake for
        // completions that this thread has yet to run (DEFER_TASKRUN, seen on Linux 6.18).
        let event = match self.event.take() {
            Some(event) => event,
            None => {
                let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(
                    |cause| Error::os(cause.into(), "creating an event for completions"),
                )?;
                self.ring.register_event(event.as_raw_fd())?;
                event
            }
        };
        let event: &OwnedFd = self.event.insert(event);
        Ok(Some(event.as_fd()))
    }
}

impl<D: Dialect, const THREAD: bool> Drop for Channel<D, THREAD> {
    fn drop(&mut self) {
        // Accepted requests are completed, not cancelled: the kernel cannot withdraw them from a
        // drive, and half a batch of writes would be no better than a whole one.
        let mut discarded = Vec::with_capacity(self.in_flight.occupied() as usize);
        while self.in_flight.occupied() > 0 {
            if THREAD {
                self.alert();
            }
            let outcome = self.enter(Enter { want: 1, collect: true, ..Enter::default() });
            self.reap(&mut discarded);
            discarded.clear();
            match outcome.map_err(|cause| cause.raw_os_error()) {
                Ok(()) | Err(Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(_) => {
                    self.in_flight.leak();
                    self.encoder.leak();
                    return;
                }
            }
        }
        self.ring.unregister();
    }
}
