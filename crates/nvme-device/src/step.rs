//! Steps a queue: commands are fetched in a batch, executed and completed, under the queue's lock.

use qpair_memory::locks::Mutex;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use qpair_nvme_wire::registers::{
    CSTS_FATAL, CSTS_READY, CSTS_SHUTDOWN_COMPLETE, CSTS_SHUTDOWN_MASK, CSTS_SHUTDOWN_OCCURRING,
};
use qpair_nvme_wire::{Command, Status};
use qpair_pci::{Listened, Stepped};

use crate::admin::Answer;
use crate::backend::{Again, Backend, Io, Stop, Ticket};
use crate::device::NvmeController;
use crate::events::Event;
use crate::queue::{CompletionQueue, Pair, Side, SubmissionQueue};

/// The number of commands that are fetched before the backend takes the first of them.
const BATCH: usize = 8;
/// The status type for failures of the medium.
const MEDIA_ERRORS: u8 = 2;

#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Slot<Q> {
    pair: Mutex<Pair<Q>>,
    /// The tail doorbell's value at the last check.
    tail_seen: AtomicU32,
    /// Whether there is work, even if the doorbell has not changed.
    attention: AtomicBool,
    /// Whether the doorbells are in the driver's memory, which is looked up under the lock.
    is_shadowed: AtomicBool,
}

impl<Q> Slot<Q> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Pair<Q>> {
        self.pair.lock()
    }

    pub(crate) fn call_attention(&self) {
        self.attention.store(true, Ordering::Release);
    }

    pub(crate) fn set_shadowed(&self, is_shadowed: bool) {
        self.is_shadowed.store(is_shadowed, Ordering::Relaxed);
    }

    pub(crate) fn tail_seen(&self) -> u32 {
        self.tail_seen.load(Ordering::Relaxed)
    }

    /// Whether there may be work, with the tail doorbell at this value.
    #[inline(always)]
    pub(crate) fn has_news(&self, tail: u32) -> bool {
        tail != self.tail_seen.load(Ordering::Relaxed) || self.attention.load(Ordering::Acquire)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) progress: bool,
    pub(crate) again: bool,
    /// The time at which the first waiting command is due.
    pub(crate) due: Option<Instant>,
    /// Whether the function must be removed once the queue's lock is free.
    pub(crate) is_removed: bool,
}

impl<B: Backend> NvmeController<B> {
    #[inline]
    pub(crate) fn step_queue(&self, number: u16) -> Stepped {
        self.step_queue_by(number, |tail, side, completion| match number {
            0 => self.run_admin(tail, side, completion),
            _ => self.run_io(number, tail, side, completion),
        })
    }

    /// Calls `run` for one queue if there is work.
    #[inline]
    pub(crate) fn step_queue_by(
        &self,
        number: u16,
        run: impl FnOnce(u32, &mut Side<B::Queue>, &mut CompletionQueue) -> Result<Ran, Stop>,
    ) -> Stepped {
        let Some(slot) = self.slot(number) else { return Stepped::default() };
        let tail = match slot.is_shadowed.load(Ordering::Relaxed) {
            true => self.doorbell_of(slot.lock().side.shadow.as_ref(), number, false),
            false => self.doorbell(number, false),
        };
        if !slot.has_news(tail) {
            return Stepped::default();
        }
        slot.attention.store(false, Ordering::Relaxed);
        let ran = self.with_queues(number, |side, completion| {
            let tail = self.doorbell_of(side.shadow.as_ref(), number, false);
            slot.tail_seen.store(tail, Ordering::Relaxed);
            match (completion, self.status() & (CSTS_READY | CSTS_FATAL)) {
                (Some(completion), CSTS_READY) => self.run(number, tail, side, completion, run),
                _ => Ran::default(),
            }
        });
        let ran = ran.unwrap_or_default();
        if ran.again {
            slot.call_attention();
        }
        if ran.is_removed {
            self.remove();
        }
        Stepped { progress: ran.progress, due: ran.due }
    }

    #[inline]
    fn run(
        &self,
        number: u16,
        tail: u32,
        side: &mut Side<B::Queue>,
        completion: &mut CompletionQueue,
        run: impl FnOnce(u32, &mut Side<B::Queue>, &mut CompletionQueue) -> Result<Ran, Stop>,
    ) -> Ran {
        let Some(cq) = side.submission.as_ref().map(|queue| queue.cq) else {
            return Ran::default();
        };
        if let (Some(shadow), Some(queue)) = (&side.shadow, &mut side.submission) {
            // Called before anything is posted, because the driver acknowledges posted entries at
            // once.
            queue.be_quiet(shadow, number, tail);
            completion.be_quiet(shadow, cq);
        }
        let mut ran = run(tail, side, completion).unwrap_or_else(|stop| {
            if stop == Stop::Fatal {
                self.set_status(CSTS_FATAL, CSTS_FATAL);
            }
            Ran { progress: true, is_removed: stop == Stop::Removed, ..Ran::default() }
        });
        let shadow = side.shadow.as_ref();
        if completion.vector.is_some() {
            let heads = || self.doorbell_of(shadow, cq, true);
            if let Some(vector) = completion.take_signal(heads) {
                self.signal(vector);
            }
            // The driver may look just before an entry is posted, and ring just after that.
            ran.again |= completion.has_unacknowledged();
        }
        ran
    }

    /// Returns the number of entries up to `tail`; 0 if the driver wrote an invalid value.
    #[inline(always)]
    pub(crate) fn pending(&self, queue: &SubmissionQueue, tail: u32) -> u32 {
        if tail >= queue.ring.entries() {
            self.happened(Event::InvalidDoorbell);
            return 0;
        }
        queue.pending(tail)
    }

    #[inline]
    fn run_io(
        &self,
        number: u16,
        tail: u32,
        side: &mut Side<B::Queue>,
        completion: &mut CompletionQueue,
    ) -> Result<Ran, Stop> {
        let Side { submission: Some(queue), shadow, state } = side else {
            return Ok(Ran::default());
        };
        let pending = self.pending(queue, tail);
        let held = state.in_flight + state.answered.len() as u32;
        let heads = || self.doorbell_of(shadow.as_ref(), queue.cq, true);
        let (room, wrong) = completion.room(pending + held, heads);
        if wrong {
            self.happened(Event::InvalidDoorbell);
        }
        // More commands than the completion queue has room for could never be answered.
        let taken = pending
            .min(completion.ring.entries().saturating_sub(1 + held))
            .min(self.backend().room());
        let mut io = Io {
            state,
            write_through: self.write_through.load(Ordering::Relaxed),
            completion,
            transfer_bytes_max: self.transfer_bytes_max(),
            number,
            sq_head: queue.head,
            room,
            ended: 0,
        };
        let has_posted = held > 0 && io.post_answered()?;
        let mut left = taken;
        let mut batch = [Command::default(); BATCH];
        while left > 0 {
            let commands = &mut batch[..left.min(BATCH as u32) as usize];
            left -= commands.len() as u32;
            queue.prefetch(commands.len() as u32);
            for command in &mut *commands {
                *command = queue.fetch()?;
            }
            io.sq_head = queue.head;
            self.backend().take(commands, &mut io)?;
        }
        let all = io.state.in_flight + taken;
        let next = match all > io.ended {
            true => self.backend().poll(&mut io)?,
            false => Again::OnNews,
        };
        io.state.in_flight = all.saturating_sub(io.ended);
        Ok(Ran {
            progress: taken > 0 || io.ended > 0 || has_posted,
            again: taken < pending || !io.state.answered.is_empty() || next != Again::OnNews,
            due: if let Again::Always(due) = next { due } else { None },
            is_removed: false,
        })
    }

    /// Does the work of the admin queue. Executes commands only if `executes`.
    pub fn step_admin(&self, executes: bool) -> bool {
        let run = |tail, side: &mut Side<B::Queue>, completion: &mut CompletionQueue| {
            let head = side.submission.as_ref().map_or(tail, |queue| queue.head);
            let mut ran = self.run_admin(if executes { tail } else { head }, side, completion)?;
            ran.again |= !executes && head != tail;
            Ok(ran)
        };
        self.step_queue_by(0, run).progress
    }

    pub fn step_io(&self) -> Stepped {
        let queues = 1..self.slots_in_use();
        queues.map(|number| self.step_queue(number)).fold(Stepped::default(), Stepped::and)
    }

    /// Returns whether admin commands wait. They may change state that commands under way use.
    #[must_use]
    pub fn has_admin_commands(&self) -> bool {
        let Some(slot) = self.slot(0).filter(|slot| slot.has_news(self.doorbell(0, false))) else {
            return false;
        };
        let pair = slot.lock();
        pair.side.submission.as_ref().is_some_and(|queue| queue.head != self.doorbell(0, false))
    }

    /// Ends a command of the backend, or its flush.
    pub fn answer(&self, ticket: Ticket, status: Status) {
        if ticket == Ticket::SHUTDOWN {
            if self.status() & CSTS_SHUTDOWN_MASK == CSTS_SHUTDOWN_OCCURRING {
                self.set_status(CSTS_SHUTDOWN_MASK, CSTS_SHUTDOWN_COMPLETE);
            }
            return;
        }
        let Some(mut pair) = self.lock_pair(ticket.queue.into()) else { return };
        pair.side.state.in_flight = pair.side.state.in_flight.saturating_sub(1);
        pair.side.state.counts.media_errors += u64::from(status.kind() == MEDIA_ERRORS);
        pair.side.state.answered.push_back((ticket.cid, status));
        drop(pair);
        self.call_attention(ticket.queue.into());
    }

    pub(crate) fn run_admin(
        &self,
        tail: u32,
        side: &mut Side<B::Queue>,
        completion: &mut CompletionQueue,
    ) -> Result<Ran, Stop> {
        let Side { submission: Some(queue), state, .. } = side else {
            return Ok(Ran::default());
        };
        let heads = || self.doorbell(0, true);
        let pending = self.pending(queue, tail);
        let mut ran = Ran::default();
        for _ in 0..pending {
            if completion.room(1, heads).0 == 0 {
                ran.again = true;
                break;
            }
            let command = queue.fetch()?;
            ran.progress = true;
            let (status, result) = match self.execute_admin(&command, &mut state.memory) {
                Ok(Answer::Held) => continue,
                Ok(Answer::Done(result)) => (Status::SUCCESS, result),
                Err(status) => (status, 0),
            };
            completion.post(0, queue.head, command.cid(), status, result)?;
        }
        while completion.room(1, heads).0 > 0 {
            let later = state.answered.pop_front().map(|(cid, status)| (cid, status, 0));
            let Some((cid, status, result)) = later.or_else(|| self.admin().events.take_next())
            else {
                break;
            };
            completion.post(0, queue.head, cid, status, result)?;
            ran.progress = true;
        }
        ran.again |= self.admin().events.is_ready() || !state.answered.is_empty();
        Ok(ran)
    }

    /// Calls `work` with a number's submission side and the completion queue that it uses, if both
    /// exist.
    #[inline]
    pub(crate) fn with_queues<R>(
        &self,
        number: u16,
        work: impl FnOnce(&mut Side<B::Queue>, Option<&mut CompletionQueue>) -> R,
    ) -> Option<R> {
        let mut pair = self.slot(number)?.lock();
        let Pair { side, completion } = &mut *pair;
        match &side.submission {
            Some(queue) if queue.cq != number => {
                let cq = queue.cq;
                drop(pair);
                self.with_two(number, cq, work)
            }
            Some(_) => Some(work(side, completion.as_mut())),
            None => Some(work(side, None)),
        }
    }

    /// Like [`Self::with_queues`], for a submission queue that uses the completion queue of another
    /// number.
    #[cold]
    fn with_two<R>(
        &self,
        number: u16,
        cq: u16,
        work: impl FnOnce(&mut Side<B::Queue>, Option<&mut CompletionQueue>) -> R,
    ) -> Option<R> {
        // Lock the lower number first, as everywhere.
        let low = self.slot(number.min(cq))?;
        let high = self.slot(number.max(cq))?;
        let (mut low, mut high) = (low.lock(), high.lock());
        let (own, other) =
            if number < cq { (&mut *low, &mut *high) } else { (&mut *high, &mut *low) };
        // The queue was deleted, and perhaps created again, in between: another step handles that.
        let is_still = own.side.submission.as_ref().is_some_and(|queue| queue.cq == cq);
        let completion = if is_still { other.completion.as_mut() } else { None };
        Some(work(&mut own.side, completion))
    }

    /// Asks the driver to ring for its next entries, before the thread that steps all queues
    /// sleeps.
    pub(crate) fn listen_to_doorbells(&self) -> Listened {
        if self.are_doorbells_mapped() {
            return Listened::Unsignalled;
        }
        for number in 1..self.slots_in_use() {
            let Some(slot) = self.slot(number) else { break };
            let mut pair = slot.lock();
            let Pair { side, completion } = &mut *pair;
            let Some(shadow) = &side.shadow else { continue };
            if let Some(queue) = &mut side.submission {
                let seen = slot.tail_seen();
                queue.event.set(seen);
                if !shadow.listen(number, false, seen) {
                    return Listened::Busy;
                }
            }
            // The driver may look just before an entry is posted, or the queue was full: the next
            // move of the head is relevant then.
            if completion.as_mut().is_some_and(|queue| !queue.listen(shadow, number)) {
                return Listened::Busy;
            }
        }
        Listened::Signalled
    }

    /// Notes an event, and answers a waiting event request of the driver.
    #[cold]
    pub(crate) fn happened(&self, event: Event) {
        if self.admin().events.happen(event) {
            self.call_attention(0);
        }
    }
}
