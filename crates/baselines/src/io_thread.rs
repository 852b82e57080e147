//! One thread for all I/O of a device: other threads hand it their requests, and get their
//! completions from it.
//!
//! Section 3.4 of the study compares this design (S3) with a channel for each thread. The device
//! exists for that comparison. Its cost is two hand-overs for each request, and the I/O rate of one
//! core at most.
//!
//! Invariant: a request is in one place, which is the channel that took it, the lane between both
//! threads, or the channel below. The requests and completions in a lane, and whether the other
//! thread sleeps for them, are protected by the lane's lock.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use qpair_block::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, Completion, DeviceInfo, Error,
    ErrorKind, IoChannel, PollSet, Request, Result, WaitClock, WaitOptions, WakeEvent, sleep,
};
use qpair_memory::locks::Mutex;

/// A device whose channels all submit and complete on one thread. The thread has a channel of the
/// device below for each of them.
///
/// The thread sleeps when nothing is in flight or submitted, and ends when the device and its
/// channels are gone.
#[derive(Debug)]
pub struct IoThreadDevice {
    info: DeviceInfo,
    inner: Arc<dyn BlockDevice>,
    hub: Arc<Hub>,
}

/// The state by which channels reach the I/O thread.
#[derive(Debug)]
struct Hub {
    wake: WakeEvent,
    joining: Mutex<Vec<Joining>>,
    is_closed: AtomicBool,
}

/// A channel that waits to be opened.
#[derive(Debug)]
struct Joining {
    lane: Arc<Lane>,
    options: ChannelOptions,
    opened: SyncSender<Result<()>>,
}

/// The queue between a channel and the I/O thread.
#[derive(Debug)]
struct Lane {
    state: Mutex<LaneState>,
    /// Readable while `state.told` is set.
    event: WakeEvent,
}

#[derive(Debug, Default)]
struct LaneState {
    submitted: Vec<Request>,
    ended: Vec<Completion>,
    statistics: ChannelStatistics,
    /// Whether the channel sleeps for the event, or a thread may sleep for its descriptor.
    is_asleep: bool,
    is_watched: bool,
    told: bool,
    /// Whether the channel was dropped.
    is_closed: bool,
}

impl IoThreadDevice {
    /// Starts the thread for `inner`.
    ///
    /// # Errors
    /// `Limit` if the process has no descriptors or threads left.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Result<Self> {
        let info = inner.info().behind("iothread", "", "one thread for all I/O");
        let wake = WakeEvent::new().map_err(|error| Error::os(error, "creating an eventfd"))?;
        let hub = Arc::new(Hub { wake, joining: Mutex::default(), is_closed: false.into() });
        let set = PollSet::new()?;
        let (for_thread, below) = (hub.clone(), inner.clone());
        let run =
            move || IoThread { hub: for_thread, inner: below, set, members: Vec::new() }.run();
        std::thread::Builder::new()
            .name("qpair-io".to_owned())
            .spawn(run)
            .map_err(|error| Error::os(error, "starting a thread for I/O"))?;
        Ok(Self { info, inner, hub })
    }
}

impl Drop for IoThreadDevice {
    fn drop(&mut self) {
        self.hub.is_closed.store(true, Ordering::SeqCst);
        self.hub.wake.wake();
    }
}

impl BlockDevice for IoThreadDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn removed(&self) -> Option<String> {
        self.inner.removed()
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.inner.grow(size_bytes)
    }

    fn shrinks(&self) -> bool {
        self.inner.shrinks()
    }

    fn shrink(&self, size_bytes: u64) -> Result<()> {
        self.inner.shrink(size_bytes)
    }

    fn reset(&self) -> Result<()> {
        self.inner.reset()
    }

    fn resets(&self) -> u64 {
        self.inner.resets()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        let depth = options.depth as usize;
        let state = LaneState {
            submitted: Vec::with_capacity(depth),
            ended: Vec::with_capacity(depth),
            ..LaneState::default()
        };
        let event = WakeEvent::new().map_err(|error| Error::os(error, "creating an eventfd"))?;
        let lane = Arc::new(Lane { state: Mutex::new(state), event });
        let (opened, answer) = sync_channel(1);
        let below = ChannelOptions { wake: None, ..options.clone() };
        self.hub.joining.lock().push(Joining { lane: lane.clone(), options: below, opened });
        self.hub.wake.wake();
        let gone = |_| Err(Error::new(ErrorKind::Gone, "the thread for I/O has ended"));
        answer.recv().unwrap_or_else(gone)?;
        Ok(Box::new(IoThreadChannel {
            hub: self.hub.clone(),
            lane,
            depth: options.depth,
            in_flight: 0,
            pending: Vec::with_capacity(depth),
            wake: options.wake.clone(),
            system_calls: 0,
        }))
    }
}

/// The thread, and its end of each channel.
struct IoThread {
    hub: Arc<Hub>,
    inner: Arc<dyn BlockDevice>,
    /// The descriptors of all channels below.
    set: PollSet,
    members: Vec<LaneEnd>,
}

impl IoThread {
    fn run(mut self) {
        loop {
            self.open_channels();
            let mut moved = false;
            self.members.retain_mut(|member| {
                moved |= member.turn();
                !member.is_over()
            });
            if moved {
                continue;
            }
            self.hub.wake.prepare();
            if self.is_over() {
                return;
            }
            // The completions of some drives can only be found by polling.
            if !self.has_work() && !self.members.iter().any(LaneEnd::is_polled) {
                if let Some(first) = self.members.first_mut() {
                    first.sleeps += 1;
                }
                sleep(Some(self.set.as_fd()), Some(&self.hub.wake), None);
            }
            self.hub.wake.awake();
        }
    }

    fn open_channels(&mut self) {
        let joining = std::mem::take(&mut *self.hub.joining.lock());
        for Joining { lane, options, opened } in joining {
            let outcome = self.open_channel(&options).map(|channel| {
                let depth = options.depth as usize;
                self.members.push(LaneEnd {
                    lane,
                    channel,
                    backlog: VecDeque::with_capacity(depth),
                    ended: Vec::with_capacity(depth),
                    sleeps: 0,
                });
            });
            // The caller that opens the channel waits for this.
            let _ = opened.send(outcome);
        }
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        let mut channel = self.inner.open_channel(options)?;
        if let Some(descriptor) = channel.completion_fd()? {
            self.set.add(descriptor)?;
        }
        Ok(channel)
    }

    fn is_over(&self) -> bool {
        self.hub.is_closed.load(Ordering::SeqCst) && self.members.is_empty()
    }

    /// Whether a caller asked for anything since the last turn.
    fn has_work(&self) -> bool {
        let asks = |member: &LaneEnd| {
            let state = member.lane.state.lock();
            !state.submitted.is_empty() || state.is_closed
        };
        !self.hub.joining.lock().is_empty() || self.members.iter().any(asks)
    }
}

/// The thread's end of a lane.
struct LaneEnd {
    lane: Arc<Lane>,
    channel: Box<dyn IoChannel>,
    /// Requests taken from the lane that the channel below had no room for.
    backlog: VecDeque<Request>,
    ended: Vec<Completion>,
    sleeps: u64,
}

impl LaneEnd {
    /// Passes on submitted requests and completions. Returns whether there were any.
    fn turn(&mut self) -> bool {
        self.backlog.extend(self.lane.state.lock().submitted.drain(..));
        let mut moved = false;
        while let Some(request) = self.backlog.pop_front() {
            if let Err(request) = self.channel.submit(request) {
                self.backlog.push_front(request);
                break;
            }
            moved = true;
        }
        if moved {
            self.channel.kick();
        }
        let found = match self.is_polled() {
            true => self.channel.look(&mut self.ended),
            false => self.channel.poll(&mut self.ended),
        };
        if found > 0 {
            moved = true;
            let mut state = self.lane.state.lock();
            state.ended.append(&mut self.ended);
            state.statistics = self.channel.statistics();
            state.statistics.system_calls += self.sleeps;
            if !state.told && (state.is_asleep || state.is_watched) {
                state.told = true;
                state.statistics.system_calls += 1;
                self.lane.event.signal();
            }
        }
        moved
    }

    /// Whether the I/O thread must poll for the completions of this lane.
    fn is_polled(&self) -> bool {
        self.channel.in_flight() > 0 && self.channel.arrival() == Arrival::Polled
    }

    /// Whether the lane can be removed: its channel was dropped, and no request is queued or in
    /// flight.
    fn is_over(&self) -> bool {
        self.channel.in_flight() == 0 && self.backlog.is_empty() && self.lane.state.lock().is_closed
    }
}

struct IoThreadChannel {
    hub: Arc<Hub>,
    lane: Arc<Lane>,
    depth: u32,
    in_flight: u32,
    /// Requests submitted since the doorbell last rang.
    pending: Vec<Request>,
    wake: Option<Arc<WakeEvent>>,
    system_calls: u64,
}

impl IoChannel for IoThreadChannel {
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.in_flight >= self.depth {
            return Err(request);
        }
        self.in_flight += 1;
        self.pending.push(request);
        Ok(())
    }

    fn kick(&mut self) {
        if !self.pending.is_empty() {
            self.lane.state.lock().submitted.append(&mut self.pending);
            self.hub.wake.wake();
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.kick();
        let mut state = self.lane.state.lock();
        if std::mem::take(&mut state.told) {
            self.lane.event.clear();
            self.system_calls += 1;
        }
        let count = state.ended.len();
        completions.append(&mut state.ended);
        self.in_flight -= count as u32;
        count
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let clock = WaitClock::start(options, self.in_flight);
        let nothing_to_come =
            self.in_flight == 0 && options.timeout.is_none() && self.wake.is_none();
        let mut taken = 0;
        loop {
            taken += self.poll(completions);
            let now = Instant::now();
            if clock.is_over(taken, now) || nothing_to_come {
                return taken;
            }
            {
                let mut state = self.lane.state.lock();
                if !state.ended.is_empty() {
                    continue;
                }
                state.is_asleep = true;
            }
            let rest = clock.rest(taken, clock.end(taken), now);
            let event = Some(self.lane.event.as_fd());
            let is_woken = sleep(event, self.wake.as_deref(), rest.timeout);
            self.system_calls += 1;
            self.lane.state.lock().is_asleep = false;
            if is_woken {
                return taken + self.poll(completions);
            }
        }
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn statistics(&self) -> ChannelStatistics {
        let mut statistics = self.lane.state.lock().statistics;
        statistics.system_calls += self.system_calls;
        statistics
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        let mut state = self.lane.state.lock();
        state.is_watched = true;
        if !state.ended.is_empty() && !std::mem::replace(&mut state.told, true) {
            self.lane.event.signal();
        }
        drop(state);
        Ok(Some(self.lane.event.as_fd()))
    }
}

impl Drop for IoThreadChannel {
    fn drop(&mut self) {
        let mut rest = Vec::new();
        while self.in_flight > 0 {
            let all = WaitOptions {
                want: self.in_flight,
                linger: std::time::Duration::MAX,
                timeout: None,
            };
            // The caller's wake event must not end this wait, so it is dropped.
            self.wake = None;
            self.wait(&mut rest, all);
        }
        self.lane.state.lock().is_closed = true;
        self.hub.wake.wake();
    }
}

#[cfg(test)]
mod tests {
    use qpair_block::{DelayDevice, DelayOptions, RamDevice, RamOptions};
    use qpair_memory::{Arena, ArenaOptions};

    use super::*;

    fn slow_ram() -> Arc<dyn BlockDevice> {
        let ram = RamDevice::new(RamOptions { size_bytes: 1 << 20, ..RamOptions::default() });
        let options = DelayOptions { read_us: 200, write_us: 200, flush_us: 200 };
        Arc::new(DelayDevice::new(Arc::new(ram.unwrap()), options).unwrap())
    }

    #[test]
    fn threads_hand_over_to_one() {
        let device = Arc::new(IoThreadDevice::new(slow_ram()).unwrap());
        let submitter = |number: u64| {
            let device = device.clone();
            move || {
                let arena = Arena::new(4096, 8, ArenaOptions::ordinary_pages()).unwrap();
                let options = ChannelOptions { depth: 8, ..ChannelOptions::default() };
                let mut channel = device.open_channel(&options).unwrap();
                let mut ended = Vec::new();
                for round in 0..20 {
                    for at in 0..8_u64 {
                        let mut buffer = arena.lease().unwrap();
                        buffer.copy_from(0, &[(number * 20 + round) as u8; 4096]);
                        let offset = (number * 8 + at) * 4096;
                        channel.submit(Request::write(offset, 4096, buffer, at)).unwrap();
                    }
                    assert!(channel.submit(Request::flush(9)).is_err(), "the depth is reached");
                    while channel.in_flight() > 0 {
                        let all = WaitOptions {
                            want: 8,
                            linger: std::time::Duration::MAX,
                            timeout: None,
                        };
                        channel.wait(&mut ended, all);
                    }
                    assert_eq!(ended.len(), 8);
                    assert!(ended.drain(..).all(|completion| completion.result.is_ok()));
                }
                assert_eq!(channel.statistics().writes, 160);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|number| drop(scope.spawn(submitter(number)))));
    }

    #[test]
    fn the_thread_outlives_the_device_until_its_last_channel() {
        let inner = slow_ram();
        let device = IoThreadDevice::new(inner.clone()).unwrap();
        let hub = device.hub.clone();
        let mut channel = device.open_channel(&ChannelOptions::default()).unwrap();
        drop(device);
        channel.submit(Request::flush(1)).unwrap();
        let mut ended = Vec::new();
        let one = WaitOptions { want: 1, linger: std::time::Duration::ZERO, timeout: None };
        assert_eq!(channel.wait(&mut ended, one), 1);
        // A request is in flight, so the thread must wait for it.
        channel.submit(Request::flush(2)).unwrap();
        drop(channel);
        // The thread holds the device below and the hub until it ends.
        while Arc::strong_count(&inner) > 1 || Arc::strong_count(&hub) > 1 {
            std::thread::yield_now();
        }
    }
}
