//! Asynchronous events (Base §5.2): what the controller says without being asked, and the requests that wait for it.

use std::collections::VecDeque;

use qpair_nvme_wire::Status;

/// Requests at a time.
pub(crate) const REQUESTS_MAX: usize = 4;

/// Something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A doorbell was rung with a value that cannot be.
    InvalidDoorbell,
}

impl Event {
    /// Type, information and log page, as the completion has them.
    fn result(self) -> u32 {
        match self {
            Self::InvalidDoorbell => 0x01_01_00,
        }
    }
}

/// Requests and events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    requests: VecDeque<u16>,
    /// Not told yet. Each kind once.
    news: Option<Event>,
    /// Told; no more of the kind until its log page was read.
    masked: bool,
    /// Requests that were taken back and not answered yet.
    aborted: VecDeque<u16>,
}

impl Events {
    /// A request comes.
    pub(crate) fn request(&mut self, cid: u16) -> Result<(), Status> {
        if self.requests.len() >= REQUESTS_MAX {
            return Err(Status::ASYNC_EVENT_LIMIT);
        }
        self.requests.push_back(cid);
        Ok(())
    }

    /// Takes a request back: it is answered next. False: there is none such.
    pub(crate) fn abort(&mut self, cid: u16) -> bool {
        let at = self.requests.iter().position(|request| *request == cid);
        let found = at.and_then(|at| self.requests.remove(at));
        self.aborted.extend(found);
        found.is_some()
    }

    /// Something happened. True: there is somebody to tell.
    pub(crate) fn happen(&mut self, event: Event) -> bool {
        if !self.masked {
            self.news = Some(event);
        }
        self.is_ready()
    }

    /// Whether there is a request to be answered.
    pub(crate) fn is_ready(&self) -> bool {
        let told = self.news.is_some() && !self.masked && !self.requests.is_empty();
        told || !self.aborted.is_empty()
    }

    /// A request, and its answer.
    pub(crate) fn next(&mut self) -> Option<(u16, Status, u32)> {
        if let Some(cid) = self.aborted.pop_front() {
            return Some((cid, Status::ABORT_REQUESTED, 0));
        }
        if !self.is_ready() {
            return None;
        }
        let (cid, event) = (self.requests.pop_front()?, self.news.take()?);
        self.masked = true;
        Some((cid, Status::SUCCESS, event.result()))
    }

    /// The log page of errors was read.
    pub(crate) fn log_was_read(&mut self) {
        self.masked = false;
    }
}
