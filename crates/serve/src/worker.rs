//! A worker: a thread that serves queues, and controllers that have several.
//!
//! Invariants:
//! - a unit is in `busy`, and is turned in every round, or it has been asked to be kicked
//!   (`Unit::listen`) and waits in the epoll set;
//! - the worker sleeps only while `busy` is empty, and after it has looked for commands once more.

use qpair_memory::locks::Mutex;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result, WakeEvent};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::poll_time::PollTime;
use crate::unit::{Start, Stopped, Unit};

/// The number of rounds between two checks for kicks while other queues are busy.
const ROUNDS: u32 = 64;
/// The number of rounds between two looks at the clock.
const CLOCK_ROUNDS: u32 = 8;
/// The longest sleep while requests are under way: channels check their time-outs only when they
/// are polled.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The unit of epoll_wait(2).
const MILLISECOND: Duration = Duration::from_millis(1);
/// The number of the event for commands in the epoll set.
const COMMANDS: u64 = u64::MAX;

/// The number of a queue, different from those on all other workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueId(pub(crate) u64);

enum Command {
    Start(QueueId, Start, mpsc::SyncSender<Result<()>>),
    Stop(QueueId, mpsc::SyncSender<Option<Stopped>>),
    End,
}

#[derive(Debug)]
struct Mailbox {
    commands: Mutex<VecDeque<Command>>,
    has_news: AtomicBool,
    wake: WakeEvent,
    times: Times,
}

/// The thread of a worker, and how long it has slept.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) started: Instant,
    pub(crate) idle_ns: AtomicU64,
    pub(crate) tid: AtomicU32,
    pub(crate) poll: bool,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Start(..) => "Start",
            Self::Stop(..) => "Stop",
            Self::End => "End",
        })
    }
}

/// A handle to a worker. Dropping it stops the worker's queues and ends its thread.
#[derive(Debug)]
pub(crate) struct Worker {
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread. With `poll`, its queues never go idle.
    pub(crate) fn start(name: &str, poll: bool) -> Result<Self> {
        let limit = |cause: std::io::Error, what: &str| {
            Error::new(ErrorKind::Limit, what).caused_by(cause).hint("raise ulimit -n or ulimit -u")
        };
        let wake = WakeEvent::new().map_err(|cause| limit(cause, "an event for a worker"))?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| limit(errno.into(), "an epoll set for a worker"))?;
        epoll::add(&set, wake.as_fd(), EventData::new_u64(COMMANDS), EventFlags::IN)
            .map_err(|errno| limit(errno.into(), "an epoll set for a worker"))?;
        let mailbox = Arc::new(Mailbox {
            commands: Mutex::default(),
            has_news: AtomicBool::new(false),
            wake,
            times: Times {
                started: Instant::now(),
                idle_ns: AtomicU64::new(0),
                tid: AtomicU32::new(0),
                poll,
            },
        });
        let its = mailbox.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || Turner::new(its, set, poll).run())
            .map_err(|cause| Error::thread(cause, "starting a worker"))?;
        Ok(Self { mailbox, thread: Some(thread) })
    }

    pub(crate) fn times(&self) -> &Times {
        &self.mailbox.times
    }

    fn send(&self, command: Command) {
        let mut commands = self.mailbox.commands.lock();
        commands.push_back(command);
        self.mailbox.has_news.store(true, Ordering::Release);
        drop(commands);
        self.mailbox.wake.wake();
    }

    /// Adds a queue to the worker and starts it on the worker's thread.
    ///
    /// # Errors
    /// The error of `start`; `Gone` if the worker has ended.
    pub(crate) fn add(&self, id: QueueId, start: Start) -> Result<()> {
        let (sender, answer) = mpsc::sync_channel(1);
        self.send(Command::Start(id, start, sender));
        answer.recv().unwrap_or_else(|_| Err(Error::new(ErrorKind::Gone, "a worker has ended")))
    }

    /// Removes a queue from the worker after all its requests under way have ended.
    pub(crate) fn remove(&self, id: QueueId) -> Option<Stopped> {
        let (sender, answer) = mpsc::sync_channel(1);
        self.send(Command::Stop(id, sender));
        answer.recv().ok().flatten()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.send(Command::End);
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked will not report anything.
            let _ = thread.join();
        }
    }
}

struct Served {
    id: QueueId,
    queue: Box<dyn Unit>,
    /// The time at which the queue last had work.
    busy_at: Instant,
    /// The time at which the queue last went idle.
    idle_at: Instant,
    poll_time: PollTime,
    /// Whether a descriptor signals completions. Without one the queue stays busy while requests
    /// are under way.
    has_completion_fd: bool,
}

/// The state of the worker's thread.
struct Turner {
    mailbox: Arc<Mailbox>,
    set: OwnedFd,
    poll: bool,
    busy: Vec<Served>,
    idle: HashMap<QueueId, Served>,
    events: Vec<epoll::Event>,
    rounds: u32,
    /// The time of a round shortly before.
    now: Instant,
    /// The time at which idle queues with requests under way were last turned without an event.
    watched_at: Instant,
}

impl Turner {
    fn new(mailbox: Arc<Mailbox>, set: OwnedFd, poll: bool) -> Self {
        Self {
            mailbox,
            set,
            poll,
            busy: Vec::new(),
            idle: HashMap::new(),
            events: Vec::with_capacity(64),
            rounds: 0,
            now: Instant::now(),
            watched_at: Instant::now(),
        }
    }

    fn run(mut self) {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        self.mailbox.times.tid.store(tid.unsigned_abs(), Ordering::Relaxed);
        loop {
            if self.mailbox.has_news.load(Ordering::Acquire) && !self.obey() {
                return;
            }
            let progress = self.round();
            self.rounds += 1;
            if self.busy.is_empty() {
                self.sleep();
            } else if self.rounds >= ROUNDS {
                self.rounds = 0;
                if !self.idle.is_empty() {
                    self.look(Some(Duration::ZERO));
                    self.visit();
                }
            } else if !progress {
                std::hint::spin_loop();
            }
        }
    }

    /// Turns each busy queue once. Returns whether one had something to do.
    fn round(&mut self) -> bool {
        let (mut progress, mut at) = (false, 0);
        // A look at the clock takes longer than a round that finds nothing.
        if self.rounds.is_multiple_of(CLOCK_ROUNDS) {
            self.now = Instant::now();
        }
        let now = self.now;
        while let Some(served) = self.busy.get_mut(at) {
            at += 1;
            if served.queue.turn() {
                progress = true;
                served.busy_at = now;
                continue;
            }
            let is_watched = !served.has_completion_fd && served.queue.is_busy();
            let quiet = now.saturating_duration_since(served.busy_at);
            let is_hasty = served.queue.sleeps_at_once();
            if self.poll || is_watched || !is_hasty && quiet < served.poll_time.time() {
                continue;
            }
            if served.queue.listen() {
                at -= 1;
                let mut served = self.busy.swap_remove(at);
                served.idle_at = now;
                self.idle.insert(served.id, served);
            } else {
                served.queue.be_quiet();
            }
        }
        progress
    }

    fn sleep(&mut self) {
        let is_waiting = self.idle.values().any(|served| served.queue.is_busy());
        let nap = self.idle.values().filter_map(|served| served.queue.nap()).min();
        self.mailbox.wake.prepare();
        if !self.mailbox.has_news.load(Ordering::SeqCst) {
            let start = Instant::now();
            self.look(nap.or(is_waiting.then_some(SLEEP_MAX)));
            let slept_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.mailbox.times.idle_ns.fetch_add(slept_ns, Ordering::Relaxed);
        }
        self.mailbox.wake.awake();
        self.visit();
    }

    /// Turns the idle queues that must be looked at without an event.
    fn visit(&mut self) {
        let naps = |served: &&mut Served| served.queue.nap().is_some();
        let mut roused = Vec::new();
        for served in self.idle.values_mut().filter(naps) {
            if served.queue.turn() {
                roused.push(served.id);
            }
        }
        for id in roused {
            self.rouse(id, false);
        }
    }

    /// Waits for kicks and completions, and makes their queues busy.
    fn look(&mut self, at_most: Option<Duration>) {
        let mut time = at_most.and_then(|time| Timespec::try_from(time).ok());
        if let Some(nap) = time.filter(|_| at_most.is_some_and(|time| time < MILLISECOND)) {
            // epoll_wait(2) counts in whole milliseconds, so shorter sleeps use ppoll(2).
            let set = [PollFd::from_borrowed_fd(self.set.as_fd(), PollFlags::IN)];
            let _ = rustix::event::poll(&mut { set }, Some(&nap));
            time = Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        self.events.clear();
        let capacity = rustix::buffer::spare_capacity(&mut self.events);
        // Whether the wait fails or not, the next round turns the queues.
        let count = epoll::wait(&self.set, capacity, time.as_ref()).unwrap_or(0);
        let events = std::mem::take(&mut self.events);
        for event in &events {
            let data = event.data.u64();
            if data != COMMANDS {
                self.rouse(QueueId(data >> 1), data & 1 != 0);
            }
        }
        self.events = events;
        let is_time = at_most != Some(Duration::ZERO) && self.watched_at.elapsed() >= SLEEP_MAX;
        if count == 0 && is_time {
            self.watched_at = Instant::now();
            let waiting = self.idle.values().filter(|served| served.queue.is_busy());
            for id in waiting.map(|served| served.id).collect::<Vec<_>>() {
                self.rouse(id, false);
            }
        }
    }

    fn rouse(&mut self, id: QueueId, is_kick: bool) {
        let Some(mut served) = self.idle.remove(&id) else { return };
        if is_kick {
            served.queue.count_kick();
        }
        // The thread may have slept since it last looked at the clock.
        self.now = Instant::now();
        served.busy_at = self.now;
        served.poll_time.learn(served.busy_at.saturating_duration_since(served.idle_at));
        served.queue.be_quiet();
        self.busy.push(served);
    }

    /// Carries out the commands of other threads. Returns false if the worker is to end.
    fn obey(&mut self) -> bool {
        loop {
            let command = {
                let mut commands = self.mailbox.commands.lock();
                let command = commands.pop_front();
                if commands.is_empty() {
                    self.mailbox.has_news.store(false, Ordering::Release);
                }
                command
            };
            match command {
                None => return true,
                // The caller may have gone, so sending may fail.
                Some(Command::Start(id, start, answer)) => {
                    let _ = answer.send(self.add(id, start));
                }
                Some(Command::Stop(id, answer)) => {
                    let _ = answer.send(self.remove(id));
                }
                Some(Command::End) => {
                    let idle = self.idle.drain().map(|(_, served)| served);
                    for served in self.busy.drain(..).chain(idle) {
                        served.queue.stop();
                    }
                    return false;
                }
            }
        }
    }

    fn add(&mut self, id: QueueId, start: Start) -> Result<()> {
        let mut queue = start()?;
        let failed =
            |errno: rustix::io::Errno| Error::os(errno.into(), "adding a queue to an epoll set");
        if let Some(kick) = queue.kick_fd() {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&self.set, kick, EventData::new_u64(id.0 << 1 | 1), flags)
                .map_err(failed)?;
        }
        let completion = queue.completion_fd()?;
        let has_completion_fd = completion.is_some();
        if let Some(completion) = completion {
            epoll::add(&self.set, completion, EventData::new_u64(id.0 << 1), EventFlags::IN)
                .map_err(failed)?;
        }
        self.now = Instant::now();
        let (now, poll_time) = (self.now, PollTime::new());
        self.busy.push(Served {
            id,
            queue,
            busy_at: now,
            idle_at: now,
            poll_time,
            has_completion_fd,
        });
        Ok(())
    }

    fn remove(&mut self, id: QueueId) -> Option<Stopped> {
        let Served { mut queue, .. } = match self.busy.iter().position(|served| served.id == id) {
            Some(at) => self.busy.swap_remove(at),
            None => self.idle.remove(&id)?,
        };
        // Other processes may share the open files, so closing them would not remove them from the
        // set.
        if let Some(kick) = queue.kick_fd() {
            let _ = epoll::delete(&self.set, kick);
        }
        if let Ok(Some(completion)) = queue.completion_fd() {
            let _ = epoll::delete(&self.set, completion);
        }
        Some(queue.stop())
    }
}
