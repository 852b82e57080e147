//! The life cycle of a channel's queue pair: creation, time limits, deletion, and creation again
//! after a reset.
//!
//! Invariants (docs/design/nvme-driver.md has the argument):
//! - Everything here runs on the channel's own thread.
//! - Only [`NvmeChannel::end_all`] ends commands in flight without a completion. It is called only
//!   when the controller has finished with the queue: the queue was deleted, or the controller was
//!   quiet since.
//! - The rings are emptied before a queue is created in them.

use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, IoError, Result};
use qpair_nvme_wire::Command;
use qpair_nvme_wire::command::admin;
use tracing::warn;

use crate::admin::{Outcome, Ticket};
use crate::channel::NvmeChannel;
use crate::controller::Controller;
use crate::slots::Stage;
use crate::state::{Phase, Word};

/// The limits of a channel's period.
const PERIOD_MAX: Duration = Duration::from_millis(250);
const PERIOD_MIN: Duration = Duration::from_millis(1);
/// The time without completions, with commands in flight, after which the timeout policy is asked.
const SILENCE: Duration = Duration::from_secs(1);
/// The minimum number of periods in a time-out.
const PERIODS: u32 = 8;

/// The number of a queue pair. Dropping it frees the number, unless it was kept.
pub(crate) struct Number<'a> {
    controller: &'a Controller,
    number: u16,
}

impl<'a> Number<'a> {
    pub(crate) fn take(controller: &'a Controller) -> Result<Self> {
        let mut core = controller.hub.lock();
        match core.take_queue() {
            Some(number) => Ok(Self { controller, number }),
            None => {
                let granted = core.queues_granted();
                let context = format!(
                    "channel {} on {} cannot be opened: the controller grants {granted} I/O queue pairs",
                    u32::from(granted) + 1,
                    controller.info().name
                );
                Err(Error::new(ErrorKind::Limit, context)
                    .hint(format!("each worker or job needs one: use at most {granted}")))
            }
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Passes the number to the channel, which frees it later.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        self.controller.hub.lock().return_queue(self.number);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// There is no queue pair, and none should be created.
    Closed,
    /// There is no queue pair, and one should be created.
    Wanted,
    MakingCompletion(Ticket),
    /// Only the completion queue exists.
    HasCompletion,
    MakingSubmission(Ticket),
    Open,
    /// The queue pair exists, and should be deleted.
    Unwanted,
    DeletingSubmission(Ticket),
    /// Only the completion queue is left.
    HasNoSubmission,
    DeletingCompletion(Ticket),
    /// The controller is being reset, which deletes the queue pair.
    Waiting,
    /// There is no queue pair, and there will never be one again.
    Dead,
}

/// The state of a queue pair, and the channel's clock.
#[derive(Debug)]
pub(crate) struct Line {
    place: Place,
    period: Duration,
    next: Instant,
    /// The age in periods from which a command is overdue. For an aborted command, half of it
    /// counts.
    timeout_periods: u32,
    /// Whether commands completed in this period.
    pub(crate) has_progress: bool,
    /// Whether the queue pair was in use in this incarnation of the controller.
    was_open: bool,
    is_closing: bool,
    failure: Option<Error>,
}

impl Line {
    pub(crate) fn new(controller: &Controller) -> Self {
        let timeout = controller.options.timeout();
        let period = (timeout / PERIODS).clamp(PERIOD_MIN, PERIOD_MAX);
        let timeout_periods = timeout.as_micros().div_ceil(period.as_micros()) as u32;
        Self {
            place: Place::Waiting,
            period,
            next: Instant::now() + period,
            timeout_periods,
            has_progress: false,
            was_open: false,
            is_closing: false,
            failure: None,
        }
    }

    /// Whether there is nothing to do except checking the clock from time to time.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.place, Place::Open | Place::Closed | Place::Dead)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.place == Place::Dead
    }

    /// Returns the longest sleep with which the clock still works.
    pub(crate) fn sleep_max(&self) -> Duration {
        self.period
    }
}

/// The state of a channel that has not checked the controller yet.
pub(crate) const UNSEEN: Word = Word::NEVER;

impl NvmeChannel {
    /// Creates the queue pair, and waits until it exists.
    pub(crate) fn open_queue(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            self.check_timeout_policy("to make a queue", start);
            self.tend();
            match self.line.place {
                Place::Open => return Ok(()),
                Place::Dead => {
                    return Err(match self.line.failure.take() {
                        Some(error) => error,
                        None => self.controller.hub.lock().failure(),
                    });
                }
                _ => self.controller.hub.pause(),
            }
        }
    }

    pub(crate) fn close(&mut self) {
        let mut completions = Vec::new();
        self.rings.kick();
        let mut idle = 0u32;
        let start = Instant::now();
        while self.has_commands() {
            self.turn(&mut completions);
            idle = if completions.is_empty() { idle + 1 } else { 0 };
            completions.clear();
            // Drives usually answer soon. After that the thread sleeps between polls.
            if idle > 10_000 {
                self.check_timeout_policy("to complete commands", start);
                self.tend();
                self.controller.hub.pause();
            }
        }
        self.line.is_closing = true;
        if self.line.place == Place::Open {
            self.is_open = false;
            self.line.place = Place::Unwanted;
        }
        let start = Instant::now();
        loop {
            self.check_timeout_policy("to delete a queue", start);
            self.tend();
            match (self.line.place, self.seen.phase()) {
                (Place::Closed | Place::Dead, _) => break,
                // A controller that is reset forgets the queue pair.
                (Place::Waiting, Phase::Quiet | Phase::Gone) => break,
                (Place::Waiting, Phase::Stopping | Phase::Running) => {}
                _ => {}
            }
            self.controller.hub.pause();
        }
        self.controller.hub.lock().return_queue(self.queue);
    }

    /// Gives the controller up if the timeout policy ends the wait that began at `start`.
    fn check_timeout_policy(&self, to: &str, start: Instant) {
        let at_most = self.controller.options.timeout();
        self.controller.hub.lock().check_timeout_policy(to, start, at_most);
    }

    /// Checks the controller and the clock, and reacts to them.
    #[cold]
    pub(crate) fn tend(&mut self) {
        self.follow();
        let now = Instant::now();
        let is_due = now >= self.line.next;
        if is_due {
            self.line.next = now + self.line.period;
            // Advance by one period, however long no thread polled: the controller can be judged
            // only by the time in which a thread polled.
            self.epoch = self.epoch.wrapping_add(1);
        }
        if is_due
            || !self.line.is_settled()
            || self.controller.hub.state().phase() != Phase::Running
        {
            if let Some(mut core) = self.controller.hub.try_lock() {
                core.advance();
            }
            self.follow();
            self.move_on();
        }
        if is_due && self.line.place == Place::Open {
            self.look_for_overdue();
        }
    }

    fn follow(&mut self) {
        let word = self.controller.hub.state();
        if word == self.seen {
            return;
        }
        let is_later_life = word.life() != self.seen.life();
        // The channel's first incarnation is not a later one.
        if is_later_life && self.seen != UNSEEN {
            self.statistics.resets += 1;
        }
        self.seen = word;
        self.is_open = false;
        // In another incarnation: the controller was quiet in between.
        if is_later_life || matches!(word.phase(), Phase::Quiet | Phase::Gone) {
            let is_gone = word.phase() == Phase::Gone;
            if is_gone && self.controller.hub.lock().is_runaway() {
                self.abandon_buffers();
            }
            self.end_all(if is_gone { IoError::GONE } else { IoError::CANCELED });
            self.line.was_open = false;
        }
        self.line.place = match word.phase() {
            Phase::Running if self.line.is_closing => Place::Closed,
            Phase::Running => Place::Wanted,
            Phase::Stopping | Phase::Quiet => Place::Waiting,
            Phase::Gone => {
                self.end_held(IoError::GONE);
                Place::Dead
            }
        };
    }

    /// Moves the queue pair one step towards the state that it should have.
    fn move_on(&mut self) {
        let queue = self.queue;
        self.line.place = match self.line.place {
            Place::Wanted if self.line.is_closing => Place::Closed,
            Place::Wanted => {
                self.rings.reset();
                let (entries, at) = (self.rings.entries(), self.rings.completion_iova());
                let command = Command::create_cq(queue, entries, at, self.bell.vector());
                self.send(command).map_or(Place::Wanted, Place::MakingCompletion)
            }
            Place::MakingCompletion(ticket) => match self.fetch(ticket) {
                None => return,
                Some(Outcome::Done(_)) => Place::HasCompletion,
                Some(outcome) => self.not_made(outcome, "completion"),
            },
            Place::HasCompletion => {
                let (entries, at) = (self.rings.entries(), self.rings.submission_iova());
                let command = Command::create_sq(queue, entries, at);
                self.send(command).map_or(Place::HasCompletion, Place::MakingSubmission)
            }
            Place::MakingSubmission(ticket) => match self.fetch(ticket) {
                None => return,
                Some(Outcome::Done(_)) if self.line.is_closing => Place::Unwanted,
                Some(Outcome::Done(_)) => {
                    self.open_for_use();
                    Place::Open
                }
                Some(outcome) => self.not_made(outcome, "submission"),
            },
            Place::Unwanted => {
                let command = Command::delete_queue(admin::DELETE_SQ, queue);
                self.send(command).map_or(Place::Unwanted, Place::DeletingSubmission)
            }
            Place::DeletingSubmission(ticket) => match self.fetch(ticket) {
                None => return,
                Some(Outcome::Done(_)) => {
                    self.end_all(IoError::CANCELED);
                    Place::HasNoSubmission
                }
                Some(outcome) => self.not_deleted(outcome),
            },
            Place::HasNoSubmission => {
                let command = Command::delete_queue(admin::DELETE_CQ, queue);
                self.send(command).map_or(Place::HasNoSubmission, Place::DeletingCompletion)
            }
            Place::DeletingCompletion(ticket) => match self.fetch(ticket) {
                None => return,
                Some(Outcome::Done(_)) => Place::Wanted,
                Some(outcome) => self.not_deleted(outcome),
            },
            settled @ (Place::Open | Place::Closed | Place::Waiting | Place::Dead) => settled,
        };
    }

    /// Sends an admin command in the incarnation of the controller that this channel has seen.
    fn send(&self, command: Command) -> Option<Ticket> {
        self.controller.hub.lock().submit_in(self.seen, command)
    }

    fn fetch(&self, ticket: Ticket) -> Option<Outcome> {
        self.controller.hub.lock().fetch(ticket)
    }

    fn open_for_use(&mut self) {
        self.is_open = true;
        self.line.was_open = true;
        self.line.next = Instant::now() + self.line.period;
        while let Some(lead) = self.held.pop_front() {
            self.start(lead);
        }
        self.rings.kick();
    }

    fn not_made(&mut self, outcome: Outcome, what: &str) -> Place {
        let Outcome::Failed(status) = outcome else {
            // The controller is being reset, as its state will show.
            return Place::Waiting;
        };
        if self.line.was_open {
            // The controller accepted an identical queue a moment ago, so its answers cannot be
            // trusted now.
            self.controller.hub.lock().reset("it did not make a queue again");
            return Place::Waiting;
        }
        let name = &self.controller.info().name;
        let context =
            format!("{name}: creating {what} queue {} failed with {status:?}", self.queue);
        self.line.failure = Some(Error::new(ErrorKind::Io, context));
        self.end_held(IoError::GONE);
        Place::Dead
    }

    fn not_deleted(&mut self, outcome: Outcome) -> Place {
        if let Outcome::Failed(_) = outcome {
            self.controller.hub.lock().reset("it did not delete a queue");
        }
        Place::Waiting
    }

    fn look_for_overdue(&mut self) {
        let has_progress = std::mem::replace(&mut self.line.has_progress, false);
        let timeout_periods = self.line.timeout_periods;
        let mut oldest = None;
        let (mut is_stuck, mut overdue) = (false, false);
        for number in 0..self.slots.len() {
            let slot = self.slots.get(number);
            let age = self.epoch.wrapping_sub(slot.epoch);
            match slot.stage {
                Stage::Active => {
                    oldest = oldest.max(Some(age));
                    overdue |= age > timeout_periods;
                }
                Stage::Aborting => {
                    oldest = oldest.max(Some(age));
                    is_stuck |= age > timeout_periods.div_ceil(2).max(2);
                }
                Stage::Free | Stage::Idle => {}
            }
        }
        let Some(oldest) = oldest else { return };
        if !has_progress && oldest > 0 {
            self.controller.hub.lock().check_status();
            // The controller was silent for as many periods as the age of the oldest command.
            let silent = self.line.period.saturating_mul(oldest);
            if let Some(start) = Instant::now().checked_sub(silent).filter(|_| silent >= SILENCE) {
                self.check_timeout_policy("to complete commands", start);
            }
            self.follow();
            if self.line.place != Place::Open {
                return;
            }
        }
        if overdue {
            self.abort_overdue();
        }
        // This includes commands for which no abort could be sent.
        if is_stuck || oldest > timeout_periods.saturating_mul(2) {
            let (controller, queue) = (self.controller.info().name.as_str(), self.queue);
            warn!(name: "queue_stuck", controller, queue, "commands do not end: their queue is made anew");
            self.is_open = false;
            self.line.place = Place::Unwanted;
        }
    }

    fn abort_overdue(&mut self) {
        let mut core = self.controller.hub.lock();
        let mut aborts = 0;
        for number in 0..self.slots.len() {
            let slot = self.slots.get(number);
            let age = self.epoch.wrapping_sub(slot.epoch);
            if slot.stage != Stage::Active || age <= self.line.timeout_periods {
                continue;
            }
            if !core.abort(self.seen, self.queue, number, self.controller.limits.aborts) {
                break;
            }
            aborts += 1;
            let epoch = self.epoch;
            let slot = self.slots.get_mut(number);
            slot.stage = Stage::Aborting;
            slot.epoch = epoch;
        }
        drop(core);
        if aborts > 0 {
            let (controller, queue) = (self.controller.info().name.as_str(), self.queue);
            let timeout_ms = self.controller.options.timeout().as_millis() as u64;
            warn!(name: "timeout", controller, queue, aborts, timeout_ms, "commands take too long: they are aborted");
        }
    }

    /// Ends the commands in flight. The controller must have finished with the queue.
    fn end_all(&mut self, error: IoError) {
        self.is_open = false;
        let mut ended = std::mem::take(&mut self.ended);
        let before = ended.len();
        // Take the commands that completed in time.
        self.take_all(&mut ended);
        self.forget_waiting(error, &mut ended);
        for number in 0..self.slots.len() {
            let slot = self.slots.get(number);
            let error = match slot.stage {
                Stage::Active => error,
                // The command had exceeded its time limit, whatever ended it.
                Stage::Aborting if error == IoError::CANCELED => IoError::TIMED_OUT,
                Stage::Aborting => error,
                Stage::Free | Stage::Idle => continue,
            };
            self.end_command(number, error, &mut ended);
        }
        self.taken += (ended.len() - before) as u32;
        self.ended = ended;
    }

    /// Leaks the buffers in flight: the controller may write to them for ever, so no owner can get
    /// that memory back.
    #[cold]
    fn abandon_buffers(&mut self) {
        for number in 0..self.slots.len() {
            let slot = self.slots.get(number);
            if matches!(slot.stage, Stage::Active | Stage::Aborting) {
                let lead = if slot.is_whole { number } else { slot.lead };
                let request = self.slots.get_mut(lead).request.as_mut();
                std::mem::forget(request.and_then(|request| request.buffer.take()));
            }
        }
    }

    fn end_held(&mut self, error: IoError) {
        let mut ended = std::mem::take(&mut self.ended);
        let before = ended.len();
        while let Some(lead) = self.held.pop_front() {
            self.finish(lead, Err(error), &mut ended);
        }
        self.taken += (ended.len() - before) as u32;
        self.ended = ended;
    }

    /// Holds a request while the queue cannot take it.
    #[cold]
    pub(crate) fn hold(&mut self, lead: u16) {
        self.held.push_back(lead);
        if self.line.is_dead() {
            self.end_held(IoError::GONE);
        }
    }
}
