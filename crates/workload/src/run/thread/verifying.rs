//! Verification of blocks by a job's thread.

use std::sync::atomic::Ordering;

use qpair_block::{Buffer, Request};

use crate::job::Direction;
use crate::report::VerifyError;

use super::super::verify::dump;
use super::{Candidate, EILSEQ, ERRORS_TOLD, Kind, LONG, Record, Thread};

impl Thread<'_> {
    /// Releases the chunks of a completed request, and checks the content that was read.
    pub(super) fn check(&mut self, tag: u32, arrived: bool) {
        let slot = &self.slots[tag as usize];
        let target = slot.target as usize;
        let chunks = &mut self.chunks[target];
        chunks.set_busy(slot.offset_bytes, slot.len_bytes, false);
        if slot.kind != Kind::Read || !arrived || !slot.is_checked {
            return;
        }
        let Some(buffer) = &slot.buffer else { return };
        let bytes = &buffer.as_slice()[..slot.len_bytes as usize];
        // A job that writes knows what it wrote. A job that only reads accepts any write, with the
        // same seed or another.
        let (looked_at, mut wrong) = chunks.check(slot.offset_bytes, bytes, self.job.writes());
        self.verify.blocks += looked_at;
        let len_bytes = slot.len_bytes;
        if self.job.verify.as_ref().is_some_and(|verify| verify.dump) {
            let room = ERRORS_TOLD.saturating_sub(self.verify.errors.len());
            for (offset_bytes, what) in wrong.iter_mut().take(room) {
                let at = (*offset_bytes - slot.offset_bytes) as usize;
                let received = &bytes[at..(at + chunks.chunk_bytes()).min(bytes.len())];
                let expected = chunks.expected(*offset_bytes);
                let name = &self.targets[target].name;
                if let Err(cause) = dump(name, *offset_bytes, received, expected.as_deref()) {
                    what.push_str(&format!(" (its bytes could not be dumped: {cause})"));
                }
            }
        }
        for (offset_bytes, what) in wrong {
            self.wrong(target, offset_bytes, len_bytes, what);
        }
    }

    /// Adds a completed write to the backlog, and starts reading back when it is long enough.
    pub(super) fn add_to_backlog(&mut self, write: (u32, u64, u32)) {
        let Some(verify) = self.job.verify.as_ref().filter(|verify| verify.backlog > 0) else {
            return;
        };
        self.backlog.push_back(write);
        if self.read_back_now == 0 && self.backlog.len() >= verify.backlog as usize {
            self.read_back_now = match verify.backlog_batch {
                0 => self.backlog.len(),
                batch => (batch as usize).min(self.backlog.len()),
            };
        }
    }

    /// Returns the next write to read back. A write whose blocks are being written again is
    /// skipped, because the newer write will be in the backlog.
    pub(super) fn next_of_backlog(&mut self) -> Option<Candidate> {
        while self.read_back_now > 0 {
            self.read_back_now -= 1;
            let (target, offset_bytes, len_bytes) = self.backlog.pop_front()?;
            let chunks = &mut self.chunks[target as usize];
            if !chunks.is_busy(offset_bytes, len_bytes) {
                chunks.set_busy(offset_bytes, len_bytes, true);
                let direction = Direction::Read;
                return Some(Candidate {
                    direction,
                    target,
                    offset_bytes,
                    len_bytes,
                    due_ns: 0,
                    reads_back: true,
                });
            }
        }
        None
    }

    pub(super) fn wrong(&mut self, target: usize, offset_bytes: u64, len_bytes: u32, what: String) {
        let device = self.targets[target].name.clone();
        self.verify.wrong += 1;
        let error = || format!("verify: {device} at offset {offset_bytes}: {what}");
        if self.job.tolerance.wrong_blocks {
            self.pass(EILSEQ, error());
        } else if self.job.verify.as_ref().is_some_and(|verify| verify.fatal) {
            self.fail(EILSEQ, error());
        }
        if self.verify.errors.len() < ERRORS_TOLD {
            self.verify.errors.push(VerifyError { device, offset_bytes, len_bytes, what });
        }
    }

    /// Reads and checks all written blocks. This is not part of the measurement.
    pub(super) fn verify_written(&mut self) {
        let Some(verify) = self.job.verify.as_ref().filter(|verify| verify.after) else { return };
        if !self.job.writes() {
            return;
        }
        self.shown.phase.store(3, Ordering::Relaxed);
        let mut record = Record::new(self.measured, LONG);
        std::mem::swap(&mut self.record, &mut record);
        let max = self.slots.first().and_then(|slot| slot.buffer.as_ref().map(Buffer::len));
        for target in 0..self.targets.len() {
            // With a backlog, read only the writes that were not read back yet.
            let ranges = match verify.backlog {
                0 => self.chunks[target].written(max.unwrap_or(0) as u32),
                _ => {
                    let of_target = self.backlog.iter().filter(|write| write.0 as usize == target);
                    of_target.map(|write| (write.1, write.2)).collect()
                }
            };
            let mut ranges = ranges.into_iter().peekable();
            while (ranges.peek().is_some() || self.in_flight > 0)
                && self.error.is_none()
                && !self.common.is_stopped()
            {
                while !self.free.is_empty()
                    && let Some((offset_bytes, len_bytes)) = ranges.next()
                {
                    self.read_back(target, offset_bytes, len_bytes);
                }
                self.wait(1, self.wait_limit());
                self.answer_verifying();
                self.pending.clear();
                let now = self.common.now_ns();
                self.take(now);
            }
        }
        while self.in_flight > 0 {
            self.wait(1, None);
            let now = self.common.now_ns();
            self.take(now);
        }
        self.record = record;
    }

    pub(super) fn read_back(&mut self, target: usize, offset_bytes: u64, len_bytes: u32) {
        let Some(tag) = self.free.pop() else { return };
        let slot = &mut self.slots[tag as usize];
        let Some(buffer) = slot.buffer.take() else { return };
        slot.kind = Kind::Read;
        slot.is_checked = true;
        (slot.offset_bytes, slot.len_bytes, slot.target) = (offset_bytes, len_bytes, target as u32);
        self.hand_over(tag, Request::read(offset_bytes, len_bytes, buffer, tag.into()));
    }
}
