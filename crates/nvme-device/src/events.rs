//! Asynchronous events (Base §5.2), and the driver's requests that wait for them.

use std::collections::VecDeque;

use qpair_nvme_wire::Status;
use qpair_nvme_wire::ana::{ANA_CHANGED, ANA_LOG};
use qpair_nvme_wire::fabrics::DISCOVERY_LOG;

use crate::logs::{CHANGED_NAMESPACES, ERRORS};

/// The maximum number of waiting requests.
pub(crate) const REQUESTS_MAX: usize = 4;

/// The optional event that namespaces have changed (Base §5.17.2.1, OAES).
pub(crate) const NAMESPACES_CHANGED: u32 = 1 << 8;
/// The optional event that the discovery log has changed.
pub(crate) const DISCOVERY_CHANGED: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A doorbell was written with an invalid value.
    InvalidDoorbell,
    /// Namespaces were added or removed, or have another size.
    NamespacesChanged,
    /// The discovery log has changed.
    DiscoveryChanged,
    /// The states of ways to namespaces have changed.
    AnaChanged,
}

impl Event {
    const ALL: [Self; 4] =
        [Self::InvalidDoorbell, Self::NamespacesChanged, Self::DiscoveryChanged, Self::AnaChanged];

    /// Returns the event's type, and its information within the type.
    fn about(self) -> u32 {
        match self {
            Self::InvalidDoorbell => 0x01_00,
            Self::NamespacesChanged => 0x00_02,
            Self::DiscoveryChanged => 0xF0_02,
            Self::AnaChanged => 0x03_02,
        }
    }

    /// Returns the log page with the details of the event.
    fn log(self) -> u8 {
        match self {
            Self::InvalidDoorbell => ERRORS,
            Self::NamespacesChanged => CHANGED_NAMESPACES,
            Self::DiscoveryChanged => DISCOVERY_LOG,
            Self::AnaChanged => ANA_LOG,
        }
    }

    /// Returns the bits of the feature by which drivers enable the event; 0 if it is always
    /// enabled.
    fn wanted(self) -> u32 {
        match self {
            Self::InvalidDoorbell => 0,
            Self::NamespacesChanged => NAMESPACES_CHANGED,
            Self::DiscoveryChanged => DISCOVERY_CHANGED,
            Self::AnaChanged => ANA_CHANGED,
        }
    }

    /// Whether a driver whose feature has this value gets the event.
    pub(crate) fn is_wanted(self, feature: u32) -> bool {
        self.wanted() == 0 || self.wanted() & feature != 0
    }

    /// Returns dword 0 of the event's completion.
    fn result(self) -> u32 {
        u32::from(self.log()) << 16 | self.about()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Silent,
    /// The event has happened, and was not reported yet.
    News,
    /// The event was reported. No more events of its kind are reported until the log page is read.
    Masked,
}

/// The events of a controller, and the requests that wait for them.
#[derive(Debug, Default)]
pub struct Events {
    requests: VecDeque<u16>,
    /// The state of each kind, in the order of [`Event::ALL`].
    states: [State; Event::ALL.len()],
    /// Requests that were aborted and not answered yet.
    aborted: VecDeque<u16>,
}

impl Events {
    /// Adds a request that waits for an event.
    ///
    /// # Errors
    /// A status, if too many wait.
    pub fn request(&mut self, cid: u16) -> Result<(), Status> {
        if self.requests.len() >= REQUESTS_MAX {
            return Err(Status::ASYNC_EVENT_LIMIT);
        }
        self.requests.push_back(cid);
        Ok(())
    }

    /// Aborts a request, which is answered next. Returns false if there is no such request.
    pub fn abort(&mut self, cid: u16) -> bool {
        let at = self.requests.iter().position(|request| *request == cid);
        let found = at.and_then(|at| self.requests.remove(at));
        self.aborted.extend(found);
        found.is_some()
    }

    /// Notes that an event has happened. Returns whether there is a request to answer.
    pub fn happen(&mut self, event: Event) -> bool {
        let state = &mut self.states[event as usize];
        if *state == State::Silent {
            *state = State::News;
        }
        self.is_ready()
    }

    pub(crate) fn is_ready(&self) -> bool {
        let any_news = self.states.contains(&State::News);
        any_news && !self.requests.is_empty() || !self.aborted.is_empty()
    }

    /// Takes the next request to answer, with its answer.
    pub fn take_next(&mut self) -> Option<(u16, Status, u32)> {
        if let Some(cid) = self.aborted.pop_front() {
            return Some((cid, Status::ABORT_REQUESTED, 0));
        }
        let at = self.states.iter().position(|state| *state == State::News)?;
        let cid = self.requests.pop_front()?;
        self.states[at] = State::Masked;
        Some((cid, Status::SUCCESS, Event::ALL[at].result()))
    }

    /// Notes that a log page was read: from now on, events of its kinds are reported again.
    pub(crate) fn log_was_read(&mut self, page: u8) {
        for (event, state) in Event::ALL.into_iter().zip(&mut self.states) {
            if event.log() == page && *state == State::Masked {
                *state = State::Silent;
            }
        }
    }
}
