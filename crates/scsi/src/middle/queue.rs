//! The life of a command.
//!
//! Invariants:
//! - A slot's number is its command's tag. A slot is `Sent` from the time the host's queue took its
//!   command until the queue reported it.
//! - A command's buffer is in its slot while the slot is `Sent`.
//! - A command is `Held` if and only if its tag is in `held`.
//! - Each command that was begun is in `done` exactly once. Its slot belongs to its owner until
//!   [`Queue::end`].
//!
//! Long, because each step of a command relies on the invariants, and so on the private fields.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{Buffer, IoError, time};
use qpair_scsi_wire::{CHECK_CONDITION, Cdb, Sense};
use tracing::{error, warn};

use super::ladder::Ladder;
use super::verdict::{self, Verdict};
use crate::canary::Canary;
use crate::disk::{Power, Recall};
use crate::host::{Data, HostQueue, Outcome, Refusal, Report, SENSE_BYTES};
use crate::options::ScsiOptions;

/// The maximum number of polls between two looks at the clock, and how much an empty poll counts.
const POLLS: u32 = 1024;
const EMPTY_POLL: u32 = 8;
/// The longest sleep with commands in flight, so that a silent controller is noticed; and the
/// longest sleep while a command has to be sent again.
const SLEEP_MAX: Duration = Duration::from_millis(100);
const SLEEP_SHORT: Duration = Duration::from_millis(1);
/// The number of good commands after which the window grows by one again.
const GROWTH: u32 = 64;

/// The state that all channels of a unit share.
#[derive(Debug, Default)]
pub(crate) struct UnitState {
    pub(crate) name: String,
    pub(crate) power: Power,
    /// Lets resets wait for the commands that the channels have in flight.
    pub(crate) recall: Recall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    None,
    /// The buffer in the command's slot.
    Buffer,
    /// The queue's own memory.
    Scratch,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) cdb: Cdb,
    pub(crate) is_out: bool,
    pub(crate) place: Place,
    /// The offset of the first byte in that place.
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

impl Command {
    pub(crate) fn plain(cdb: Cdb) -> Self {
        Self { cdb, is_out: false, place: Place::None, offset: 0, len: 0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Free,
    /// The slot has an owner, and no command.
    Idle,
    Sent,
    Held,
}

#[derive(Debug)]
struct Slot {
    stage: Stage,
    retries: u8,
    /// The error ladder was begun for this command.
    is_late: bool,
    /// The one of two rounds in which the command was last sent.
    round: bool,
    command: Command,
    buffer: Option<Buffer>,
    /// The times in milliseconds of the queue's own clock at which the command was last sent, was
    /// begun, and may be sent again.
    sent_ms: u32,
    begun_ms: u32,
    not_before_ms: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) tag: u16,
    pub(crate) result: Result<(), IoError>,
    pub(crate) sense: Option<Sense>,
    /// The number of bytes moved, if fewer than requested.
    pub(crate) short: Option<u32>,
}

pub(crate) struct Queue {
    host: Box<dyn HostQueue>,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    held: VecDeque<u16>,
    reports: Vec<Report>,
    scratch: Buffer,
    unit: Arc<UnitState>,
    options: ScsiOptions,
    /// The number of commands sent and not reported.
    sent: u32,
    /// The number of commands sent before this round and not reported.
    older: u32,
    round: bool,
    window: u32,
    good: u32,
    ladder: Ladder,
    start: Instant,
    now_ms: u32,
    polls_left: u32,
    /// The unit no longer answers, and gets no more commands.
    is_offline: bool,
    /// Reports short transfers as success and lets the owner judge them (for answers of varying
    /// length).
    takes_short: bool,
}

impl Queue {
    pub(crate) fn new(
        host: Box<dyn HostQueue>,
        depth: u16,
        scratch: Buffer,
        unit: Arc<UnitState>,
        options: ScsiOptions,
        takes_short: bool,
    ) -> Self {
        let slot = || Slot {
            stage: Stage::Free,
            retries: 0,
            is_late: false,
            round: false,
            command: Command::plain(Cdb::default()),
            buffer: None,
            sent_ms: 0,
            begun_ms: 0,
            not_before_ms: 0,
        };
        Self {
            host,
            slots: (0..depth).map(|_| slot()).collect(),
            free: (0..depth).rev().collect(),
            held: VecDeque::with_capacity(depth.into()),
            reports: Vec::with_capacity(usize::from(depth) + 1),
            scratch,
            unit,
            options,
            sent: 0,
            older: 0,
            round: false,
            window: depth.into(),
            good: 0,
            ladder: Ladder::default(),
            start: time::now(),
            now_ms: 0,
            polls_left: POLLS,
            is_offline: false,
            takes_short,
        }
    }

    /// Returns the queue's own memory, for parameters of commands that are not in flight.
    pub(crate) fn scratch(&mut self) -> &mut Buffer {
        &mut self.scratch
    }

    /// Returns the buffer of a command that has ended, and the queue's own memory.
    pub(crate) fn both(&mut self, tag: u16) -> (Option<&mut Buffer>, &mut Buffer) {
        (self.slots[usize::from(tag)].buffer.as_mut(), &mut self.scratch)
    }

    #[inline]
    pub(crate) fn reaches(&mut self, buffer: &Buffer) -> bool {
        self.host.reaches(buffer.arena())
    }

    /// Returns how many bytes of a part of a slot's buffer one command can move.
    pub(crate) fn reach(&mut self, tag: u16, offset: u32, len: u32) -> u32 {
        let Some(buffer) = &self.slots[usize::from(tag)].buffer else { return 0 };
        self.host.reach(buffer, offset as usize, len).min(len)
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.host.due()
    }

    pub(crate) fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.host.interrupt()
    }

    pub(crate) fn clear_interrupt(&mut self) {
        self.host.clear_interrupt();
    }

    /// Returns the longest sleep that keeps the time of commands and tasks, and of commands that
    /// wait to be sent again.
    pub(crate) fn sleep_max(&self) -> Duration {
        if !self.held.is_empty() || !self.ladder.is_idle() {
            return SLEEP_SHORT;
        }
        let shortest_ms = self.timeout_ms().min(self.options.task_timeout_ms);
        SLEEP_MAX.min(Duration::from_millis(u64::from(shortest_ms / 4).max(1)))
    }

    /// Takes a slot, with the buffer for its commands.
    #[inline]
    pub(crate) fn begin(&mut self, buffer: Option<Buffer>) -> Result<u16, Option<Buffer>> {
        let Some(tag) = self.free.pop() else { return Err(buffer) };
        let slot = &mut self.slots[usize::from(tag)];
        slot.stage = Stage::Idle;
        slot.buffer = buffer;
        Ok(tag)
    }

    #[inline]
    pub(crate) fn end(&mut self, tag: u16) -> Option<Buffer> {
        let slot = &mut self.slots[usize::from(tag)];
        slot.stage = Stage::Free;
        self.free.push(tag);
        slot.buffer.take()
    }

    /// Sends a command from an idle slot. Its end is reported by [`Queue::turn`].
    #[inline]
    pub(crate) fn send(&mut self, tag: u16, command: Command) {
        let now = self.now_ms;
        let slot = &mut self.slots[usize::from(tag)];
        slot.command = command;
        slot.retries = 0;
        slot.is_late = false;
        slot.begun_ms = now;
        if self.held.is_empty() && self.sent < self.window && self.ladder.is_idle() {
            self.dispatch(tag);
        } else {
            self.hold(tag, 0);
        }
    }

    fn hold(&mut self, tag: u16, delay_ms: u32) {
        let slot = &mut self.slots[usize::from(tag)];
        slot.stage = Stage::Held;
        slot.not_before_ms = if delay_ms == 0 { 0 } else { self.now_ms.saturating_add(delay_ms) };
        self.held.push_back(tag);
    }

    /// Gives a command to the host's queue, or holds it.
    #[inline]
    fn dispatch(&mut self, tag: u16) -> bool {
        let slot = &mut self.slots[usize::from(tag)];
        let Command { cdb, is_out, place, offset, len } = slot.command;
        slot.round = self.round;
        let buffer = match place {
            Place::None => None,
            Place::Buffer => slot.buffer.as_mut(),
            Place::Scratch => Some(&mut self.scratch),
        };
        let data = buffer.map(|buffer| Data { is_out, buffer, offset: offset as usize, len });
        match self.host.queue(tag, &cdb, data) {
            Ok(()) => {
                slot.stage = Stage::Sent;
                slot.sent_ms = self.now_ms;
                self.sent += 1;
                true
            }
            Err(Refusal::Later) => {
                self.hold(tag, 0);
                false
            }
            Err(Refusal::Gone) => {
                // Reported in the next turn, like all ends.
                slot.stage = Stage::Sent;
                self.sent += 1;
                self.reports.push(Report::Ended(tag, Outcome::Gone));
                true
            }
        }
    }

    pub(crate) fn kick(&mut self) {
        self.host.kick();
    }

    /// Takes the available reports, without sleeping.
    #[inline]
    pub(crate) fn turn(&mut self, done: &mut Vec<Done>) {
        let before = done.len();
        self.host.kick();
        let mut reports = std::mem::take(&mut self.reports);
        self.host.poll(&mut reports);
        for report in reports.drain(..) {
            match report {
                Report::Ended(tag, Outcome::Good) => self.ended_well(tag, done),
                Report::Ended(tag, outcome) => self.ended_otherwise(tag, outcome, done),
                Report::Task(succeeded) => self.task_ended(succeeded),
            }
        }
        // Keeps the allocation; reports that arrived meanwhile are handled by the next turn.
        std::mem::swap(&mut self.reports, &mut reports);
        self.reports.append(&mut reports);
        let polls = if done.len() > before { 1 } else { EMPTY_POLL };
        self.polls_left = self.polls_left.saturating_sub(polls);
        if self.polls_left == 0 || !self.held.is_empty() || !self.ladder.is_idle() {
            self.tend(done);
        }
    }

    #[inline]
    fn ended_well(&mut self, tag: u16, done: &mut Vec<Done>) {
        let Some(slot) = self.slots.get_mut(usize::from(tag)) else { return };
        if slot.stage != Stage::Sent {
            return;
        }
        slot.stage = Stage::Idle;
        self.sent -= 1;
        if self.older > 0 && slot.round != self.round {
            self.older -= 1;
        }
        self.ladder.forget_fruitless();
        if self.window < self.slots.len() as u32 {
            self.good += 1;
            if self.good >= GROWTH {
                (self.good, self.window) = (0, self.window + 1);
            }
        }
        done.push(Done { tag, result: Ok(()), sense: None, short: None });
    }

    #[cold]
    fn ended_otherwise(&mut self, tag: u16, outcome: Outcome, done: &mut Vec<Done>) {
        let Some(slot) = self.slots.get_mut(usize::from(tag)) else { return };
        if slot.stage != Stage::Sent {
            return;
        }
        slot.stage = Stage::Idle;
        self.sent -= 1;
        if self.older > 0 && slot.round != self.round {
            self.older -= 1;
        }
        let mut sense = None;
        let mut short = None;
        let verdict = match outcome {
            Outcome::Good => Verdict::Good,
            Outcome::Status(status) => {
                if status == CHECK_CONDITION {
                    sense = self.sense(tag);
                }
                verdict::of_status(status, sense.as_ref())
            }
            Outcome::Short(moved) if self.takes_short => {
                short = Some(moved);
                Verdict::Good
            }
            Outcome::Short(_) | Outcome::Failed => Verdict::Fail(IoError::IO),
            Outcome::Busy => Verdict::Busy(1),
            Outcome::Terminated | Outcome::Reset
                if self.options.canary == Some(Canary::EndedIsDone) =>
            {
                Verdict::Good
            }
            Outcome::Terminated | Outcome::Reset => Verdict::Again(0),
            Outcome::Gone => Verdict::Fail(IoError::GONE),
        };
        let canary = self.options.canary;
        if sense.as_ref().is_some_and(verdict::may_have_lost_cache) {
            let disk = self.unit.name.as_str();
            warn!(name: "power_loss", disk, "the disk may have been without power: its cache may be lost");
            if canary != Some(Canary::LossNotHeard) {
                self.unit.power.note_loss();
            }
        } else if verdict::is_unseen(outcome, sense.as_ref())
            && canary != Some(Canary::UnseenIsTrusted)
        {
            self.unit.power.note_unseen();
        }
        self.look_at_clock();
        let retries_max = self.options.retries_max;
        let (timeout_ms, now_ms) = (self.timeout_ms(), self.now_ms);
        let slot = &mut self.slots[usize::from(tag)];
        let result = match verdict {
            Verdict::Good => Ok(()),
            Verdict::Again(delay_ms) if slot.retries < retries_max => {
                slot.retries += 1;
                return self.hold(tag, delay_ms);
            }
            Verdict::Once if slot.retries == 0 => {
                slot.retries = retries_max;
                return self.hold(tag, 0);
            }
            Verdict::Busy(delay_ms) => {
                // Not counted as a retry, but limited in time.
                let busy_timeout_ms = timeout_ms.saturating_mul(u32::from(retries_max) + 1);
                if now_ms.wrapping_sub(slot.begun_ms) < busy_timeout_ms {
                    self.window = self.sent.max(1);
                    self.good = 0;
                    return self.hold(tag, delay_ms);
                }
                Err(IoError::from_errno(16))
            }
            Verdict::Again(_) if slot.is_late => Err(IoError::TIMED_OUT),
            Verdict::Again(_) if matches!(outcome, Outcome::Reset | Outcome::Terminated) => {
                Err(IoError::CANCELED)
            }
            Verdict::Again(_) | Verdict::Once => Err(IoError::IO),
            Verdict::Fail(error) => Err(error),
        };
        done.push(Done { tag, result, sense, short });
    }

    fn sense(&mut self, tag: u16) -> Option<Sense> {
        let mut bytes = [0; SENSE_BYTES];
        let len = self.host.sense(tag, &mut bytes);
        Sense::decode(&bytes[..len.min(SENSE_BYTES)])
    }

    fn timeout_ms(&self) -> u32 {
        u32::try_from(self.options.timeout().as_millis()).unwrap_or(u32::MAX)
    }

    fn look_at_clock(&mut self) {
        self.now_ms = (time::now() - self.start).as_millis() as u32;
    }

    /// Does the work that no report triggers: the clock, the ladder, held commands.
    #[cold]
    pub(crate) fn tend(&mut self, done: &mut Vec<Done>) {
        self.look_at_clock();
        self.polls_left = POLLS;
        self.climb();
        if self.is_offline {
            while let Some(tag) = self.held.pop_front() {
                self.slots[usize::from(tag)].stage = Stage::Idle;
                done.push(Done { tag, result: Err(IoError::GONE), sense: None, short: None });
            }
        }
        for _ in 0..self.held.len() {
            if self.sent >= self.window || !self.ladder.is_idle() {
                break;
            }
            let Some(tag) = self.held.pop_front() else { break };
            if self.slots[usize::from(tag)].not_before_ms > self.now_ms {
                self.held.push_back(tag);
            } else if !self.dispatch(tag) {
                break;
            }
        }
    }

    fn climb(&mut self) {
        let (timeout_ms, now_ms) = (self.timeout_ms(), self.now_ms);
        if self.ladder.is_idle() {
            let late = self.slots.iter().position(|slot| {
                slot.stage == Stage::Sent && now_ms.wrapping_sub(slot.sent_ms) >= timeout_ms
            });
            let Some(victim) = late else { return };
            self.slots[victim].is_late = true;
            let disk = self.unit.name.as_str();
            warn!(name: "timeout", disk, tag = victim, timeout_ms, "a command takes too long");
            self.ladder.begin(victim as u16);
        }
        let victim = self.ladder.victim();
        let is_victim_over = self.slots[usize::from(victim)].stage != Stage::Sent;
        let task_timeout_ms = self.options.task_timeout_ms;
        let step = self.ladder.climb(&mut *self.host, is_victim_over, now_ms, task_timeout_ms);
        let disk = self.unit.name.as_str();
        if let Some(step) = step {
            warn!(name: "ladder", disk, tag = victim, ?step, "the next step for a command that takes too long");
        }
        if self.ladder.gave_up() && !self.is_offline {
            error!(name: "given_up", disk, "resets do not help: the disk is given up");
            self.is_offline = true;
        }
    }

    #[cold]
    fn task_ended(&mut self, succeeded: bool) {
        self.ladder.task_ended(succeeded);
    }

    /// Returns the number of commands whose memory the device may still access.
    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    /// Begins a round: [`Queue::older`] counts the commands sent before. The previous round must be
    /// over.
    pub(crate) fn begin_round(&mut self) {
        self.round = !self.round;
        self.older = self.sent;
    }

    /// Returns the number of commands that were sent before this round and have not been reported.
    #[inline(always)]
    pub(crate) fn older(&self) -> u32 {
        self.older
    }

    /// Ends the commands that wait to be sent, because no caller will wait for them.
    pub(crate) fn forget_held(&mut self) {
        while let Some(tag) = self.held.pop_front() {
            self.slots[usize::from(tag)].stage = Stage::Idle;
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue with {} sent and {} held", self.sent, self.held.len())
    }
}
