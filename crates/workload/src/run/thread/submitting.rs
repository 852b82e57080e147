//! Submits requests to the devices.

use qpair_block::Request;

use crate::job::{Direction, Verbs};

use super::{Candidate, EBUSY, Kind, Stamps, Thread, nanos};

impl Thread<'_> {
    #[inline]
    pub(super) fn submit(&mut self, candidate: Candidate, now: u64) {
        let Candidate { direction, target, offset_bytes, len_bytes, due_ns, .. } = candidate;
        let Some(tag) = self.free.pop() else { return };
        let slot = &mut self.slots[tag as usize];
        let start_ns = now.max(due_ns);
        let intended_ns = if due_ns == 0 { start_ns } else { due_ns };
        if due_ns > 0 {
            self.record.late(start_ns - due_ns);
        }
        let only_reads = !self.job.writes();
        slot.kind = match direction {
            Direction::Read => Kind::Read,
            Direction::Write if only_reads => Kind::Read,
            Direction::Write => Kind::Write,
            Direction::Trim => Kind::Trim,
        };
        // Reads of a job that verifies its writes may meet blocks that were never written.
        let mixed = matches!(self.job.verbs, Verbs::Mixed { .. });
        slot.is_checked =
            candidate.reads_back || !(only_reads && mixed && direction == Direction::Read);
        slot.stamps = Stamps { intended_ns, start_ns, issued_ns: start_ns };
        (slot.offset_bytes, slot.len_bytes, slot.target) = (offset_bytes, len_bytes, target);
        if let Some(log) = &mut self.iolog {
            let name = &self.targets[target as usize].name;
            log.request(start_ns, name, slot.kind.fio_word(), offset_bytes, len_bytes);
        }
        if slot.kind == Kind::Trim
            && let Some(chunks) = self.chunks.get_mut(target as usize)
        {
            chunks.forget(offset_bytes, len_bytes);
        }
        let request = match slot.kind {
            Kind::Trim => Request::discard(offset_bytes, len_bytes, tag.into()),
            Kind::Flush => Request::flush(tag.into()),
            Kind::Read | Kind::Write => {
                let Some(mut buffer) = slot.buffer.take() else { return };
                if slot.kind == Kind::Read {
                    slot.filled_bytes = 0;
                    Request::read(offset_bytes, len_bytes, buffer, tag.into())
                } else {
                    if let Some(chunks) = self.chunks.get_mut(target as usize) {
                        chunks
                            .fill(offset_bytes, len_bytes, |at, bytes| buffer.copy_from(at, bytes));
                    } else {
                        self.fill.fill(&mut buffer, &mut slot.filled_bytes, len_bytes);
                    }
                    Request {
                        force_unit_access: self.job.force_unit_access,
                        atomic: self.job.atomic,
                        ..Request::write(offset_bytes, len_bytes, buffer, tag.into())
                    }
                }
            }
        };
        self.hand_over(tag, request);
        if self.job.flush_blocks > 0 && self.slots[tag as usize].kind == Kind::Write {
            self.writes_since_flush += 1;
            if self.writes_since_flush >= self.job.flush_blocks {
                self.writes_since_flush = 0;
                self.flush_due = Some(target);
            }
        }
        if !self.job.think_time.is_zero() {
            self.since_pause += 1;
            if self.since_pause >= self.job.think_time_blocks.max(1) {
                self.since_pause = 0;
                self.pause();
            }
        }
    }

    /// Passes a request to its channel. The channel has room, because it holds no more requests
    /// than there are tags.
    #[inline]
    pub(super) fn hand_over(&mut self, tag: u32, request: Request) {
        let target = self.slots[tag as usize].target as usize;
        match self.channels.submit(target, request) {
            Ok(()) => {
                self.in_flight += 1;
                self.pending.push(tag);
            }
            Err(request) => {
                self.slots[tag as usize].buffer = request.buffer;
                self.free.push(tag);
                self.fail(EBUSY, format!("{} took no request", self.targets[target].name));
            }
        }
    }

    /// Submits a flush, which needs a free tag. The flush covers writes that have completed; those
    /// in flight are covered by the next one.
    pub(super) fn submit_flush(&mut self, target: u32, now: u64) {
        if let Some(tag) = self.free.pop() {
            let slot = &mut self.slots[tag as usize];
            slot.kind = Kind::Flush;
            slot.target = target;
            slot.stamps = Stamps { intended_ns: now, start_ns: now, issued_ns: now };
            if let Some(log) = &mut self.iolog {
                log.request(now, &self.targets[target as usize].name, Kind::Flush.fio_word(), 0, 0);
            }
            self.hand_over(tag, Request::flush(tag.into()));
        }
    }

    pub(super) fn pause(&mut self) {
        let now = self.kick();
        let spin_end = now + nanos(self.job.think_time_spin);
        while self.common.now_ns() < spin_end && !self.common.is_stopped() {
            std::hint::spin_loop();
        }
        self.pause_until_ns = now + nanos(self.job.think_time);
    }

    /// Submits pending requests. Returns the time after that.
    #[inline]
    pub(super) fn kick(&mut self) -> u64 {
        self.channels.kick();
        let now = self.common.now_ns();
        if !self.pending.is_empty() {
            self.record.submitted(self.pending.len() as u32, self.in_flight);
            for tag in self.pending.drain(..) {
                self.slots[tag as usize].stamps.issued_ns = now;
            }
        }
        now
    }

    /// Counts a batch that was submitted by the call that waits.
    #[inline]
    pub(super) fn settle_pending_without_stamps(&mut self) {
        if !self.pending.is_empty() {
            self.record.submitted(self.pending.len() as u32, self.in_flight);
            self.pending.clear();
        }
    }
}
