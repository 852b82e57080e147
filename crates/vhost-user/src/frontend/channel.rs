//! A channel: a queue, and the requests in flight in it.
//!
//! Invariants:
//! - A job is in `jobs` from its submission until its completion is returned. Its number is that of
//!   its slot in the queue. Exactly one command of it is in the queue, unless it is in `waiting`
//!   for a bounce buffer.
//! - A job's buffer is in the job until the back end has finished with it, or has gone.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, ArenaOptions, Arrival, Buffer, ChannelOptions, ChannelStatistics, Completion,
    DeviceInfo, Error, ErrorKind, IoChannel, IoError, Op, Request, Result, WaitClock, WaitOptions,
    WakeEvent, sleep,
};
use qpair_virtio::blk::{Range, SECTOR_SHIFT, Status, Verb, feature as blk};

use super::device::Keeper;
use super::link::{Facts, Link, Phase, Word};
use super::queue::{Data, Queue};
use super::region::BLOCK_BYTES;

/// The number of bounce buffers, for data that the back end cannot access.
const BOUNCES: u32 = 8;
const BOUNCE_BYTES: u32 = 128 << 10;
/// The time that a wait polls before it sleeps.
const LOOK: Duration = Duration::from_micros(20);
/// The longest sleep with requests in flight: the back end may have gone.
const SLEEP_MAX: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Job {
    request: Request,
    /// The bytes that are done; the next field has those of the command in flight.
    done_bytes: u32,
    part_bytes: u32,
    bounce: Option<Buffer>,
    /// Whether the data is written, and a flush of it is in flight.
    is_flushing: bool,
}

pub(super) struct VhostUserChannel {
    link: Arc<Link>,
    /// Keeps the connection's thread, since the owner of the channel may have dropped the device.
    _keeper: Arc<Keeper>,
    seen: Word,
    queue: Queue,
    number: u16,
    jobs: Box<[Option<Job>]>,
    free: Vec<u16>,
    waiting: VecDeque<u16>,
    /// Completions of requests that the back end did not see.
    ended: Vec<Completion>,
    /// The free bounce buffers, and the bytes of each.
    bounces: Vec<Buffer>,
    bounce_bytes: u32,
    /// The arenas that the back end can access.
    arenas: Vec<u32>,
    info: DeviceInfo,
    facts: Facts,
    taken: u32,
    is_watched: bool,
    wake: Option<Arc<WakeEvent>>,
    statistics: ChannelStatistics,
}

impl VhostUserChannel {
    pub(super) fn open(
        link: &Arc<Link>,
        keeper: &Arc<Keeper>,
        facts: &Facts,
        info: &DeviceInfo,
        options: &ChannelOptions,
    ) -> Result<Self> {
        let depth = options.depth as u16;
        let number = link.take_queue()?;
        let opened = Queue::new(link, number, depth, facts.features).and_then(|queue| {
            if let Some(region) = &link.region {
                return Ok((queue, region.bounces(depth), BLOCK_BYTES, Vec::new()));
            }
            let memory = ArenaOptions { shared: true, ..ArenaOptions::ordinary_pages() };
            let arena = Arena::new(BOUNCE_BYTES as usize, BOUNCES, memory)
                .map_err(|cause| Error::os(cause, "allocating bounce buffers"))?;
            let blocks = std::iter::from_fn(|| arena.lease()).collect();
            let arenas = std::iter::once(&arena).chain(&options.arenas).cloned().collect();
            Ok((queue, blocks, BOUNCE_BYTES, arenas))
        });
        let (queue, bounces, bounce_bytes, arenas): (_, Vec<Buffer>, _, Vec<Arc<Arena>>) =
            opened.inspect_err(|_| link.return_queue(number))?;
        let mut channel = Self {
            link: link.clone(),
            _keeper: keeper.clone(),
            seen: Word::UNSEEN,
            number,
            jobs: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::new(),
            ended: Vec::with_capacity(depth.into()),
            arenas: Vec::new(),
            info: info.clone(),
            facts: *facts,
            taken: 0,
            is_watched: false,
            wake: options.wake.clone(),
            statistics: ChannelStatistics::default(),
            queue,
            bounces,
            bounce_bytes,
        };
        // From here on, dropping the channel undoes everything.
        link.add_call(&channel.queue.call);
        for arena in &arenas {
            if !channel.arenas.contains(&arena.id()) && link.add_arena(arena)? {
                channel.arenas.push(arena.id());
            }
        }
        channel.begin()?;
        Ok(channel)
    }

    /// Gives the queue to the back end. Waits for a back end that has gone to come back.
    fn begin(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            self.seen = self.link.word();
            match self.queue.set_up(&self.link, self.seen) {
                Err(error)
                    if error.kind() == ErrorKind::Gone
                        && self.seen.phase() != Phase::Gone
                        && start.elapsed() < self.link.options.reconnect =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => return other,
            }
        }
    }

    /// Returns the result of a request that can be answered without the back end.
    fn answer(&self, request: &Request) -> Option<std::result::Result<(), IoError>> {
        let size_bytes = self.link.size_bytes.load(Ordering::Relaxed);
        if let Err(error) = self.info.check(request, size_bytes) {
            return Some(Err(error));
        }
        let has = |feature: u64| self.facts.features & feature != 0;
        match request.op {
            // Without a write cache, completed writes are durable already.
            Op::Flush => (!has(blk::FLUSH)).then_some(Ok(())),
            Op::Discard => (!has(blk::DISCARD)).then_some(Err(IoError::UNSUPPORTED)),
            Op::WriteZeroes => (!has(blk::WRITE_ZEROES)).then_some(Err(IoError::UNSUPPORTED)),
            Op::Read | Op::Write => None,
        }
    }

    fn go_on(&mut self, slot: u16) {
        let Some(job) = &mut self.jobs[usize::from(slot)] else { return };
        let (op, done) = (job.request.op, job.done_bytes);
        let left = job.request.len_bytes - done;
        let sector = (job.request.offset_bytes + u64::from(done)) >> SECTOR_SHIFT;
        let most = |sectors: u32| (u64::from(sectors) << SECTOR_SHIFT).min(1 << 30) as u32;
        let blocks =
            |bytes: u32| bytes / self.info.logical_block_bytes * self.info.logical_block_bytes;
        let (verb, data) = match op {
            _ if job.is_flushing => (Verb::Flush, None),
            Op::Flush => (Verb::Flush, None),
            Op::Discard | Op::WriteZeroes => {
                let (verb, most) = match op {
                    Op::Discard => (Verb::Discard, most(self.facts.config.discard_sectors_max)),
                    _ => (Verb::WriteZeroes, most(self.facts.config.zeroes_sectors_max)),
                };
                job.part_bytes = left.min(blocks(most).max(self.info.logical_block_bytes));
                let range = Range { sector, sectors: job.part_bytes >> SECTOR_SHIFT, flags: 0 };
                (verb, Some(self.queue.put_range(slot, range)))
            }
            Op::Read | Op::Write => {
                let Some(buffer) = &mut job.request.buffer else { return };
                let at = job.request.buffer_offset_bytes + done;
                let is_in = op == Op::Read;
                let address = if self.arenas.contains(&buffer.arena().id()) {
                    job.part_bytes = left;
                    buffer.as_ptr().wrapping_add(at as usize)
                } else {
                    let Some(mut block) = self.bounces.pop() else {
                        self.waiting.push_back(slot);
                        return;
                    };
                    // A request is copied as a whole, or not at all.
                    self.statistics.copied += u64::from(job.done_bytes == 0);
                    job.part_bytes = left.min(self.bounce_bytes);
                    if !is_in {
                        let len = job.part_bytes as usize;
                        buffer.copy_out(at as usize, block.shared(), 0, len);
                    }
                    job.bounce.insert(block).as_ptr()
                };
                let address = address.expose_provenance() as u64;
                let verb = if is_in { Verb::In } else { Verb::Out };
                (verb, Some(Data { address, len_bytes: job.part_bytes, is_in }))
            }
        };
        let sector = if matches!(verb, Verb::In | Verb::Out) { sector } else { 0 };
        self.queue.offer(slot, verb, sector, data);
    }

    /// Takes the available completions, without sleeping.
    fn turn(&mut self, completions: &mut Vec<Completion>) {
        if !self.ended.is_empty() {
            self.taken -= self.ended.len() as u32;
            completions.append(&mut self.ended);
        }
        if self.link.word() != self.seen {
            self.follow(completions);
        }
        let mut is_news = false;
        loop {
            match self.queue.take() {
                Ok(Some((slot, status))) => {
                    if !is_news {
                        self.link.prove();
                    }
                    is_news = true;
                    self.end(slot, status, completions);
                }
                // With the event index, each signal must be requested again.
                Ok(None) if is_news && self.is_watched && self.queue.listen() => is_news = false,
                Ok(None) => break,
                Err(_) => {
                    self.link.break_up(self.seen);
                    break;
                }
            }
        }
        self.statistics.system_calls += self.queue.publish();
    }

    /// Handles a change in the connection: a new life, or its end.
    #[cold]
    fn follow(&mut self, completions: &mut Vec<Completion>) {
        self.seen = self.link.word();
        match self.seen.phase() {
            Phase::Up => {
                if self.queue.set_up(&self.link, self.seen).is_err() {
                    // The back end has gone again: there will be another life.
                    self.link.break_up(self.seen);
                    return;
                }
                self.statistics.resets += 1;
                // All requests in flight are repeated: no caller was told that they had been done.
                self.waiting.clear();
                for slot in 0..self.jobs.len() as u16 {
                    if let Some(job) = &mut self.jobs[usize::from(slot)] {
                        self.bounces.extend(job.bounce.take());
                        self.go_on(slot);
                    }
                }
            }
            Phase::Lost => {}
            Phase::Gone => {
                self.waiting.clear();
                for slot in 0..self.jobs.len() as u16 {
                    if self.jobs[usize::from(slot)].is_some() {
                        self.finish(slot, Err(IoError::GONE), completions);
                    }
                }
            }
        }
    }

    fn end(&mut self, slot: u16, status: Option<Status>, completions: &mut Vec<Completion>) {
        // A job that waits for a bounce buffer has no command with the back end.
        let is_offered = !self.waiting.contains(&slot);
        let job = self.jobs.get_mut(usize::from(slot)).filter(|_| is_offered);
        let Some(job) = job.and_then(Option::as_mut) else { return self.link.break_up(self.seen) };
        if let Some(mut block) = job.bounce.take() {
            let at = (job.request.buffer_offset_bytes + job.done_bytes) as usize;
            if let (Op::Read, Some(buffer)) = (job.request.op, &mut job.request.buffer) {
                buffer.copy_in(at, block.shared(), 0, job.part_bytes as usize);
            }
            self.bounces.push(block);
            if let Some(next) = self.waiting.pop_front() {
                self.go_on(next);
            }
        }
        let result = match status {
            Some(Status::Ok) => Ok(()),
            Some(Status::Unsupported) => Err(IoError::UNSUPPORTED),
            Some(Status::IoError) | None => Err(IoError::IO),
        };
        let Some(job) = &mut self.jobs[usize::from(slot)] else { return };
        if !job.is_flushing {
            job.done_bytes += job.part_bytes;
        }
        let Request { op, force_unit_access, len_bytes, .. } = job.request;
        if result.is_ok() && op != Op::Flush && !job.is_flushing {
            if job.done_bytes < len_bytes {
                return self.go_on(slot);
            }
            if op == Op::Write && force_unit_access && self.info.volatile_write_cache {
                job.is_flushing = true;
                return self.go_on(slot);
            }
        }
        self.finish(slot, result, completions);
    }

    fn finish(
        &mut self,
        slot: u16,
        result: std::result::Result<(), IoError>,
        completions: &mut Vec<Completion>,
    ) {
        let Some(job) = self.jobs[usize::from(slot)].take() else { return };
        self.free.push(slot);
        self.taken -= 1;
        self.statistics.count(job.request.op, job.request.len_bytes, result);
        completions.push(job.request.complete(result));
    }

    /// Sleeps until the back end signals, the wake event, or `until`. Returns whether the wake
    /// event ended the sleep.
    fn sleep(&mut self, until: Option<Instant>) -> bool {
        let mut timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        if self.taken > 0 {
            timeout = Some(timeout.map_or(SLEEP_MAX, |timeout| timeout.min(SLEEP_MAX)));
        }
        let call = (self.taken > 0).then(|| self.queue.call.clone());
        self.statistics.system_calls += 1;
        let call = call.as_ref().map(|call| call.as_fd());
        let woken = sleep(call, self.wake.as_deref(), timeout);
        if call.is_some() {
            self.statistics.system_calls += 1;
            self.queue.clear_call();
        }
        if let (true, Some(wake)) = (woken, &self.wake) {
            wake.clear();
        }
        woken
    }
}

impl IoChannel for VhostUserChannel {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.taken as usize >= self.jobs.len() {
            return Err(request);
        }
        let result = match self.seen.phase() {
            Phase::Gone => Some(Err(IoError::GONE)),
            _ => self.answer(&request),
        };
        if let Some(result) = result {
            self.taken += 1;
            self.statistics.count(request.op, request.len_bytes, result);
            self.ended.push(request.complete(result));
            return Ok(());
        }
        let Some(slot) = self.free.pop() else { return Err(request) };
        self.taken += 1;
        let job = Job { request, done_bytes: 0, part_bytes: 0, bounce: None, is_flushing: false };
        self.jobs[usize::from(slot)] = Some(job);
        if self.seen.phase() == Phase::Up {
            self.go_on(slot);
        }
        Ok(())
    }

    fn kick(&mut self) {
        self.statistics.system_calls += self.queue.publish();
        if self.is_watched && !self.ended.is_empty() {
            let _ = rustix::io::write(&self.queue.call, &1u64.to_ne_bytes());
            self.statistics.system_calls += 1;
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.turn(completions);
        if self.is_watched && completions.len() == before {
            self.queue.clear_call();
            self.statistics.system_calls += 1;
            // Take completions that arrived between the poll and the clearing.
            self.turn(completions);
        }
        completions.len() - before
    }

    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        self.turn(completions);
        completions.len() - before
    }

    fn arrival(&self) -> Arrival {
        Arrival::Seen
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let before = completions.len();
        self.turn(completions);
        let in_flight = self.taken + (completions.len() - before) as u32;
        let clock = WaitClock::start(options, in_flight);
        let mut hot_until = Instant::now() + LOOK;
        loop {
            let got = completions.len() - before;
            let now = Instant::now();
            if clock.is_over(got, now) {
                break;
            }
            let end = clock.end(got);
            if self.taken == 0 && end.is_none() && self.wake.is_none() {
                break;
            }
            let is_woken = self.wake.as_ref().is_some_and(|wake| wake.is_signalled());
            let is_hot = self.taken > 0 && now < hot_until && !is_woken;
            if !(is_hot || self.taken > 0 && self.queue.listen()) {
                let woken = self.sleep(end);
                if !self.is_watched {
                    self.queue.be_quiet();
                }
                if woken {
                    self.turn(completions);
                    break;
                }
            }
            self.turn(completions);
            if completions.len() - before > got {
                hot_until = Instant::now() + LOOK;
            }
            std::hint::spin_loop();
        }
        completions.len() - before
    }

    fn in_flight(&self) -> u32 {
        self.taken
    }

    fn statistics(&self) -> ChannelStatistics {
        self.statistics
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.is_watched = true;
        if self.queue.listen() {
            let _ = rustix::io::write(&self.queue.call, &1u64.to_ne_bytes());
        }
        Ok(Some(self.queue.call.as_fd()))
    }
}

impl Drop for VhostUserChannel {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        while self.taken > 0 {
            let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
            self.wait(&mut completions, one);
            completions.clear();
        }
        self.queue.take_back(&self.link, self.seen);
        self.link.remove_call(&self.queue.call);
        for id in self.arenas.drain(..) {
            self.link.remove_arena(id);
        }
        self.link.return_queue(self.number);
    }
}
