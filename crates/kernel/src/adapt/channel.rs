//! The adaptive channel: one with interrupts, and at times a second one in another way.
//!
//! Invariants:
//! - `base` is open from first to last, so a way back needs nothing that could fail.
//! - New requests go to `other` if `in_other`, and to `base` if not; discards and writes of zeroes
//!   always go to `base`, as not every way has them.
//! - `other` is closed only when nothing is in flight in it. If it is not `in_other`, it drains.
//! - Together the two have at most `depth` requests in flight.
//!
//! Requests in flight have no order, and a flush is a request to the file: neither notices in which
//! of the two it is (docs/design/auto.md).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use qpair_block::{
    Arrival, ChannelOptions, ChannelStatistics, Completion, Error, IoChannel, Op, Request, Result,
    WaitClock, WaitOptions, WakeEvent,
};
use rustix::event::epoll;

use super::group::Group;
use super::process::CHANNELS;
use super::way::Way;
use super::ways::Ways;

/// The number of completions between two looks at the clock.
const LOOK_EVERY: u32 = 64;
/// The longest sleep in one of two channels while the other has requests too.
const SLEEP_MAX: Duration = Duration::from_millis(1);

pub(super) struct Channel {
    base: Box<dyn IoChannel>,
    other: Option<(Way, Box<dyn IoChannel>)>,
    in_other: bool,
    way: Way,
    epoch: u32,
    group: Rc<Group>,
    ways: Arc<Ways>,
    options: ChannelOptions,
    /// The completions until the next look at the clock, and since the last one.
    look_in: u32,
    look_every: u32,
    taken: u32,
    /// The bytes that had been transferred at the last look.
    bytes: u64,
    /// The counters of channels that were closed.
    closed: ChannelStatistics,
    /// A set of the descriptors of both, once a caller has asked for one.
    set: Option<OwnedFd>,
    /// The descriptor of calls, which have none: signalled from a request to a poll that finds
    /// nothing.
    calls: Option<WakeEvent>,
}

/// Opens a channel that changes its way with the other channels of this thread.
pub(super) fn open(ways: &Arc<Ways>, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
    let group = Group::join(ways);
    Ok(Box::new(Channel::on(ways, options, group, LOOK_EVERY)?))
}

impl Channel {
    pub(super) fn on(
        ways: &Arc<Ways>,
        options: &ChannelOptions,
        group: Rc<Group>,
        look_every: u32,
    ) -> Result<Self> {
        let mut channel = Self {
            base: (ways.open)(Way::Interrupts, options)?,
            other: None,
            in_other: false,
            way: Way::Interrupts,
            epoch: group.epoch(),
            group,
            ways: ways.clone(),
            options: options.clone(),
            look_in: look_every,
            look_every,
            taken: 0,
            bytes: 0,
            closed: ChannelStatistics::default(),
            set: None,
            calls: None,
        };
        CHANNELS.fetch_add(1, Ordering::Relaxed);
        channel.ways.adaptation.opened(Way::Interrupts);
        channel.follow();
        Ok(channel)
    }

    fn other_in_flight(&self) -> u32 {
        self.other.as_ref().map_or(0, |(_, other)| other.in_flight())
    }

    /// Counts completions, and changes the way if the group did.
    #[inline]
    fn count(&mut self, got: usize) {
        let got = got as u32;
        self.taken += got;
        if got >= self.look_in {
            self.look(got);
        } else {
            self.look_in -= got;
        }
        let drains = self.other.is_some() && !self.in_other;
        if drains || self.epoch != self.group.epoch() {
            self.follow();
        }
    }

    #[cold]
    fn look(&mut self, got: u32) {
        let statistics = self.statistics();
        let bytes = statistics.read_bytes + statistics.written_bytes;
        let depth = self.in_flight() + got;
        self.group.look(self.taken.into(), bytes - self.bytes, depth);
        (self.taken, self.bytes, self.look_in) = (0, bytes, self.look_every);
    }

    /// Closes what has drained, and goes where the group is.
    #[cold]
    fn follow(&mut self) {
        let (wanted, epoch) = (self.group.way(), self.group.epoch());
        let is_drained = !self.in_other && self.other_in_flight() == 0;
        // A trial comes back to the other way in a moment.
        if is_drained && (self.way != wanted || !self.group.is_in_trial()) {
            self.close_other(wanted);
        }
        if self.way == wanted {
            if self.epoch != epoch {
                self.epoch = epoch;
                self.ways.adaptation.changed(wanted, wanted, &self.group.reason());
            }
            return;
        }
        match &self.other {
            _ if wanted == Way::Interrupts => self.in_other = false,
            Some((way, _)) if *way == wanted => self.in_other = true,
            // The other channel has to drain first. It is closed above.
            Some(_) => {
                self.in_other = false;
                self.move_to(Way::Interrupts);
                return;
            }
            None => match self.open_other(wanted) {
                Ok(()) => self.in_other = true,
                // The group goes back, and this channel with it.
                Err(error) => return self.group.refuse(wanted, &error.to_string()),
            },
        }
        self.epoch = epoch;
        self.move_to(wanted);
        self.group.restart();
    }

    /// Closes the other channel, unless it is the wanted one.
    fn close_other(&mut self, wanted: Way) {
        if let Some((_, other)) = self.other.take_if(|(way, _)| *way != wanted) {
            self.closed = self.closed.plus(other.statistics());
            // A set forgets descriptors that are closed.
            self.calls = None;
            drop(other);
            self.group.restart();
        }
    }

    fn move_to(&mut self, way: Way) {
        self.ways.adaptation.changed(self.way, way, &self.group.reason());
        self.way = way;
    }

    fn open_other(&mut self, way: Way) -> Result<()> {
        let mut other = (self.ways.open)(way, &self.options)?;
        if let Some(set) = &self.set {
            watch_other(set, &mut *other, &mut self.calls)?;
        }
        self.other = Some((way, other));
        Ok(())
    }

    /// Waits while both channels have requests: sleeps in the one in use, and looks at the other
    /// between.
    fn wait_for_both(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let before = completions.len();
        let clock = WaitClock::start(options, self.in_flight());
        self.kick();
        while let Some((_, other)) = &mut self.other {
            self.base.poll(completions);
            other.poll(completions);
            let (taken, now) = (completions.len() - before, Instant::now());
            if clock.is_over(taken, now) {
                break;
            }
            let (base_has, other_has) = (self.base.in_flight() > 0, other.in_flight() > 0);
            let end = clock.end(taken);
            let until = match base_has && other_has {
                true => Some(end.map_or(now + SLEEP_MAX, |end| end.min(now + SLEEP_MAX))),
                false => end,
            };
            let sleeper = match (self.in_other && other_has) || !base_has {
                true => &mut **other,
                false => &mut *self.base,
            };
            let rest = clock.rest(taken, until, now);
            let got = sleeper.wait(completions, rest);
            // A wait that ends early and without completions was ended by the wake event.
            if got == 0 && until.is_none_or(|until| Instant::now() < until) {
                break;
            }
        }
        completions.len() - before
    }
}

impl IoChannel for Channel {
    #[inline]
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        let Some((_, other)) = &mut self.other else { return self.base.submit(request) };
        if self.base.in_flight() + other.in_flight() >= self.options.depth {
            return Err(request);
        }
        if !self.in_other || matches!(request.op, Op::Discard | Op::WriteZeroes) {
            return self.base.submit(request);
        }
        if let Some(calls) = &self.calls
            && !calls.is_signalled()
        {
            calls.signal();
        }
        other.submit(request)
    }

    #[inline]
    fn kick(&mut self) {
        let Some((_, other)) = &mut self.other else { return self.base.kick() };
        other.kick();
        if self.base.in_flight() > 0 {
            self.base.kick();
        }
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let mut got = 0;
        // A caller that sleeps on the set relies on a poll that finds nothing in either.
        if !self.in_other || self.set.is_some() || self.base.in_flight() > 0 {
            got += self.base.poll(completions);
        }
        if let Some((_, other)) = &mut self.other {
            got += other.poll(completions);
        }
        if let Some(calls) = &self.calls
            && got == 0
            && calls.is_signalled()
        {
            calls.clear();
        }
        self.count(got);
        got
    }

    #[inline]
    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let mut got = 0;
        if !self.in_other || self.base.in_flight() > 0 {
            got += self.base.look(completions);
        }
        if let Some((_, other)) = &mut self.other {
            got += other.look(completions);
        }
        self.count(got);
        got
    }

    fn arrival(&self) -> Arrival {
        match &self.other {
            Some((_, other)) if other.in_flight() > 0 => match self.base.in_flight() {
                0 => other.arrival(),
                _ => Arrival::Called,
            },
            _ => self.base.arrival(),
        }
    }

    #[inline]
    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        let got = match &mut self.other {
            None => self.base.wait(completions, options),
            Some((_, other)) if self.in_other && self.base.in_flight() == 0 => {
                other.wait(completions, options)
            }
            Some((_, other)) if !self.in_other && other.in_flight() == 0 => {
                self.base.wait(completions, options)
            }
            Some(_) => self.wait_for_both(completions, options),
        };
        self.count(got);
        got
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.base.in_flight() + self.other_in_flight()
    }

    fn statistics(&self) -> ChannelStatistics {
        let open = self.base.statistics().plus(self.closed);
        self.other.as_ref().map_or(open, |(_, other)| open.plus(other.statistics()))
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        if self.set.is_none() {
            let set = epoll::create(epoll::CreateFlags::CLOEXEC)
                .map_err(|cause| Error::os(cause.into(), "creating a set of descriptors"))?;
            if let Some(fd) = self.base.completion_fd()? {
                watch(&set, fd)?;
            }
            if let Some((_, other)) = &mut self.other {
                watch_other(&set, &mut **other, &mut self.calls)?;
            }
            self.set = Some(set);
        }
        Ok(self.set.as_ref().map(AsFd::as_fd))
    }
}

/// Watches a channel's descriptor, or an event in its place if it has none.
fn watch_other(
    set: &OwnedFd,
    other: &mut dyn IoChannel,
    calls: &mut Option<WakeEvent>,
) -> Result<()> {
    if let Some(fd) = other.completion_fd()? {
        return watch(set, fd);
    }
    let event = WakeEvent::new()
        .map_err(|cause| Error::os(cause, "creating an event for calls to the kernel"))?;
    watch(set, event.as_fd())?;
    *calls = Some(event);
    Ok(())
}

fn watch(set: &OwnedFd, fd: BorrowedFd<'_>) -> Result<()> {
    epoll::add(set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
        .map_err(|cause| Error::os(cause.into(), "adding to a set of descriptors"))
}

impl Drop for Channel {
    fn drop(&mut self) {
        // The two channels wait for their requests as they are dropped.
        CHANNELS.fetch_sub(1, Ordering::Relaxed);
        self.ways.adaptation.closed(self.way);
    }
}
