//! A simulated disk at work: the requests in flight, in the order in which they end.
//!
//! - The time at which a request ends is drawn when it is submitted. Its effect happens at that
//!   time, once a channel looks at the disk.
//! - After a power cut nothing changes any more, and every request ends with an error.

use std::collections::BTreeMap;

use qpair_block::time::SimClock;
use qpair_block::{ChannelStatistics, Completion, DeviceInfo, IoError, Op, Request};
use qpair_memory::Buffer;

use crate::faults::{SimFaults, SimLatency, happens};
use crate::medium::{Medium, SECTOR_BYTES};
use crate::power::SimPower;
use crate::trace::TraceHash;

/// A request in flight.
struct Pending {
    channel: usize,
    request: Request,
    /// The mark of the writes that a flush covers.
    flush_mark: u64,
}

/// The state that a disk keeps for one channel.
#[derive(Default)]
struct Port {
    /// Completions that were not taken yet, with the number of the request.
    ended: Vec<(u64, Completion)>,
    under_way: u32,
    statistics: ChannelStatistics,
}

/// A simulated disk.
pub(super) struct Disk {
    info: DeviceInfo,
    clock: SimClock,
    power: SimPower,
    rng: fastrand::Rng,
    pub(super) faults: SimFaults,
    pub(super) latency: SimLatency,
    /// The medium; `None` after a power cut.
    medium: Option<Medium>,
    /// The bytes that survived the power cut.
    survived: Vec<u8>,
    size_bytes: u64,
    /// The requests in flight by the time at which they end, then by number.
    pending: BTreeMap<(u64, u64), Pending>,
    ports: Vec<Port>,
    /// The number of requests so far.
    requests: u64,
    errors: u64,
    trace: TraceHash,
}

impl Disk {
    pub(super) fn new(
        info: DeviceInfo,
        clock: SimClock,
        power: SimPower,
        seed: u64,
        content: Vec<u8>,
    ) -> Self {
        Self {
            info,
            clock,
            power,
            rng: fastrand::Rng::with_seed(seed),
            faults: SimFaults::default(),
            latency: SimLatency::default(),
            survived: Vec::new(),
            size_bytes: content.len() as u64,
            medium: Some(Medium::new(content)),
            pending: BTreeMap::new(),
            ports: Vec::new(),
            requests: 0,
            errors: 0,
            trace: TraceHash::default(),
        }
    }

    pub(super) fn open_port(&mut self) -> usize {
        self.ports.push(Port::default());
        self.ports.len() - 1
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn is_dead(&mut self) -> bool {
        self.settle();
        self.medium.is_none()
    }

    pub(super) fn resize(&mut self, size_bytes: u64) {
        if let Some(medium) = &mut self.medium {
            medium.resize(size_bytes as usize);
            self.size_bytes = size_bytes;
        }
    }

    /// Returns the mark of the writes that a flush submitted now covers.
    pub(super) fn flush_mark(&mut self) -> u64 {
        self.settle();
        self.medium.as_ref().map_or(0, Medium::flush_mark)
    }

    /// Begins a request. Its number is in the trace.
    pub(super) fn begin(&mut self, channel: usize, request: Request, flush_mark: u64) {
        self.settle();
        self.requests += 1;
        let number = self.requests;
        self.ports[channel].under_way += 1;
        let latency = self.latency;
        let took_ns = latency.sample(request.op, request.force_unit_access, &mut self.rng);
        let due_ns = match self.medium {
            Some(_) => self.clock.now_ns().saturating_add(took_ns),
            None => self.clock.now_ns(),
        };
        self.clock.schedule(due_ns);
        self.pending.insert((due_ns, number), Pending { channel, request, flush_mark });
        self.settle();
    }

    /// Executes the requests whose time has come.
    pub(super) fn settle(&mut self) {
        let now_ns = self.clock.now_ns();
        loop {
            let limit_ns = now_ns.min(self.power.cut_ns());
            let Some(entry) = self.pending.first_entry() else { break };
            let (due_ns, number) = *entry.key();
            if self.medium.is_some() && due_ns > limit_ns || due_ns > now_ns {
                break;
            }
            let request = &entry.get().request;
            let changes_at = match request.op {
                Op::Read => None,
                Op::Flush => Some(u64::MAX - 1),
                _ => Some(request.offset_bytes),
            };
            let is_met = self.medium.is_some()
                && changes_at.is_some_and(|offset| self.power.count_change(offset));
            if is_met && self.rng.bool() {
                break;
            }
            let pending = entry.remove();
            self.end(due_ns, number, pending);
            if is_met {
                break;
            }
        }
        if self.medium.is_some() && self.power.cut_ns() <= now_ns {
            self.die();
        }
    }

    /// Handles the loss of power: requests in flight end with an error.
    fn die(&mut self) {
        let Some(medium) = self.medium.take() else { return };
        let pending = std::mem::take(&mut self.pending);
        let mut in_flight = Vec::new();
        for pending in pending.values() {
            let request = &pending.request;
            if self.info.check(request, self.size_bytes).is_ok()
                && let Some(data) = change_of(request)
            {
                in_flight.push((request.offset_bytes as usize, data.into()));
            }
        }
        self.rng.shuffle(&mut in_flight);
        self.survived = medium.cut(in_flight, &mut self.rng);
        self.trace.add_bytes(&self.survived);
        let now_ns = self.clock.now_ns();
        for ((_, number), pending) in pending {
            self.end(now_ns, number, pending);
        }
        // A thread that sleeps until a request ends must poll.
        self.clock.schedule(now_ns);
    }

    fn end(&mut self, due_ns: u64, number: u64, pending: Pending) {
        let Pending { channel, mut request, flush_mark } = pending;
        let result = self.carry_out(number, &mut request, flush_mark);
        for value in [due_ns, request.op as u64, request.offset_bytes, request.len_bytes.into()] {
            self.trace.add(value);
        }
        self.trace.add(u64::from(result.is_ok()));
        if let (Op::Read | Op::Write, Some(buffer), Ok(())) = (request.op, &request.buffer, result)
        {
            self.trace.add_bytes(&bytes_of(&request, buffer));
        }
        self.errors += u64::from(result.is_err());
        let port = &mut self.ports[channel];
        port.under_way -= 1;
        port.statistics.count(request.op, request.len_bytes, result);
        port.ended.push((number, request.complete(result)));
    }

    fn carry_out(
        &mut self,
        number: u64,
        request: &mut Request,
        flush_mark: u64,
    ) -> Result<(), IoError> {
        let (rng, faults) = (&mut self.rng, self.faults);
        let Some(medium) = &mut self.medium else { return Err(IoError::IO) };
        self.info.check(request, self.size_bytes)?;
        let (at, len) = (request.offset_bytes as usize, request.len_bytes as usize);
        match request.op {
            Op::Flush if happens(faults.flush_error, rng) => {
                medium.fail_flush(flush_mark, rng);
                return Err(IoError::IO);
            }
            Op::Flush => medium.flush(flush_mark, rng),
            Op::Read => {
                if happens(faults.bad_sector, rng) {
                    medium.spoil(at, len, rng);
                }
                if happens(faults.bit_flip, rng) {
                    medium.flip(at, len, rng);
                }
                if happens(faults.read_error, rng) || medium.is_bad(at, len) {
                    return Err(IoError::IO);
                }
                let start = request.buffer_offset_bytes as usize;
                if let Some(buffer) = &mut request.buffer {
                    buffer.copy_from(start, &medium.visible[at..at + len]);
                }
            }
            Op::Write | Op::Discard | Op::WriteZeroes => {
                let Some(data) = change_of(request) else { return Ok(()) };
                if happens(faults.write_error, rng) {
                    medium.write_some(number, at, &data, rng);
                    return Err(IoError::IO);
                }
                let durable = !self.info.volatile_write_cache || request.force_unit_access;
                medium.write(number, at, &data, durable);
            }
        }
        Ok(())
    }

    /// Takes the completions of a channel.
    pub(super) fn take(&mut self, channel: usize, completions: &mut Vec<Completion>) -> usize {
        self.settle();
        let port = &mut self.ports[channel];
        let count = port.ended.len();
        for (number, completion) in port.ended.drain(..) {
            if let (Some(medium), Op::Write | Op::Discard | Op::WriteZeroes) =
                (&mut self.medium, completion.op)
            {
                medium.see(number);
            }
            completions.push(completion);
        }
        count
    }

    /// Returns the virtual time in nanoseconds at which the next of a channel's requests ends.
    pub(super) fn next_due_ns(&self, channel: usize) -> Option<u64> {
        self.pending
            .iter()
            .find(|(_, pending)| pending.channel == channel)
            .map(|((due_ns, _), _)| *due_ns)
    }

    /// Returns the number of requests submitted and not yet completed.
    pub(super) fn in_flight(&self, channel: usize) -> u32 {
        self.ports[channel].under_way + self.ports[channel].ended.len() as u32
    }

    pub(super) fn statistics(&self, channel: usize) -> ChannelStatistics {
        self.ports[channel].statistics
    }

    pub(super) fn errors(&self) -> u64 {
        self.errors
    }

    pub(super) fn trace(&mut self) -> TraceHash {
        self.settle();
        self.trace
    }

    /// Returns the content as reads see it, or the bytes that survived a power cut.
    pub(super) fn content(&mut self) -> Vec<u8> {
        self.settle();
        self.medium.as_ref().map_or_else(|| self.survived.clone(), |medium| medium.visible.clone())
    }

    /// Returns a hash of the content.
    pub(super) fn content_hash(&mut self) -> TraceHash {
        self.settle();
        match &self.medium {
            Some(medium) => medium.hash(),
            None => {
                let mut hash = TraceHash::default();
                hash.add_bytes(&self.survived);
                hash
            }
        }
    }
}

fn bytes_of<'a>(request: &Request, buffer: &'a Buffer) -> std::borrow::Cow<'a, [u8]> {
    let (start, len) = (request.buffer_offset_bytes as usize, request.len_bytes as usize);
    if !buffer.is_list() {
        return (&buffer.as_slice()[start..start + len]).into();
    }
    let mut bytes = vec![0; len];
    buffer.copy_to(start, &mut bytes);
    bytes.into()
}

/// Returns the bytes that a checked request writes to its range, if it changes any.
fn change_of(request: &Request) -> Option<std::borrow::Cow<'_, [u8]>> {
    debug_assert!((request.len_bytes as usize).is_multiple_of(SECTOR_BYTES));
    match (request.op, &request.buffer) {
        (Op::Write, Some(buffer)) => Some(bytes_of(request, buffer)),
        (Op::Discard | Op::WriteZeroes, _) => Some(vec![0; request.len_bytes as usize].into()),
        _ => None,
    }
}
