//! Stepping a queue: commands are fetched in a batch, executed and completed, under the queue's lock.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use qpair_nvme_wire::registers::{CSTS_FATAL, CSTS_READY};
use qpair_nvme_wire::{Command, Status};
use qpair_pci::{Listened, Stepped};

use super::admin::Answer;
use super::device::SoftNvme;
use super::events::Event;
use super::fate::End;
use super::queue::{CompletionQueue, Pair, Side, SubmissionQueue, Unreachable};

/// Commands fetched before the first of them is executed.
const BATCH: usize = 8;

/// A number of a queue pair.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Slot {
    pair: Mutex<Pair>,
    /// The tail doorbell's value when it was looked at last.
    tail_seen: AtomicU32,
    /// There is something to do though the doorbell may say nothing new.
    attention: AtomicBool,
    /// Its doorbells are in the driver's memory, which is found under the lock.
    is_shadowed: AtomicBool,
}

impl Slot {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Pair> {
        self.pair.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whether there may be something to do, with the tail doorbell at this value.
    #[inline(always)]
    pub(crate) fn has_news(&self, tail: u32) -> bool {
        tail != self.tail_seen.load(Ordering::Relaxed) || self.attention.load(Ordering::Acquire)
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) progress: bool,
    /// There is something left to do.
    pub(crate) again: bool,
    /// When the first command that waits is due.
    pub(crate) due_ns: Option<u64>,
    /// The drive comes to this, once the queue's lock is free.
    pub(crate) end: Option<End>,
}

impl SoftNvme {
    /// Does what there is to do for one queue.
    #[inline]
    pub(crate) fn step_queue(&self, number: u16) -> Stepped {
        self.step_queue_by(number, |tail, side, completion| match number {
            0 => self.run_admin(tail, side, completion),
            _ => self.run_io(number, tail, side, completion),
        })
    }

    /// Has `run` do what there is to do for one queue, if there is something.
    #[inline]
    pub(crate) fn step_queue_by(
        &self,
        number: u16,
        run: impl FnOnce(u32, &mut Side, &mut CompletionQueue) -> Result<Ran, Unreachable>,
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
        if let Some(end) = ran.end {
            self.come_to(end);
        }
        Stepped { progress: ran.progress, due: ran.due_ns.map(|at_ns| self.instant(at_ns)) }
    }

    #[inline]
    fn run(
        &self,
        number: u16,
        tail: u32,
        side: &mut Side,
        completion: &mut CompletionQueue,
        run: impl FnOnce(u32, &mut Side, &mut CompletionQueue) -> Result<Ran, Unreachable>,
    ) -> Ran {
        let Some(cq) = side.submission.as_ref().map(|queue| queue.cq) else {
            return Ran::default();
        };
        if let (Some(shadow), Some(queue)) = (&side.shadow, &mut side.submission) {
            // Before anything is posted, which the driver acknowledges at once.
            queue.be_quiet(shadow, number, tail);
            completion.be_quiet(shadow, cq);
        }
        let mut ran = run(tail, side, completion).unwrap_or_else(|Unreachable| {
            self.set_status(CSTS_FATAL, CSTS_FATAL);
            Ran { progress: true, ..Ran::default() }
        });
        let shadow = side.shadow.as_ref();
        if completion.vector.is_some() {
            let heads = || self.doorbell_of(shadow, cq, true);
            if let Some(vector) = completion.take_signal(heads) {
                self.signal(vector);
            }
            // The driver may look just before something is posted, and ring just after.
            ran.again |= completion.has_unacknowledged();
        }
        ran
    }

    /// Entries up to `tail`; none, if the driver wrote what cannot be.
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
        side: &mut Side,
        completion: &mut CompletionQueue,
    ) -> Result<Ran, Unreachable> {
        let Side { submission: Some(queue), shadow, tools, waiting, .. } = side else {
            return Ok(Ran::default());
        };
        let pending = self.pending(queue, tail);
        if !self.is_plain() || !waiting.is_empty() {
            return self.run_timed(number, pending, side, completion);
        }
        let heads = || self.doorbell_of(shadow.as_ref(), queue.cq, true);
        let (room, wrong) = completion.room(pending, heads);
        if wrong {
            self.happened(Event::InvalidDoorbell);
        }
        let target = self.target();
        let now = pending.min(room);
        let mut left = now;
        let mut batch = [Command::default(); BATCH];
        while left > 0 {
            // All of a batch are on their way from memory while the first ones are copied.
            let commands = &mut batch[..left.min(BATCH as u32) as usize];
            left -= commands.len() as u32;
            queue.prefetch(commands.len() as u32);
            for command in &mut *commands {
                *command = queue.fetch()?;
                target.prefetch(command);
            }
            for command in &*commands {
                let status = target.execute(command, tools);
                completion.post(number, queue.head, command.cid(), status, 0)?;
            }
        }
        Ok(Ran { progress: now > 0, again: now < pending, ..Ran::default() })
    }

    pub(crate) fn run_admin(
        &self,
        tail: u32,
        side: &mut Side,
        completion: &mut CompletionQueue,
    ) -> Result<Ran, Unreachable> {
        let Side { submission: Some(queue), answered, tools, .. } = side else {
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
            let (status, result) = match self.execute_admin(&command, tools) {
                Ok(Answer::Held) => continue,
                Ok(Answer::Done(result)) => (Status::SUCCESS, result),
                Err(status) => (status, 0),
            };
            completion.post(0, queue.head, command.cid(), status, result)?;
        }
        while completion.room(1, heads).0 > 0 {
            let later = answered.pop_front().map(|(cid, status)| (cid, status, 0));
            let Some((cid, status, result)) = later.or_else(|| self.admin().events.next()) else {
                break;
            };
            completion.post(0, queue.head, cid, status, result)?;
            ran.progress = true;
        }
        ran.again |= self.admin().events.is_ready() || !answered.is_empty();
        Ok(ran)
    }

    /// Calls `work` with a number's submission side and the queue that it completes to, if there are such.
    #[inline]
    pub(crate) fn with_queues<R>(
        &self,
        number: u16,
        work: impl FnOnce(&mut Side, Option<&mut CompletionQueue>) -> R,
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

    /// As [`Self::with_queues`], for a submission queue that completes to the queue of another number.
    #[cold]
    fn with_two<R>(
        &self,
        number: u16,
        cq: u16,
        work: impl FnOnce(&mut Side, Option<&mut CompletionQueue>) -> R,
    ) -> Option<R> {
        // The lower number's lock first, as everywhere.
        let low = self.slot(number.min(cq))?;
        let high = self.slot(number.max(cq))?;
        let (mut low, mut high) = (low.lock(), high.lock());
        let (own, other) =
            if number < cq { (&mut *low, &mut *high) } else { (&mut *high, &mut *low) };
        // Deleted, and perhaps made anew, in between: there is another step for that.
        let is_still = own.side.submission.as_ref().is_some_and(|queue| queue.cq == cq);
        let completion = if is_still { other.completion.as_mut() } else { None };
        Some(work(&mut own.side, completion))
    }

    /// Asks the driver to ring for what comes next, before the thread that steps all queues sleeps.
    pub(crate) fn listen_to_doorbells(&self) -> Listened {
        if self.are_doorbells_mapped() {
            return Listened::Untold;
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
            // A driver that looks just before something is posted, and a queue that was full: the head's next move is news.
            if completion.as_mut().is_some_and(|queue| !queue.listen(shadow, number)) {
                return Listened::Busy;
            }
        }
        Listened::Told
    }

    #[cold]
    fn come_to(&self, end: End) {
        match end {
            End::Removed => self.remove(),
            End::PowerCut => self.power_cut(self.faults().plan().seed),
        }
    }

    /// Something happened that the driver may want to hear of.
    #[cold]
    pub(crate) fn happened(&self, event: Event) {
        if self.admin().events.happen(event) {
            self.call_attention(0);
        }
    }
}
