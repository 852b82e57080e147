//! A request queue: commands for any of the targets.
//!
//! Invariants:
//! - a slot's list is in the slot, or with the lane of the slot's target;
//! - a target slot whose unit was removed takes no commands, and is cleared when its lane has no
//!   commands left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use qpair_block::{Arena, Buffer, Error, Op, Result, Segment};
use qpair_scsi_unit::virtio::Ended;
use qpair_scsi_unit::{Access, Reply, Step, Work};
use qpair_scsi_wire::luns::Lun;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_virtio::ring::{Broken, Segment as Named};
use qpair_virtio::scsi::{COMMAND_BYTES, Command, RESPONSE_BYTES, place_of, response};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::controller::{Controller, TARGETS};
use super::unit::{Hold, Unit};
use super::visit::{Member, Visit};
use crate::disk::add;
use crate::memory::GuestMemory;
use crate::queue::{
    End, Guest, GuestRing, Head, Job, Lane, SEGMENTS_MAX, Verbs, put, segments_of, take,
};

#[derive(Debug, Default)]
struct Slot {
    /// The place of the response, while the head is in use.
    place: Option<Head>,
    /// The target and the driver's tag of the command, while it is with a lane.
    under_way: Option<(u8, u64)>,
    /// The bytes of data that there is memory for, the bytes that move if the command succeeds, and
    /// whether they go to the guest.
    data_bytes: u32,
    moves_bytes: u32,
    is_in: bool,
    /// Accesses that come after the one under way, the last one first.
    more: Vec<Access>,
    /// The response that task management gives the command, if it ends the command.
    response: Option<u8>,
    list: Option<Buffer>,
}

/// A target slot of this queue.
struct TargetSlot {
    /// `None` if the device could not open a channel.
    lane: Option<Lane>,
    // Dropped after the lane: a thread that waits for the hold may then change the device, and no
    // channel may see that.
    hold: Hold,
    is_leaving: bool,
}

/// Pending task management: a visit that this queue has not ended, and the heads of its commands.
struct PendingTask {
    visit: Arc<Visit>,
    heads: Vec<u16>,
}

pub(super) struct RequestVerbs {
    controller: Arc<Controller>,
    member: Arc<Member>,
    /// The value of the member's counter of news that this queue has handled.
    seen: u64,
    target_slots: [Option<TargetSlot>; TARGETS],
    arena: Arc<Arena>,
    size: u16,
    /// The set of descriptors to poll: those of the lanes, and the member's.
    set: OwnedFd,
    slots: Box<[Slot]>,
    pending: Vec<PendingTask>,
    /// The heads that were given back while task management is pending.
    given: Vec<u16>,
    /// The heads whose next access is to begin.
    again: Vec<u16>,
    named: Vec<Named>,
    segments: Vec<Segment>,
}

fn no_set(errno: rustix::io::Errno) -> Error {
    Error::os(errno.into(), "creating an epoll set for a queue")
}

impl RequestVerbs {
    /// Opens channels to all targets on the calling thread.
    ///
    /// # Errors
    /// `Limit` if there are no more descriptors.
    pub(super) fn open(ring: &GuestRing, controller: Arc<Controller>) -> Result<Self> {
        let arena = ring.memory().arena(ring.size().into(), SEGMENTS_MAX);
        let slot = |_| Slot { list: arena.lease(), ..Slot::default() };
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(no_set)?;
        let member = Arc::new(Member::new()?);
        let (wake, data) = (member.wake.as_fd(), EventData::new_u64(0));
        epoll::add(&set, wake, data, EventFlags::IN).map_err(no_set)?;
        let mut verbs = Self {
            seen: member.news(),
            target_slots: [const { None }; TARGETS],
            size: ring.size(),
            slots: (0..ring.size()).map(slot).collect(),
            arena,
            set,
            pending: Vec::new(),
            given: Vec::new(),
            again: Vec::new(),
            named: Vec::with_capacity(SEGMENTS_MAX),
            segments: Vec::with_capacity(SEGMENTS_MAX),
            member,
            controller,
        };
        // The queue joins first, so that it misses no later change.
        verbs.controller.join(&verbs.member);
        verbs.attach();
        Ok(verbs)
    }

    /// Opens a slot for each new target, and marks the slots whose target was removed.
    #[cold]
    fn attach(&mut self) {
        for (target_slot, unit) in self.target_slots.iter_mut().zip(self.controller.units_now()) {
            if let Some(target_slot) = target_slot {
                let is_its = |unit: &Arc<Unit>| Arc::ptr_eq(unit, target_slot.hold.unit());
                target_slot.is_leaving = !unit.as_ref().is_some_and(is_its);
                continue;
            }
            let Some(unit) = unit else { continue };
            let mut lane = Lane::open(&unit.disk, &self.arena, self.size).ok();
            // If a lane's descriptor is not in the set, the lane is polled all the time.
            if let Some(lane) = &mut lane {
                let is_lost = match lane.completion_fd() {
                    Ok(Some(fd)) => {
                        epoll::add(&self.set, fd, EventData::new_u64(0), EventFlags::IN).is_err()
                    }
                    _ => false,
                };
                if is_lost {
                    lane.be_unsignalled();
                }
            }
            *target_slot = Some(TargetSlot { hold: Hold::new(unit), lane, is_leaving: false });
        }
    }

    /// Clears the slots of targets that have gone.
    fn detach(&mut self) {
        for target_slot in &mut self.target_slots {
            let Some(TargetSlot { lane, is_leaving: true, .. }) = target_slot else { continue };
            if let Some(lane) = lane {
                if lane.busy() > 0 {
                    continue;
                }
                if let Ok(Some(fd)) = lane.completion_fd() {
                    // Another lane may share the open file, so closing the descriptor does not
                    // remove it from the set.
                    let _ = epoll::delete(&self.set, fd);
                }
            }
            *target_slot = None;
        }
    }

    /// Handles the visits and the changes of targets that other threads have announced.
    #[cold]
    fn look(&mut self, ring: &GuestRing, guest: Guest<'_>) {
        let news = self.member.news();
        self.attach();
        // The queue first takes the commands that came before a task.
        if ring.has_more(guest) {
            return;
        }
        self.seen = news;
        for visit in self.member.take() {
            let mut heads = Vec::new();
            for (head, slot) in (0..).zip(&mut self.slots) {
                let Some((target, id)) = slot.under_way else { continue };
                if visit.finds(target, id) && visit.response.is_some() {
                    slot.response = visit.response;
                    heads.push(head);
                }
            }
            self.pending.push(PendingTask { visit, heads });
        }
    }

    /// Whether a pending task has no commands left to wait for.
    fn has_ended_task(&self) -> bool {
        self.pending.iter().any(|pending| pending.heads.is_empty())
    }

    /// Ends the tasks all of whose commands were given back to the guest.
    #[cold]
    fn end_tasks(&mut self) {
        let given = std::mem::take(&mut self.given);
        self.pending.retain_mut(|PendingTask { visit, heads }| {
            heads.retain(|head| !given.contains(head));
            if heads.is_empty() {
                visit.end();
            }
            !heads.is_empty()
        });
    }

    /// Begins a command, or returns its outcome.
    fn carry_out(
        &mut self,
        head: u16,
        named: &mut [Named],
        memory: &GuestMemory,
    ) -> std::result::Result<(), Ended> {
        let mut header = [0; COMMAND_BYTES];
        if !take(memory, named, &mut header) {
            return Err(Ended::fail(response::FAILURE));
        }
        let command = Command::decode(&header);
        let (place, id) = (place_of(command.address), command.id);
        let (target, lun) = place
            .and_then(|(target, unit)| Some((target, Lun::of(unit)?)))
            .ok_or(Ended::fail(response::BAD_TARGET))?;
        let Self { target_slots, slots, segments, .. } = self;
        let target_slot = target_slots.get_mut(usize::from(target)).and_then(Option::as_mut);
        let target_slot = target_slot.filter(|target_slot| !target_slot.is_leaving);
        let TargetSlot { hold, lane, .. } = target_slot.ok_or(Ended::fail(response::BAD_TARGET))?;
        let lane = lane.as_mut().ok_or(Ended::fail(response::TARGET_FAILURE))?;
        lane.count_taken();
        let slot = &mut slots[usize::from(head)];
        let is_out = named.iter().any(|part| !part.is_written && part.len > 0);
        let is_both = is_out && named.iter().any(|part| part.is_written && part.len > 0);
        segments.clear();
        let data_bytes = segments_of(memory, named, !is_out, segments);
        let data_bytes = data_bytes.and_then(|len| u32::try_from(len).ok()).filter(|_| !is_both);
        slot.data_bytes = data_bytes.ok_or(Ended::fail(response::FAILURE))?;
        slot.is_in = !is_out;
        let unit = hold.unit();
        let sent = |bytes: &mut [u8]| take(memory, named, bytes);
        let work = match unit.logical.begin(lun, &command.cdb[..16], unit.blocks(), sent) {
            Step::Work(work) => work,
            Step::Ended(Reply::Good(taken)) => return Err(Ended::good(taken)),
            Step::Ended(Reply::Check(sense)) => return Err(Ended::check(sense)),
            Step::Ended(Reply::Data(_)) if is_out => return Err(Ended::good(0)),
            Step::Ended(Reply::Data(bytes)) => {
                let moved = put(memory, named, &bytes);
                let is_whole = moved == bytes.len();
                let response = if is_whole { response::OK } else { response::OVERRUN };
                return Err(Ended { response, ..Ended::good(moved as u32) });
            }
        };
        let (access, list) = match work {
            Work::Move(access) => {
                if slot.data_bytes < access.len_bytes || is_out != (access.op == Op::Write) {
                    return Err(Ended::fail(response::OVERRUN));
                }
                let mut list = slot.list.take().ok_or(Ended::fail(response::FAILURE))?;
                if list.fill(segments.iter().copied()).is_err() {
                    slot.list = Some(list);
                    return Err(Ended::fail(response::FAILURE));
                }
                slot.moves_bytes = access.len_bytes;
                (access, Some(list))
            }
            Work::Each { mut accesses, taken } => {
                let Some(access) = accesses.pop() else { return Err(Ended::good(taken)) };
                (slot.more, slot.moves_bytes) = (accesses, taken);
                (access, None)
            }
            Work::Fill { .. } => return Err(illegal(Code::INVALID_FIELD_IN_LIST)),
            Work::Compare { .. } => return Err(illegal(Code::INVALID_OPCODE)),
        };
        slot.under_way = Some((target, id));
        lane.begin(head, job_of(access), list);
        Ok(())
    }
}

fn illegal(code: Code) -> Ended {
    Ended::check(Sense::new(Key::IllegalRequest, code))
}

fn job_of(access: Access) -> Job {
    let Access { op, durable, offset_bytes, len_bytes } = access;
    Job { op, durable, offset_bytes, len_bytes }
}

/// Gives a head back.
fn answer(slot: &mut Slot, head: u16, ended: Ended, ring: &mut GuestRing, guest: Guest<'_>) {
    let Some(place) = slot.place.take() else { return };
    let response = slot.response.take().unwrap_or(ended.response);
    place.store(guest.memory, &Ended { response, ..ended }.encode(slot.data_bytes));
    let data_bytes = if slot.is_in { ended.moved } else { 0 };
    slot.under_way = None;
    slot.more.clear();
    ring.give(head, RESPONSE_BYTES as u32 + data_bytes, guest);
}

impl Verbs for RequestVerbs {
    fn begin(
        &mut self,
        head: u16,
        ring: &mut GuestRing,
        guest: Guest<'_>,
    ) -> std::result::Result<(), Broken> {
        if self.member.news() != self.seen {
            self.attach();
        }
        let mut named = std::mem::take(&mut self.named);
        let walked = ring.walk(head, guest, &mut named);
        let place = walked.and_then(|()| {
            Head::take(guest.memory, &mut named, RESPONSE_BYTES as u32).ok_or(Broken)
        });
        let result = place.map(|place| {
            let slot = &mut self.slots[usize::from(head)];
            (slot.place, slot.data_bytes, slot.moves_bytes) = (Some(place), 0, 0);
            if let Err(ended) = self.carry_out(head, &mut named, guest.memory) {
                answer(&mut self.slots[usize::from(head)], head, ended, ring, guest);
            }
        });
        self.named = named;
        result
    }

    fn settle(&mut self, ring: &mut GuestRing, guest: Guest<'_>) {
        // All commands that had ended before the last check are published by now.
        if self.has_ended_task() {
            self.end_tasks();
        }
        let Self { target_slots, slots, again, given, pending, .. } = self;
        let has_pending = !pending.is_empty();
        for target_slot in target_slots.iter_mut().flatten() {
            let Some(lane) = &mut target_slot.lane else { continue };
            let unit = target_slot.hold.unit();
            lane.settle(|End { head, job, list, result }| {
                let slot = &mut slots[usize::from(head)];
                if list.is_some() {
                    slot.list = list;
                }
                let ended = match result {
                    // A command that a task is to end does not continue.
                    Ok(()) if !slot.more.is_empty() && slot.response.is_none() => {
                        return again.push(head);
                    }
                    Ok(()) => Ended::good(slot.moves_bytes),
                    Err(error) => {
                        let Job { op, offset_bytes, .. } = job;
                        Ended::check(unit.logical.failure(op, offset_bytes, error.kind))
                    }
                };
                answer(slot, head, ended, ring, guest);
                if has_pending {
                    given.push(head);
                }
            });
            for head in again.drain(..) {
                if let Some(access) = slots[usize::from(head)].more.pop() {
                    lane.begin(head, job_of(access), None);
                }
            }
        }
        if self.member.news() != self.seen {
            self.look(ring, guest);
            self.detach();
        } else if self.target_slots.iter().flatten().any(|target_slot| target_slot.is_leaving) {
            self.detach();
        }
    }

    fn published(&mut self, is_called: bool) {
        if is_called
            && let Some(TargetSlot { lane: Some(lane), .. }) =
                self.target_slots.iter().flatten().next()
        {
            add(&lane.counters().calls, 1);
        }
        if !self.given.is_empty() {
            self.end_tasks();
        }
    }

    fn rest(&mut self) -> bool {
        for target_slot in self.target_slots.iter_mut().flatten() {
            if let Some(lane) = &mut target_slot.lane {
                lane.rest();
            }
        }
        self.member.wake.clear();
        // There may be news from before the signal was cleared.
        self.member.news() == self.seen && !self.has_ended_task()
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(Some(self.set.as_fd()))
    }

    fn is_unsignalled(&self) -> bool {
        let mut lanes =
            self.target_slots.iter().flatten().filter_map(|target_slot| target_slot.lane.as_ref());
        lanes.any(Lane::is_unsignalled)
    }
}

impl Drop for RequestVerbs {
    fn drop(&mut self) {
        self.controller.leave(&self.member);
        self.pending.iter().for_each(|pending| pending.visit.end());
    }
}
