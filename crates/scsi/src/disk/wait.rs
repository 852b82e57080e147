//! Waiting for completions: by looking.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use qpair_block::{ChannelStatistics, Completion, Error, ErrorKind, Result, WaitOptions};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};

use super::channel::ScsiChannel;

/// Looks at the queue between two looks at the clock and the wake event.
const LOOKS: u32 = 64;

/// How a channel tells others that there may be completions.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// Readable while something is in flight, once somebody asked for it.
    event: Option<OwnedFd>,
    is_told: bool,
}

impl Bell {
    pub(crate) fn descriptor(&mut self, taken: u32) -> Result<BorrowedFd<'_>> {
        if self.event.is_none() {
            let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
                .map_err(|cause| Error::os(cause.into(), "eventfd"))?;
            self.event = Some(event);
            self.is_told = false;
            self.tell(taken, &mut ChannelStatistics::default());
        }
        self.event
            .as_ref()
            .map(AsFd::as_fd)
            .ok_or_else(|| Error::new(ErrorKind::Limit, "an event for completions"))
    }

    /// Brings the descriptor up to date.
    #[inline]
    pub(crate) fn tell(&mut self, taken: u32, statistics: &mut ChannelStatistics) {
        let Some(event) = &self.event else { return };
        if (taken > 0) != self.is_told {
            self.is_told = taken > 0;
            statistics.system_calls += 1;
            // Neither can fail in a way that matters: it is set, or it is not.
            if self.is_told {
                let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            } else {
                let _ = rustix::io::read(event, &mut [0; 8]);
            }
        }
    }
}

impl ScsiChannel {
    pub(crate) fn wait_for(
        &mut self,
        completions: &mut Vec<Completion>,
        options: WaitOptions,
    ) -> usize {
        let before = completions.len();
        self.turn(completions);
        let now = Instant::now();
        let in_flight = self.taken + (completions.len() - before) as u32;
        let want = options.want.min(in_flight).max(1) as usize;
        // What lies past the end of time never comes.
        let linger = now.checked_add(options.linger);
        let deadline = options.timeout.and_then(|timeout| now.checked_add(timeout));
        let mut looks = 0u32;
        loop {
            let got = completions.len() - before;
            if got >= want {
                break;
            }
            let end = [linger.filter(|_| got > 0), deadline].into_iter().flatten().min();
            if self.taken == 0 {
                // Nothing can come but the end.
                if end.is_none() && self.wake.is_none() {
                    break;
                }
                if end.is_some_and(|end| end <= Instant::now()) || self.sleep(end) {
                    break;
                }
                continue;
            }
            looks += 1;
            if looks % LOOKS == 1 {
                let now = Instant::now();
                if end.is_some_and(|end| end <= now) {
                    break;
                }
                if self.wake.is_some() && self.sleep(Some(now)) {
                    self.turn(completions);
                    break;
                }
                self.tend(completions);
                self.nap(now, end);
            }
            self.turn(completions);
            std::hint::spin_loop();
        }
        self.bell.tell(self.taken, &mut self.statistics);
        completions.len() - before
    }

    /// A device that runs on this thread may have said when there is something to do: nothing comes before.
    fn nap(&self, now: Instant, end: Option<Instant>) {
        const NAP_MAX: Duration = Duration::from_micros(100);
        let Some(due) = self.due() else { return };
        let until = end.map_or(due, |end| end.min(due));
        let nap = until.saturating_duration_since(now).min(NAP_MAX);
        if nap > Duration::from_micros(60) {
            std::thread::sleep(nap);
        }
    }

    /// Sleeps until the wake event or `end`. Whether it was the wake event.
    fn sleep(&mut self, end: Option<Instant>) -> bool {
        let timeout = end.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        self.statistics.system_calls += 1;
        let Some(wake) = &self.wake else {
            // A signal to the process ends the sleep: the caller looks again.
            let _ = rustix::event::poll(&mut [], timeout.as_ref());
            return false;
        };
        let mut fds = [PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)];
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        let woken = !fds[0].revents().is_empty();
        if woken {
            wake.clear();
        }
        woken
    }
}
