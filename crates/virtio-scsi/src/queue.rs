//! One thread's queue to one unit.
//!
//! Invariants:
//! - A tag is `active` from the time its command was taken until it was reported.
//! - Tag *n* has slot *n* and the descriptors that go with it. The device may access them only
//!   while the tag is active.
//! - The rings belong to the life `life`, and only this queue uses them.

use std::sync::Arc;
use std::time::Instant;

use qpair_block::{Arena, Error, ErrorKind, Result};
use qpair_pci::{LifeWord, OpenArenas, Phase};
use qpair_scsi::host::{
    Data, HostQueue, Outcome, QueueOptions, Refusal, Report, SENSE_BYTES, Task,
};
use qpair_scsi_wire::{Cdb, GOOD};
use qpair_virtio::ring::{Area, DESCRIPTOR_BYTES, Descriptor, INDIRECT, NEXT, WRITE};
use qpair_virtio::scsi::{
    self, CDB_BYTES, COMMAND_BYTES, Command, REQUEST_QUEUE, RESPONSE_BYTES, Response, address,
    response, task,
};

use crate::facts::DESCRIPTORS;
use crate::host::Inner;
use crate::virtqueue::Virtqueue;

/// The bytes of a slot: header, response, table of descriptors.
pub(crate) const SLOT_BYTES: usize = 256;
const RESPONSE_AT: usize = 64;
const TABLE_AT: usize = 176;
const _: () = assert!(COMMAND_BYTES <= RESPONSE_AT && RESPONSE_AT + RESPONSE_BYTES <= TABLE_AT);
const _: () = assert!(TABLE_AT + DESCRIPTORS as usize * DESCRIPTOR_BYTES <= SLOT_BYTES);
/// The offset in a slot of the part of a response with its code.
const CODE_AT: usize = RESPONSE_AT + 8;
/// A response code that the device never gives.
const UNANSWERED: u8 = 0xFF;
/// The number of polls between two checks for events.
const POLLS: u32 = 1024;

pub(crate) struct ScsiQueue {
    rings: Option<Virtqueue>,
    /// The life that the rings belong to.
    life: u64,
    number: u16,
    has_indirect: bool,
    active: Box<[bool]>,
    /// The ids by which tasks name commands, by tag; the next field has the bytes of sense data.
    ids: Box<[u64]>,
    sense_bytes: Box<[u8]>,
    /// The number of requested bytes, by tag.
    lens: Box<[u32]>,
    count: u32,
    /// Set if the device violated the protocol: its rings are no longer used.
    is_broken: bool,
    task: Option<u16>,
    seen: LifeWord,
    due: Option<Instant>,
    polls_left: u32,
    address: [u8; 8],
    arenas: OpenArenas,
    inner: Arc<Inner>,
}

impl ScsiQueue {
    pub(crate) fn open(
        inner: &Arc<Inner>,
        target: u8,
        unit: u16,
        options: &QueueOptions<'_>,
    ) -> Result<Self> {
        let limit = |what: String, hint: String| {
            Error::new(ErrorKind::Limit, format!("{}: {what}", inner.name())).hint(hint)
        };
        let depth_max = inner.facts.depth_max();
        let depth = u16::try_from(options.depth).ok().filter(|depth| *depth <= depth_max);
        let depth = usize::from(depth.ok_or_else(|| {
            limit(format!("a queue of {} commands", options.depth), format!("at most {depth_max}"))
        })?);
        let arenas = OpenArenas::new(&inner.maps, options.arenas)?;
        let number = inner.lives().lease().ok_or_else(|| {
            let queues = inner.facts.queues;
            limit(
                "all request queues are in use".to_owned(),
                format!("at most {queues} channels can be open at once, and a scan takes one too; QEMU has num_queues=N"),
            )
        })?;
        let mut queue = Self {
            rings: None,
            life: 0,
            number,
            has_indirect: inner.facts.has_indirect(),
            active: vec![false; depth].into(),
            ids: vec![0; depth].into(),
            sense_bytes: vec![0; depth].into(),
            lens: vec![0; depth].into(),
            count: 0,
            is_broken: false,
            task: None,
            seen: LifeWord::NEVER,
            due: None,
            polls_left: POLLS,
            address: address(target, unit),
            arenas,
            inner: inner.clone(),
        };
        queue.turn_over(inner.state(), &mut Vec::new());
        Ok(queue)
    }

    /// Directs the commands that are taken from now on to another unit.
    pub(crate) fn aim(&mut self, target: u8, unit: u16) {
        self.address = address(target, unit);
    }

    /// Handles changes of the device's state since the last call.
    #[cold]
    fn turn_over(&mut self, word: LifeWord, reports: &mut Vec<Report>) {
        self.seen = word;
        let is_gone = word.phase() == Phase::Gone;
        if word.life() != self.life || is_gone {
            let outcome = if is_gone { Outcome::Gone } else { Outcome::Reset };
            for (tag, active) in (0u16..).zip(&mut self.active) {
                if std::mem::take(active) {
                    reports.push(Report::Ended(tag, outcome));
                }
            }
            if self.task.take().is_some() {
                reports.push(Report::Task(false));
            }
            self.life = word.life();
            self.rings = None;
            self.is_broken = false;
        }
        if word.phase() == Phase::Running && self.rings.is_none() {
            self.rings = self.inner.lives().take(self.number, self.life);
        }
    }

    #[inline]
    fn take_all(&mut self, reports: &mut Vec<Report>) {
        if self.is_broken {
            return;
        }
        let Some(rings) = &mut self.rings else { return };
        loop {
            let id = match rings.take() {
                Ok(None) => return,
                Ok(Some(used)) if self.has_indirect => used.id,
                Ok(Some(used)) if used.id.is_multiple_of(DESCRIPTORS.into()) => {
                    used.id / u32::from(DESCRIPTORS)
                }
                Ok(Some(_)) | Err(_) => break,
            };
            let Some(active) = self.active.get_mut(id as usize) else { break };
            let tag = id as u16;
            let at = rings.slots_at() + usize::from(tag) * SLOT_BYTES;
            let memory = rings.bytes();
            let found =
                Response::decode(memory.load_u64(at + RESPONSE_AT), memory.load_u32(at + CODE_AT));
            // The command was answered twice, or never sent, or has not ended yet (the device has
            // not written its response).
            if !*active || found.response == UNANSWERED {
                break;
            }
            *active = false;
            self.sense_bytes[usize::from(tag)] = found.sense_bytes.min(SENSE_BYTES as u32) as u8;
            let outcome = outcome_of(&found, self.lens[usize::from(tag)]);
            reports.push(Report::Ended(tag, outcome));
        }
        self.is_broken = true;
        self.inner.begin_reset();
    }

    #[cold]
    fn task_answer(&mut self) -> Option<u8> {
        let number = self.task?;
        let inner = &self.inner;
        let answer = inner.with_core(self.seen, |core| {
            inner.take_core(core);
            core.answer(number)
        });
        answer.flatten()
    }
}

fn outcome_of(found: &Response, asked: u32) -> Outcome {
    match found.response {
        response::OK if found.status != GOOD => Outcome::Status(found.status),
        response::OK if found.residual == 0 => Outcome::Good,
        response::OK => match asked.checked_sub(found.residual) {
            Some(moved) => Outcome::Short(moved),
            None => Outcome::Failed,
        },
        response::ABORTED | response::RESET => Outcome::Terminated,
        response::BAD_TARGET | response::INCORRECT_LUN => Outcome::Gone,
        response::BUSY => Outcome::Busy,
        _ => Outcome::Failed,
    }
}

impl HostQueue for ScsiQueue {
    #[inline]
    fn reaches(&mut self, arena: &Arena) -> bool {
        self.arenas.iova_of(arena.id()).is_some()
    }

    #[inline]
    fn queue(
        &mut self,
        tag: u16,
        cdb: &Cdb,
        data: Option<Data<'_>>,
    ) -> std::result::Result<(), Refusal> {
        if self.seen.phase() == Phase::Gone {
            return Err(Refusal::Gone);
        }
        let is_usable = self.seen.phase() == Phase::Running && !self.is_broken;
        let Some(rings) = self.rings.as_mut().filter(|_| is_usable) else {
            return Err(Refusal::Later);
        };
        let index = usize::from(tag);
        let data = match data {
            None => None,
            Some(Data { is_out, buffer, offset, len }) => {
                let iova = self.arenas.iova_of_buffer(buffer).ok_or(Refusal::Gone)?;
                Some((is_out, iova + offset as u64, len))
            }
        };
        let Some(active) = self.active.get_mut(index) else { return Err(Refusal::Gone) };
        *active = true;
        self.count = self.count.wrapping_add(1);
        let id = u64::from(self.count) << 32 | u64::from(self.number) << 16 | u64::from(tag);
        self.ids[index] = id;
        self.lens[index] = data.map_or(0, |(_, _, len)| len);
        let mut padded = [0; CDB_BYTES];
        padded[..cdb.padded().len()].copy_from_slice(cdb.padded());
        let header = Command { address: self.address, id, cdb: padded };
        let at = rings.slots_at() + index * SLOT_BYTES;
        let (header_iova, response_iova) = (rings.iova_of(at), rings.iova_of(at + RESPONSE_AT));
        let table_iova = rings.iova_of(at + TABLE_AT);
        let areas = rings.areas();
        let memory = areas.descriptors.bytes;
        memory.copy_from(at, &header.encode());
        memory.store_u32(at + CODE_AT, u32::from(UNANSWERED) << 24);

        // The device reads header and data, and writes response and data.
        let (table, first) = match self.has_indirect {
            true => (Area::new(memory, at + TABLE_AT), 0),
            false => (areas.descriptors, tag * DESCRIPTORS),
        };
        let put = |place: u16, address, len: u32, flags, next: u16| {
            let next = first + next;
            Descriptor { address, len, flags, next }.store(table, first + place);
        };
        put(0, header_iova, COMMAND_BYTES as u32, NEXT, 1);
        let count = match data {
            None => {
                put(1, response_iova, RESPONSE_BYTES as u32, WRITE, 0);
                2
            }
            Some((true, address, len)) => {
                put(1, address, len, NEXT, 2);
                put(2, response_iova, RESPONSE_BYTES as u32, WRITE, 0);
                3
            }
            Some((false, address, len)) => {
                put(1, response_iova, RESPONSE_BYTES as u32, WRITE | NEXT, 2);
                put(2, address, len, WRITE, 0);
                3
            }
        };
        let head = match self.has_indirect {
            true => {
                let len = count * DESCRIPTOR_BYTES as u32;
                let indirect = Descriptor { address: table_iova, len, flags: INDIRECT, next: 0 };
                indirect.store(areas.descriptors, tag);
                tag
            }
            false => first,
        };
        rings.offer(head);
        Ok(())
    }

    #[inline]
    fn kick(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.publish();
        }
    }

    #[inline]
    fn poll(&mut self, reports: &mut Vec<Report>) {
        let word = self.inner.state();
        if word != self.seen || self.rings.is_none() {
            self.turn_over(word, reports);
        }
        // The device ends commands before it answers the task that ended them. So completions are
        // taken after the answer.
        let answer = if self.task.is_some() { self.task_answer() } else { None };
        if let Some(stepper) = &self.inner.stepper {
            self.due = stepper.step(REQUEST_QUEUE + self.number).due;
        }
        self.take_all(reports);
        if let Some(answer) = answer {
            self.task = None;
            let is_done = matches!(answer, response::OK | response::FUNCTION_SUCCEEDED);
            reports.push(Report::Task(is_done));
        }
        self.polls_left -= 1;
        if self.polls_left == 0 {
            self.polls_left = POLLS;
            self.inner.look();
        }
    }

    fn sense(&mut self, tag: u16, into: &mut [u8; SENSE_BYTES]) -> usize {
        let len = usize::from(self.sense_bytes.get(usize::from(tag)).copied().unwrap_or(0));
        let Some(rings) = &mut self.rings else { return 0 };
        let at = rings.slots_at() + usize::from(tag) * SLOT_BYTES + RESPONSE_AT;
        rings.bytes().copy_to(at + Response::SENSE_AT, &mut into[..len]);
        len
    }

    fn begin_task(&mut self, task: Task) -> std::result::Result<(), Refusal> {
        let (what, id) = match task {
            Task::Abort(tag) => {
                (task::ABORT_TASK, self.ids.get(usize::from(tag)).copied().unwrap_or(0))
            }
            Task::LunReset => (task::LUN_RESET, 0),
            Task::TargetReset => (task::NEXUS_RESET, 0),
        };
        let message = scsi::Task { what, address: self.address, id };
        let before = self.task.take();
        let begun = self.inner.with_core(self.seen, |core| {
            // Abandon a task whose time is up.
            before.into_iter().for_each(|number| core.abandon(number));
            core.begin(&message)
        });
        match begun {
            Some(Some(number)) => {
                self.task = Some(number);
                Ok(())
            }
            Some(None) => Err(Refusal::Later),
            None => {
                self.task = before;
                Err(Refusal::Later)
            }
        }
    }

    fn begin_reset(&mut self) {
        self.inner.begin_reset();
    }

    fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl Drop for ScsiQueue {
    fn drop(&mut self) {
        if let Some(number) = self.task.take() {
            // If the core is locked now, the slot stays taken until the next reset.
            self.inner.with_core(self.seen, |core| core.abandon(number));
        }
        let is_idle = !self.active.contains(&true) && !self.is_broken;
        let rings = self.rings.take().map(|rings| (self.life, rings));
        self.inner.lives().give_back(self.number, rings, is_idle);
    }
}
