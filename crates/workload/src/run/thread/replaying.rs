//! Replays the requests of a log, at its times.
//!
//! A request is due when as much time has passed since the beginning as in the log, even if earlier
//! requests are late. Its latency counts from that time, as with a rate.

use std::sync::Arc;

use crate::iolog::{Action, Entry};
use crate::job::{Direction, Job};

use super::{Candidate, Next, Thread, nanos};

pub(super) struct Replaying {
    entries: Arc<[Entry]>,
    at: usize,
    rounds_left: u64,
    is_paced: bool,
    pub(super) begin_ns: u64,
}

impl Replaying {
    pub(super) fn new(job: &Job) -> Option<Self> {
        let replay = job.replay.as_ref()?;
        Some(Self {
            entries: replay.entries.clone(),
            at: 0,
            rounds_left: if job.time_based { u64::MAX } else { job.loops.max(1).into() },
            is_paced: replay.is_paced,
            begin_ns: 0,
        })
    }
}

impl Thread<'_> {
    /// Returns the next request of the log, if it may be submitted now.
    pub(super) fn next_of_log(&mut self, now: u64) -> Next {
        let Some(log) = &mut self.replaying else { return Next::End };
        if self.bytes_left == 0 || self.ios_left == 0 {
            return Next::End;
        }
        if log.at == log.entries.len() {
            log.rounds_left -= 1;
            (log.at, log.begin_ns) = (0, now);
        }
        let Some(entry) = log.entries.get(log.at).copied().filter(|_| log.rounds_left > 0) else {
            self.bytes_left = 0;
            return Next::End;
        };
        let due_ns = if log.is_paced { log.begin_ns.saturating_add(nanos(entry.at)) } else { 0 };
        if due_ns > now && due_ns > self.common.now_ns() {
            return Next::Later(due_ns);
        }
        log.at += 1;
        self.ios_left -= 1;
        let direction = match entry.action {
            Action::Read => Direction::Read,
            Action::Write => Direction::Write,
            Action::Trim => Direction::Trim,
            Action::Flush => return Next::Flush(entry.file),
        };
        Next::Go(Candidate {
            direction,
            target: entry.file,
            offset_bytes: entry.offset_bytes,
            len_bytes: entry.len_bytes,
            due_ns,
            reads_back: false,
        })
    }
}
