//! Waits for completions, by polling or asleep.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use qpair_block::{Completion, CompletionEvent, Result, WaitClock, WaitOptions};
use qpair_pci::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::channel::NvmeChannel;
use crate::controller::Controller;
use crate::options::WaitMode;

const LOOKS: u32 = 64;
/// The longest sleep with commands in flight, so that a silent controller is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The longest sleep while a queue is being created again.
const SLEEP_SHORT: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndedBy {
    Wake,
    Interrupt,
    Time,
    /// The longest permitted sleep ended without an interrupt.
    Silence,
}

/// The event by which the channel learns of completions, and the event by which it notifies others.
pub(crate) struct Bell {
    mode: WaitMode,
    interrupt: Option<Interrupt>,
    /// Notifies other threads that there may be completions.
    pub(crate) event: CompletionEvent,
    /// The time at which a device that runs on this thread has work to do.
    pub(crate) due: Option<Instant>,
}

impl Bell {
    pub(crate) fn new(controller: &Controller, mode: WaitMode, queue: u16) -> Result<Self> {
        // A device that runs on this thread needs no interrupts.
        let interrupts = match (mode, &controller.stepper) {
            (WaitMode::Sleep, None) => controller.function.irq_count(),
            _ => 0,
        };
        let interrupt = u32::from(queue)
            .checked_rem(interrupts)
            .map(|number| Interrupt::new(&*controller.function, number))
            .transpose()?;
        Ok(Self { mode, interrupt, event: CompletionEvent::default(), due: None })
    }

    pub(crate) fn is_polled(&self) -> bool {
        self.mode == WaitMode::Poll
    }

    pub(crate) fn vector(&self) -> Option<u16> {
        self.interrupt.as_ref().map(|interrupt| interrupt.vector() as u16)
    }
}

impl NvmeChannel {
    pub(crate) fn wait_for(
        &mut self,
        completions: &mut Vec<Completion>,
        options: WaitOptions,
    ) -> usize {
        let before = completions.len();
        self.turn(completions);
        let got = completions.len() - before;
        let in_flight = self.taken + got as u32;
        if got > 0 && (options.linger.is_zero() || got as u32 >= options.want.min(in_flight)) {
            self.bell.event.tell(self.taken, &mut self.statistics);
            return got;
        }
        let clock = WaitClock::start(options, in_flight);
        let mut looks = 0;
        loop {
            let got = completions.len() - before;
            if clock.is_enough(got) {
                break;
            }
            if self.taken == 0 {
                // Only the time-out can end this sleep.
                let end = clock.end(got);
                if end.is_none() && self.wake.is_none() {
                    break;
                }
                let is_over = end.is_some_and(|end| end <= Instant::now());
                if is_over || self.sleep(end) == EndedBy::Wake {
                    break;
                }
                continue;
            }
            let is_polled = self.bell.is_polled() && self.is_open;
            if !is_polled {
                self.tend();
                self.turn(completions);
                if clock.is_enough(completions.len() - before) {
                    break;
                }
            }
            looks += 1;
            let mut by = EndedBy::Time;
            if !is_polled || looks % LOOKS == 1 {
                let now = Instant::now();
                let end = clock.end(got);
                if end.is_some_and(|end| end <= now) {
                    break;
                }
                by = match is_polled {
                    true => self.is_woken(),
                    false => self.sleep_for_completion(end, now),
                };
            }
            let known = completions.len();
            self.turn(completions);
            if by == EndedBy::Silence && completions.len() > known {
                self.statistics.timeouts_polled += 1;
            }
            if by == EndedBy::Wake {
                break;
            }
            if self.stepper.is_none() {
                std::hint::spin_loop();
            }
        }
        self.bell.event.tell(self.taken, &mut self.statistics);
        completions.len() - before
    }

    /// Sleeps until there may be a completion, but no longer than until `end`.
    fn sleep_for_completion(&mut self, end: Option<Instant>, now: Instant) -> EndedBy {
        let longest = match self.is_open {
            false => SLEEP_SHORT,
            true => SLEEP_MAX.min(self.line.sleep_max()),
        };
        let slice = now.checked_add(longest);
        let end = [end, slice, self.bell.due].into_iter().flatten().min();
        // Orders the completion doorbell before the check. A controller that posts now either sees
        // that all was taken, and signals, or its completion is seen here.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if end.is_some_and(|end| end <= now) || self.rings.is_ready() {
            return self.is_woken();
        }
        let by = self.sleep(end);
        let is_silence = by == EndedBy::Time
            && self.bell.interrupt.is_some()
            && slice.is_some_and(|slice| end == Some(slice) && slice <= Instant::now());
        if is_silence { EndedBy::Silence } else { by }
    }

    /// Returns `Wake` if the wake event is signalled, and clears it; otherwise `Time`.
    fn is_woken(&self) -> EndedBy {
        match self.wake.as_ref().filter(|wake| wake.is_signalled()) {
            Some(wake) => {
                wake.clear();
                EndedBy::Wake
            }
            None => EndedBy::Time,
        }
    }

    /// Sleeps until the interrupt, the wake event or `end`.
    fn sleep(&mut self, end: Option<Instant>) -> EndedBy {
        let timeout = end.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let on = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let wake = self.wake.as_ref().map(|wake| on(wake.as_fd()));
        let interrupt = self.bell.interrupt.as_ref().map(|event| on(event.as_fd()));
        self.statistics.system_calls += 1;
        // A signal to the process ends the sleep, and the caller checks again.
        let sleep = |fds: &mut [PollFd<'_>]| {
            let _ = rustix::event::poll(fds, timeout.as_ref());
        };
        let is_set = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (woken, interrupted) = match (wake, interrupt) {
            (Some(wake), Some(interrupt)) => {
                let mut fds = [wake, interrupt];
                sleep(&mut fds);
                (is_set(&fds[0]), is_set(&fds[1]))
            }
            (Some(wake), None) => {
                let mut fds = [wake];
                sleep(&mut fds);
                (is_set(&fds[0]), false)
            }
            (None, Some(interrupt)) => {
                let mut fds = [interrupt];
                sleep(&mut fds);
                (false, is_set(&fds[0]))
            }
            (None, None) => {
                sleep(&mut []);
                (false, false)
            }
        };
        if let (true, Some(interrupt)) = (interrupted, &self.bell.interrupt) {
            interrupt.clear();
        }
        if let (true, Some(wake)) = (woken, &self.wake) {
            wake.clear();
        }
        match (woken, interrupted) {
            (true, _) => EndedBy::Wake,
            (false, true) => EndedBy::Interrupt,
            (false, false) => EndedBy::Time,
        }
    }
}
