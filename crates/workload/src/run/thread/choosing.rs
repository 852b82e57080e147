//! Chooses the next request, and whether it may be submitted now.

use std::time::Duration;

use rand::Rng;

use crate::job::{Direction, TargetOrder, Verbs};

use super::{Candidate, Next, Thread, nanos};

/// The shortest pause of a job that waits for its turn in a flow.
const TURN: Duration = Duration::from_micros(20);

impl Thread<'_> {
    /// Returns the next step: a request, if it may be submitted now.
    #[inline]
    pub(super) fn next(&mut self, now: u64) -> Next {
        if self.pause_until_ns > now {
            return Next::Later(self.pause_until_ns);
        }
        if self.replaying.is_some() {
            return self.next_of_log(now);
        }
        if self.read_back_now > 0
            && let Some(candidate) = self.next_of_backlog()
        {
            return Next::Go(candidate);
        }
        if self.held.is_none()
            && let Some(share) = &mut self.share
            && !share.take()
        {
            let pause = self.job.flow.map_or(Duration::ZERO, |share| share.pause);
            return Next::Later(now + nanos(pause.max(TURN)));
        }
        let candidate = match self.held.take() {
            Some(candidate) => candidate,
            None => match self.candidate() {
                Some(candidate) => candidate,
                None => return Next::End,
            },
        };
        // The clock was read earlier; the request may be due by now.
        if candidate.due_ns > now && candidate.due_ns > self.common.now_ns() {
            self.held = Some(candidate);
            return Next::Later(candidate.due_ns);
        }
        if let Some(chunks) = self.chunks.get_mut(candidate.target as usize) {
            if chunks.is_busy(candidate.offset_bytes, candidate.len_bytes) {
                self.held = Some(candidate);
                return Next::Blocked;
            }
            chunks.set_busy(candidate.offset_bytes, candidate.len_bytes, true);
        }
        Next::Go(candidate)
    }

    /// Chooses a request; `None` when all bytes have been moved.
    #[inline]
    pub(super) fn candidate(&mut self) -> Option<Candidate> {
        if let Some((target, offset_bytes, len_bytes)) = self.trimmed.pop_front() {
            let due_ns = self.plan(Direction::Write, len_bytes);
            let direction = Direction::Write;
            return Some(Candidate {
                direction,
                target,
                offset_bytes,
                len_bytes,
                due_ns,
                reads_back: false,
            });
        }
        if self.bytes_left == 0 || self.ios_left == 0 {
            return None;
        }
        let direction = match self.arrivals.earlier() {
            Some(direction) => direction,
            None => self.draw.direction(&mut self.random),
        };
        let len_bytes = self.draw.len_bytes(direction, &mut self.random);
        let target = self.target();
        let offsets = &mut self.offsets[target as usize];
        let (offset_bytes, len_bytes) = offsets.next(direction, len_bytes, &mut self.random);
        self.ios_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(u64::from(len_bytes));
        self.target_left = self.target_left.saturating_sub(u64::from(len_bytes));
        // A job that only verifies its writes does not trim.
        let direction = match (self.job.verbs, direction) {
            (Verbs::TrimWrite, Direction::Trim) if !self.job.writes() => Direction::Write,
            _ => direction,
        };
        let due_ns = self.plan(direction, len_bytes);
        Some(Candidate { direction, target, offset_bytes, len_bytes, due_ns, reads_back: false })
    }

    /// Returns the planned start of a request, by the job's rate; 0: at once.
    #[inline]
    fn plan(&mut self, direction: Direction, len_bytes: u32) -> u64 {
        if !self.arrivals.are_limited() {
            return 0;
        }
        let due_ns = self.arrivals.due_ns(direction);
        self.arrivals.advance(direction, len_bytes, &mut self.random);
        due_ns
    }

    #[inline]
    pub(super) fn target(&mut self) -> u32 {
        let count = self.targets.len() as u32;
        if count == 1 {
            return 0;
        }
        match self.job.target_order {
            TargetOrder::RoundRobin => {
                self.target_next = (self.target_next + 1) % count;
                self.target_next
            }
            TargetOrder::Random => self.random.random_range(0..count),
            TargetOrder::Sequential => {
                if self.target_left == 0 {
                    self.target_next = (self.target_next + 1) % count;
                    self.target_left = self.targets[self.target_next as usize].region.len_bytes;
                }
                self.target_next
            }
        }
    }
}
