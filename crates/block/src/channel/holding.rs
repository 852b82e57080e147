//! Shared parts of the channels that hold requests back before they pass them to the channel below.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use crate::channel::poller::{PollSet, Timer};
use crate::seam::device::{IoChannel, WaitOptions};
use crate::seam::error::Result;
use crate::seam::request::Completion;
use crate::seam::sleep::WaitClock;

/// A channel that holds each request until it is due.
pub(crate) trait Holding: IoChannel {
    /// Returns the channel below.
    fn below(&mut self) -> &mut dyn IoChannel;

    /// Returns the time at which the next held request is due; `None` if none is held.
    fn next_due(&self) -> Option<Instant>;

    /// Whether another thread can end the sleep of this channel.
    fn has_wake(&self) -> bool;
}

/// Implements [`IoChannel::wait`] for a channel that holds requests back.
pub(crate) fn wait_holding(
    channel: &mut impl Holding,
    completions: &mut Vec<Completion>,
    options: WaitOptions,
) -> usize {
    let in_flight = channel.in_flight();
    let clock = WaitClock::start(options, in_flight);
    let mut taken = 0;
    loop {
        taken += channel.poll(completions);
        let now = Instant::now();
        let nothing_to_come = in_flight == 0 && options.timeout.is_none() && !channel.has_wake();
        if clock.is_over(taken, now) || nothing_to_come {
            return taken;
        }
        // The channel below sleeps, because it knows the wake event and its own completions.
        let until = [channel.next_due(), clock.end(taken)].into_iter().flatten().min();
        let count = channel.below().wait(completions, clock.rest(taken, until, now));
        taken += count;
        // No completion came and no request is due, so the wake event ended the sleep.
        let early = until.is_none_or(|until| Instant::now() < until);
        if count == 0 && channel.has_wake() && early {
            return taken;
        }
    }
}

/// The descriptor of a channel that holds requests back. It polls readable when a request is due,
/// and when the descriptor of the channel below does.
///
/// The descriptor is created when a caller first asks for it, so that other callers make no system
/// call for it.
#[derive(Default)]
pub(crate) struct Alarm {
    timer: Option<Timer>,
    /// The timer and the descriptor of the channel below, if it has one.
    set: Option<PollSet>,
    pub(crate) system_calls: u64,
}

impl Alarm {
    pub(crate) fn is_made(&self) -> bool {
        self.timer.is_some()
    }

    /// Creates the descriptor, over the descriptor of the channel below.
    pub(crate) fn make(&mut self, below: Option<BorrowedFd<'_>>) -> Result<()> {
        let timer = Timer::new()?;
        if let Some(below) = below {
            let set = PollSet::new()?;
            set.add(below)?;
            set.add(timer.as_fd())?;
            self.set = Some(set);
        }
        self.timer = Some(timer);
        Ok(())
    }

    /// Sets the timer to the time at which the next held request is due, while the channel below
    /// has `below_in_flight` requests.
    pub(crate) fn arm(&mut self, due: Option<Instant>, below_in_flight: u32) {
        let Some(timer) = &mut self.timer else { return };
        // A device below without a descriptor has completions as soon as it has requests.
        let is_ready = self.set.is_none() && below_in_flight > 0;
        if timer.set(if is_ready { Some(timer.past()) } else { due }) {
            self.system_calls += 1;
        }
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let set = self.set.as_ref().map(AsFd::as_fd);
        set.or_else(|| self.timer.as_ref().map(AsFd::as_fd))
    }
}
