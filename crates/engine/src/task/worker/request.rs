//! The requests of a worker: their tags, submitting them, and the ends of them.

use qpair_block::{Completion, Request};
use qpair_memory::FrameIndex;

use super::{TaskRef, Worker};
use crate::canary::Canary;
use crate::metrics::Part;

/// The kind of a completion, kept in its tag.
pub(super) enum Tag {
    /// A page load, for the task named.
    Load,
    /// A write-back.
    WriteBack,
    /// A request of a task's own.
    Own,
    /// The write of a copy of a page.
    Copy,
    /// A write of the log.
    Log,
}

const TAG_SHIFT: u32 = 61;
/// The bit of a load's tag that holds the phase in which the load is counted.
const LOAD_PHASE_SHIFT: u32 = 60;

pub(super) fn tag(kind: Tag, value: u64) -> u64 {
    (kind as u64) << TAG_SHIFT | value
}

pub(super) fn load_tag(task: TaskRef, phase: u64) -> u64 {
    let task = u64::from(task.generation) | u64::from(task.slot) << 32;
    tag(Tag::Load, task | phase << LOAD_PHASE_SHIFT)
}

impl Worker {
    /// Prefetches the cache lines that the ends of these requests will touch. They were last used
    /// when the requests began.
    pub(super) fn prefetch(&self, completions: &[Completion]) {
        let frames = &self.shared.pool.frames;
        for buffer in completions.iter().filter_map(|completion| completion.buffer.as_ref()) {
            // The memory of another arena has other block numbers. The prefetch is then useless,
            // but harmless.
            let frame = FrameIndex(buffer.block().0);
            if frames.contains(frame) {
                frames.prefetch(frame, 2);
            }
        }
    }

    /// Hands a request to the channel, or keeps it until there is room.
    pub(crate) fn submit(&self, request: Request) {
        let outer = self.enter(Part::Submit);
        let mut backlog = self.backlog.borrow_mut();
        if backlog.is_empty() {
            match self.channel.borrow_mut().submit(request) {
                Ok(()) => self.staged.set(self.staged.get() + 1),
                Err(request) => backlog.push_back(request),
            }
        } else {
            backlog.push_back(request);
        }
        self.enter(outer);
    }

    pub(super) fn drain_backlog(&self) {
        let mut backlog = self.backlog.borrow_mut();
        while let Some(request) = backlog.pop_front() {
            match self.channel.borrow_mut().submit(request) {
                Ok(()) => self.staged.set(self.staged.get() + 1),
                Err(request) => {
                    backlog.push_front(request);
                    break;
                }
            }
        }
    }

    #[inline]
    pub(super) fn complete(&self, completion: Completion) {
        let value = completion.tag & ((1 << TAG_SHIFT) - 1);
        match (completion.tag >> TAG_SHIFT, completion.buffer) {
            (0, Some(buffer)) => {
                self.shared.planted.strike(Canary::PanicInLoop);
                if let Some((timed, since)) = self.timed.get()
                    && timed == completion.tag
                {
                    self.timed.set(None);
                    self.shared.counters.of(self.number).count_read(since.elapsed());
                }
                let phase = value >> LOAD_PHASE_SHIFT;
                let slot = (value & ((1 << LOAD_PHASE_SHIFT) - 1)) >> 32;
                let task = TaskRef { slot: slot as u32, generation: value as u32 };
                self.end_transfer(phase);
                self.read_ended();
                self.loaded(task, buffer, completion.result);
            }
            (1, Some(buffer)) => {
                self.end_transfer(value);
                self.written(buffer, completion.result);
            }
            (3, Some(buffer)) => {
                self.end_transfer(value);
                self.saved(buffer, completion.result);
            }
            (4, buffer) => self.log_written(Completion { buffer, ..completion }),
            (_, buffer) => {
                let completion = Completion { buffer, ..completion };
                self.own_done(value as usize, completion);
            }
        }
    }
}
