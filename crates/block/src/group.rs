//! Several channels of one thread, which submits to any of them and waits for all.
//!
//! Invariants:
//! - no thread sleeps on a descriptor that tells of completions that were taken already. Members with nothing in flight are settled first,
//!   and a member that alone has requests sleeps in its own way, as it would without the others;
//! - no thread sleeps while a member whose completions have to be looked for ([`Arrival::Polled`]) has requests. Such a wait makes no system
//!   call.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, IoChannel, WaitOptions,
};
use crate::error::Result;
use crate::member::MemberChannel;
use crate::poller::{EarlyQueue, PollSet};
use crate::request::{Completion, Request};
use crate::sleep::{WaitClock, sleep};
use crate::wake::WakeEvent;

/// How long a wait for several looks for completions that come without a system call, before it sleeps.
const LOOK_MAX: Duration = Duration::from_millis(1);
/// Looks between looks at the clock.
const LOOKS: u32 = 16;

/// Channels that are waited for together.
pub struct ChannelGroup {
    members: Vec<MemberChannel>,
    /// The completions of all as one descriptor. `None` with one member, and where none has a descriptor.
    set: Option<PollSet>,
    wake: Option<Arc<WakeEvent>>,
    /// Sleeps for several.
    system_calls: u64,
}

impl ChannelGroup {
    /// Opens a channel to each device, numbered as they come. The wake event is that of the first's options. Call it on
    /// the thread that will use them.
    ///
    /// # Errors
    /// As [`BlockDevice::open_channel`] of any.
    pub fn open<'a>(
        devices: impl IntoIterator<Item = (&'a dyn BlockDevice, &'a ChannelOptions)>,
    ) -> Result<Self> {
        let devices: Vec<_> = devices.into_iter().collect();
        let wake = devices.first().and_then(|(_, options)| options.wake.clone());
        let alone = devices.len() == 1;
        let open = |(device, options): (&dyn BlockDevice, &ChannelOptions)| {
            // Among several, the group listens to the event itself.
            let wake = options.wake.clone().filter(|_| alone);
            device.open_channel(&ChannelOptions { wake, ..options.clone() })
        };
        Self::of(devices.into_iter().map(open).collect::<Result<_>>()?, wake)
    }

    /// Groups open channels. A single channel must have been opened with `wake`; of several
    /// channels, no one may know it.
    pub(crate) fn of(
        channels: Vec<Box<dyn IoChannel>>,
        wake: Option<Arc<WakeEvent>>,
    ) -> Result<Self> {
        let mut set = None;
        let alone = channels.len() == 1;
        let member = |channel| match alone {
            true => Ok(MemberChannel::alone(channel)),
            false => MemberChannel::among(channel, &mut set),
        };
        let members = channels.into_iter().map(member).collect::<Result<Vec<_>>>()?;
        Ok(Self { members, set, wake, system_calls: 0 })
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// As [`IoChannel::submit`] of a member.
    ///
    /// # Errors
    /// The request, if the member's queue is full.
    #[inline]
    pub fn submit(&mut self, member: usize, request: Request) -> std::result::Result<(), Request> {
        self.members[member].submit(request)
    }

    /// Rings the doorbells of members that were submitted to.
    #[inline]
    pub fn kick(&mut self) {
        self.members.iter_mut().for_each(MemberChannel::ring);
    }

    /// As [`IoChannel::poll`], of all.
    pub fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let found = self.members.iter_mut().map(|member| member.poll(completions)).sum();
        if found == 0 && self.set.is_some() {
            self.members.iter_mut().for_each(|member| member.settle(completions));
        }
        found
    }

    /// As [`IoChannel::wait`], for completions of any member.
    #[inline]
    pub fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        match self.members.as_mut_slice() {
            [only] => only.wait(completions, options),
            _ => self.wait_for_several(completions, options),
        }
    }

    fn wait_for_several(
        &mut self,
        completions: &mut Vec<Completion>,
        options: WaitOptions,
    ) -> usize {
        let in_flight = self.in_flight();
        let clock = WaitClock::start(options, in_flight);
        let woken_by_none = options.timeout.is_none() && self.wake.is_none();
        let (mut taken, mut now) = (0, Instant::now());
        loop {
            let rest = clock.rest(taken, clock.end(taken), now);
            let alone = self.wait_alone(completions, rest);
            let found = alone.unwrap_or_else(|| self.look_and_poll(completions, rest.timeout));
            taken += found;
            now = Instant::now();
            if clock.is_over(taken, now) || (in_flight == 0 && woken_by_none) {
                return taken;
            }
            // Where one was seen, the next is seen too.
            let looks = found > 0 && self.arrival() != Arrival::Called;
            if alone.is_none()
                && !looks
                && self.sleep(clock.rest(taken, clock.end(taken), now).timeout)
            {
                return taken + self.look(completions);
            }
        }
    }

    /// Waits as the one member does that has requests. `None` if several have, or none, or if the member would not see the
    /// wake event.
    pub(crate) fn wait_alone(
        &mut self,
        completions: &mut Vec<Completion>,
        options: WaitOptions,
    ) -> Option<usize> {
        if let [only] = self.members.as_mut_slice() {
            return Some(only.wait(completions, options));
        }
        if self.wake.is_some() {
            return None;
        }
        let mut busy = self.members.iter_mut().filter(|member| member.channel.in_flight() > 0);
        match (busy.next(), busy.next()) {
            (Some(only), None) => Some(only.wait(completions, options)),
            _ => None,
        }
    }

    /// Rings the doorbells and takes what is there. Where completions come into memory it looks for a while, and where nothing else
    /// tells of them until there is one, `limit` is over or the wake event is signalled.
    pub(crate) fn look_and_poll(
        &mut self,
        completions: &mut Vec<Completion>,
        limit: Option<Duration>,
    ) -> usize {
        self.kick();
        let limit = match self.arrival() {
            Arrival::Called => return self.poll(completions),
            Arrival::Seen => Some(limit.unwrap_or(LOOK_MAX).min(LOOK_MAX)),
            Arrival::Polled => limit,
        };
        let begin = Instant::now();
        loop {
            for _ in 0..LOOKS {
                let found = self.look(completions);
                if found > 0 {
                    return found;
                }
                std::hint::spin_loop();
            }
            if self.is_woken() || limit.is_some_and(|limit| begin.elapsed() >= limit) {
                break;
            }
        }
        if self.arrival() == Arrival::Polled { 0 } else { self.poll(completions) }
    }

    /// Whether the wake event is signalled. The members do not check it.
    fn is_woken(&self) -> bool {
        self.wake.as_ref().is_some_and(|wake| wake.is_signalled())
    }

    /// As [`IoChannel::arrival`], of the members that have requests.
    pub(crate) fn arrival(&self) -> Arrival {
        let busy = self.members.iter().filter(|member| member.channel.in_flight() > 0);
        Arrival::of_all(busy.map(|member| member.channel.arrival()))
    }

    /// As [`IoChannel::look`], at all.
    pub fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let busy = self.members.iter_mut().filter(|member| member.channel.in_flight() > 0);
        busy.map(|member| member.channel.look(completions)).sum()
    }

    /// Sleeps once for several, after a poll that found nothing, unless a member has to be looked at; whether the wake event is signalled.
    pub(crate) fn sleep(&mut self, timeout: Option<Duration>) -> bool {
        if self.arrival() == Arrival::Polled {
            return self.is_woken();
        }
        self.system_calls += 1;
        sleep(self.set.as_ref().map(AsFd::as_fd), self.wake.as_deref(), timeout)
    }

    /// Requests taken and not yet returned.
    pub fn in_flight(&self) -> u32 {
        self.members.iter().map(|member| member.channel.in_flight()).sum()
    }

    /// Whether a member has requests whose completion no descriptor announces.
    pub(crate) fn is_untold(&self) -> bool {
        self.members.iter().any(MemberChannel::is_untold)
    }

    /// Counters of all, and of the sleeps for them.
    pub fn statistics(&self) -> ChannelStatistics {
        let own =
            ChannelStatistics { system_calls: self.system_calls, ..ChannelStatistics::default() };
        self.members.iter().fold(own, |sum, member| sum.plus(member.channel.statistics()))
    }

    /// As [`IoChannel::completion_fd`], for all and for what `early` tells of.
    pub(crate) fn completion_fd(
        &mut self,
        early: &mut EarlyQueue,
    ) -> Result<Option<BorrowedFd<'_>>> {
        if self.set.is_none()
            && let [only] = self.members.as_mut_slice()
            && let Some(fd) = only.channel.completion_fd()?
        {
            let set = PollSet::new()?;
            set.add(fd)?;
            self.set = Some(set);
        }
        // Where no member needs waiting for, neither does the group.
        let Some(set) = &self.set else { return Ok(None) };
        if early.has_no_event() {
            set.add(early.event()?)?;
        }
        Ok(Some(set.as_fd()))
    }
}
