//! Descriptors that combine several others, for the `completion_fd` of a channel that consists of
//! channels.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::seam::error::{Error, Result};
use crate::seam::request::Completion;

/// An epoll set, which polls readable while one of its descriptors does.
#[derive(Debug)]
pub struct PollSet {
    epoll: OwnedFd,
}

impl PollSet {
    /// The operating system's error, for example if the process has its maximum number of
    /// descriptors.
    ///
    /// # Errors
    /// The operating system's, for example where a process has as many descriptors as it may.
    pub fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| Error::os(e.into(), "creating an epoll set"))?;
        Ok(Self { epoll })
    }

    /// Adds a descriptor. The kernel removes it from the set when its owner closes it.
    ///
    /// # Errors
    /// The operating system's error, for example if the descriptor cannot be polled.
    pub fn add(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)
            .map_err(|e| Error::os(e.into(), "adding a completion descriptor to an epoll set"))
    }
}

impl AsFd for PollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Completions that a channel made itself, without the channel below, and the event that announces
/// them.
///
/// The event is created when a caller first wants to sleep on it, so that other callers make no
/// system call for it.
pub(crate) struct EarlyQueue {
    ended: Vec<Completion>,
    event: Option<OwnedFd>,
    /// Whether the event is set.
    told: bool,
    pub(crate) system_calls: u64,
}

impl EarlyQueue {
    pub(crate) fn new(depth: u32) -> Self {
        Self {
            ended: Vec::with_capacity(depth as usize),
            event: None,
            told: false,
            system_calls: 0,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.ended.len() as u32
    }

    pub(crate) fn push(&mut self, completion: Completion) {
        self.ended.push(completion);
        self.tell();
    }

    /// Sets the event, if there is one, until the next poll.
    pub(crate) fn tell(&mut self) {
        if let Some(event) = &self.event
            && !self.told
        {
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
            self.told = true;
            self.system_calls += 1;
        }
    }

    pub(crate) fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        if let Some(event) = &self.event
            && self.told
        {
            let _ = rustix::io::read(event, &mut [0; 8]);
            self.told = false;
            self.system_calls += 1;
        }
        let count = self.ended.len();
        completions.append(&mut self.ended);
        count
    }

    pub(crate) fn has_no_event(&self) -> bool {
        self.event.is_none()
    }

    /// Returns the event that is set while there are completions.
    pub(crate) fn event(&mut self) -> Result<BorrowedFd<'_>> {
        let event = match self.event.take() {
            Some(event) => event,
            None => {
                self.told = !self.ended.is_empty();
                let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
                eventfd(u32::from(self.told), flags)
                    .map_err(|e| Error::os(e.into(), "creating an eventfd"))?
            }
        };
        let event: &OwnedFd = self.event.insert(event);
        Ok(event.as_fd())
    }
}

/// A timer that polls readable from an instant on.
pub(crate) struct Timer {
    fd: OwnedFd,
    armed: Option<Instant>,
    made: Instant,
}

impl Timer {
    pub(crate) fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|e| Error::os(e.into(), "creating a timer"))?;
        Ok(Self { fd, armed: None, made: Instant::now() })
    }

    /// Returns an instant that has passed. A timer that is set to it is readable at once.
    pub(crate) fn past(&self) -> Instant {
        self.made
    }

    /// Sets or clears the instant. Returns whether that needed a system call. Setting the timer
    /// makes it unreadable until the instant.
    pub(crate) fn set(&mut self, due: Option<Instant>) -> bool {
        if due == self.armed {
            return false;
        }
        self.armed = due;
        let value = match due {
            // Zero would disarm the timer.
            Some(due) => due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1)),
            None => Duration::ZERO,
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(value).unwrap_or(zero);
        let _ = timerfd_settime(
            &self.fd,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: zero, it_value },
        );
        true
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
