//! A channel to a disk behind the HBA.
//!
//! - While requests are in flight, the clock has a time to jump to. A thread that polls then finds
//!   the requests that are complete.
//! - After the machine's power was cut, every request ends with an error.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use qpair_block::{
    ChannelOptions, ChannelStatistics, Completion, IoChannel, IoError, Op, Request, Result,
    WaitOptions, WakeEvent, sleep,
};
use qpair_pci::PciDevice as _;
use qpair_sim_block::SimPower;

use super::met::Kind;
use super::{Bench, trouble};

/// The virtual time between two polls while nothing completes, in nanoseconds.
const BEAT_NS: u64 = 50_000;

pub(super) struct HbaChannel {
    below: Box<dyn IoChannel>,
    number: u32,
    bench: Arc<Bench>,
    power: SimPower,
    depth: u32,
    wake: Option<Arc<WakeEvent>>,
    /// Requests that ended without reaching the disk.
    ended: Vec<Completion>,
    /// The last time that the clock was asked to jump to, in nanoseconds.
    beat_ns: u64,
}

impl HbaChannel {
    pub(super) fn new(
        below: Box<dyn IoChannel>,
        number: u32,
        (bench, power): (Arc<Bench>, SimPower),
        options: &ChannelOptions,
    ) -> Self {
        let (depth, wake) = (options.depth, options.wake.clone());
        Self { below, number, bench, power, depth, wake, ended: Vec::new(), beat_ns: 0 }
    }

    fn note_request(&self, request: &Request) {
        let now_ns = self.bench.clock.now_ns();
        let trace = &mut self.bench.state.lock().trace;
        let at = [request.offset_bytes, request.len_bytes.into(), request.tag];
        for value in [now_ns, self.number.into(), request.op as u64].into_iter().chain(at) {
            trace.add(value);
        }
        if let (Op::Write, Some(buffer)) = (request.op, &request.buffer) {
            let mut bytes = vec![0; request.len_bytes as usize];
            buffer.copy_to(request.buffer_offset_bytes as usize, &mut bytes);
            trace.add_bytes(&bytes);
        }
    }

    fn note_end(&self, ended: &Completion) {
        let now_ns = self.bench.clock.now_ns();
        let mut state = self.bench.state.lock();
        for value in [now_ns, self.number.into(), ended.tag, ended.result.is_ok().into()] {
            state.trace.add(value);
        }
        if ended.result.is_err() {
            state.errors += 1;
            // Requests that the power cut ended are not counted as errors of the stack.
            if !self.power.is_cut() {
                let is_flush = ended.op == Op::Flush;
                state.met.add(if is_flush { Kind::FailedFlush } else { Kind::FailedRequest }, 1);
            }
        }
    }

    fn end_in_the_dark(&mut self, request: Request) {
        self.ended.push(request.complete(Err(IoError::IO)));
    }

    fn take(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        completions.append(&mut self.ended);
        self.below.poll(completions);
        for ended in &mut completions[before..] {
            if self.power.is_cut() {
                ended.result = Err(IoError::IO);
            }
            self.note_end(ended);
        }
        completions.len() - before
    }
}

impl IoChannel for HbaChannel {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        self.note_request(&request);
        trouble::request(&self.bench);
        if self.power.is_cut() {
            self.end_in_the_dark(request);
            return Ok(());
        }
        let changes_at = match request.op {
            Op::Read => None,
            Op::Flush => Some(u64::MAX - 1),
            _ => Some(request.offset_bytes),
        };
        if !changes_at.is_some_and(|offset| self.power.count_change(offset)) {
            return self.below.submit(request);
        }
        // The power goes just before it, or just after.
        if self.bench.state.lock().trouble.rng.bool() {
            self.end_in_the_dark(request);
        } else {
            self.below.submit(request)?;
            self.below.kick();
            self.bench.card.step_all();
        }
        self.bench.go_dark();
        Ok(())
    }

    fn kick(&mut self) {
        self.below.kick();
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let count = self.take(completions);
        let now_ns = self.bench.clock.now_ns();
        if count == 0 && self.below.in_flight() > 0 && self.beat_ns <= now_ns {
            self.beat_ns = now_ns + BEAT_NS;
            self.bench.clock.schedule(self.beat_ns);
        }
        count
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.kick();
        let in_flight = self.in_flight();
        if in_flight == 0 {
            sleep(None, self.wake.as_deref(), options.timeout);
            return 0;
        }
        let want = options.want.min(in_flight).max(1) as usize;
        let nanoseconds =
            |it: std::time::Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
        let timeout_ns = options.timeout.map_or(u64::MAX, nanoseconds);
        let start_ns = self.bench.clock.now_ns();
        let mut taken = 0;
        loop {
            taken += self.take(completions);
            let passed_ns = self.bench.clock.now_ns() - start_ns;
            let lingers = taken == 0 || passed_ns < nanoseconds(options.linger);
            if taken >= want || passed_ns >= timeout_ns || !lingers {
                return taken;
            }
            self.bench.clock.pass(BEAT_NS);
        }
    }

    fn in_flight(&self) -> u32 {
        self.below.in_flight() + self.ended.len() as u32
    }

    fn statistics(&self) -> ChannelStatistics {
        self.below.statistics()
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }
}
