//! Several channels of one thread, which submits to any of them and waits for all.
//!
//! Invariants:
//! - No thread sleeps on a descriptor whose completions were taken already. Members with nothing in
//!   flight are settled first. If only one member has requests, the thread sleeps in that member's
//!   own way.
//! - No thread sleeps while a member whose completions must be polled ([`Arrival::Polled`]) has
//!   requests. Such a wait makes no system call.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::channel::member::MemberChannel;
use crate::channel::poller::{EarlyQueue, PollSet};
use crate::seam::device::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, IoChannel, WaitOptions,
};
use crate::seam::error::Result;
use crate::seam::request::{Completion, Request};
use crate::seam::sleep::{WaitClock, sleep};
use crate::seam::wake::WakeEvent;

/// The time for which a wait for several channels polls for completions that come without a system
/// call, before it sleeps.
const LOOK_MAX: Duration = Duration::from_millis(1);
/// The number of polls between two checks of the clock.
const LOOKS: u32 = 16;

/// Channels that one thread waits for together.
pub struct ChannelGroup {
    members: Vec<MemberChannel>,
    /// The completions of all members as one descriptor. `None` with one member, or if no member
    /// has a descriptor.
    set: Option<PollSet>,
    wake: Option<Arc<WakeEvent>>,
    /// The system calls of sleeps for several members.
    system_calls: u64,
}

impl ChannelGroup {
    /// Opens a channel to each device, numbered in the order of `devices`. The wake event is that
    /// of the first device's options. Call it on the thread that will use the channels.
    ///
    /// # Errors
    /// The errors of [`BlockDevice::open_channel`] for any of the devices.
    pub fn open<'a>(
        devices: impl IntoIterator<Item = (&'a dyn BlockDevice, &'a ChannelOptions)>,
    ) -> Result<Self> {
        let devices: Vec<_> = devices.into_iter().collect();
        let wake = devices.first().and_then(|(_, options)| options.wake.clone());
        let alone = devices.len() == 1;
        let open = |(device, options): (&dyn BlockDevice, &ChannelOptions)| {
            // In a group of several, the group itself listens to the event.
            let wake = options.wake.clone().filter(|_| alone);
            device.open_channel(&ChannelOptions { wake, ..options.clone() })
        };
        Self::of(devices.into_iter().map(open).collect::<Result<_>>()?, wake)
    }

    /// Groups open channels. A single channel must have been opened with `wake`; of several
    /// channels, none may have been.
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

    /// Submits a request to a member, like [`IoChannel::submit`].
    ///
    /// # Errors
    /// Returns the request if the member's queue is full.
    #[inline]
    pub fn submit(&mut self, member: usize, request: Request) -> std::result::Result<(), Request> {
        self.members[member].submit(request)
    }

    /// Rings the doorbells of the members that have new requests.
    #[inline]
    pub fn kick(&mut self) {
        self.members.iter_mut().for_each(MemberChannel::ring);
    }

    /// Polls all members, like [`IoChannel::poll`].
    pub fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        let found = self.members.iter_mut().map(|member| member.poll(completions)).sum();
        if found == 0 && self.set.is_some() {
            self.members.iter_mut().for_each(|member| member.settle(completions));
        }
        found
    }

    /// Waits for completions of any member, like [`IoChannel::wait`].
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
            // If one completion was found by polling, the next one is likely to be found too.
            let looks = found > 0 && self.arrival() != Arrival::Called;
            if alone.is_none()
                && !looks
                && self.sleep(clock.rest(taken, clock.end(taken), now).timeout)
            {
                return taken + self.look(completions);
            }
        }
    }

    /// Waits in the manner of the only member that has requests. Returns `None` if no member or
    /// several members have requests, or if the member would not notice the wake event.
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

    /// Rings the doorbells and takes the available completions. If completions come into memory,
    /// the call polls for a while. If nothing else announces them, it polls until there is one,
    /// `limit` is over or the wake event is signalled.
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

    /// Returns the arrival of the members that have requests, like [`IoChannel::arrival`].
    pub(crate) fn arrival(&self) -> Arrival {
        let busy = self.members.iter().filter(|member| member.channel.in_flight() > 0);
        Arrival::of_all(busy.map(|member| member.channel.arrival()))
    }

    /// Polls all members, like [`IoChannel::look`].
    pub fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        let busy = self.members.iter_mut().filter(|member| member.channel.in_flight() > 0);
        busy.map(|member| member.channel.look(completions)).sum()
    }

    /// Sleeps once for several members, after a poll that found nothing, unless a member must be
    /// polled. Returns whether the wake event is signalled.
    pub(crate) fn sleep(&mut self, timeout: Option<Duration>) -> bool {
        if self.arrival() == Arrival::Polled {
            return self.is_woken();
        }
        self.system_calls += 1;
        sleep(self.set.as_ref().map(AsFd::as_fd), self.wake.as_deref(), timeout)
    }

    /// Returns the number of requests taken and not yet returned.
    pub fn in_flight(&self) -> u32 {
        self.members.iter().map(|member| member.channel.in_flight()).sum()
    }

    /// Whether a member has requests whose completion no descriptor announces.
    pub(crate) fn is_unsignalled(&self) -> bool {
        self.members.iter().any(MemberChannel::is_unsignalled)
    }

    /// Returns the counters of all members, and of the sleeps for them.
    pub fn statistics(&self) -> ChannelStatistics {
        let own =
            ChannelStatistics { system_calls: self.system_calls, ..ChannelStatistics::default() };
        self.members.iter().fold(own, |sum, member| sum.plus(member.channel.statistics()))
    }

    /// Returns a descriptor for all members and for the completions in `early`, like
    /// [`IoChannel::completion_fd`].
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
        // If no member needs waiting for, neither does the group.
        let Some(set) = &self.set else { return Ok(None) };
        if early.has_no_event() {
            set.add(early.event()?)?;
        }
        Ok(Some(set.as_fd()))
    }
}
