//! Task management: tasks go from the control queue to all request queues, and each of these ends
//! its own commands.
//!
//! Protocol: the control queue posts a visit to each member ([`Member::post`]) and wakes it. A
//! member handles the visit once it has taken all heads that the guest had made available, so that
//! no command from before the task is missed. The member ends the visit when its commands that the
//! task concerns have been given back. The guest sees these before it sees the end of the task.

use qpair_memory::locks::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use qpair_block::{Error, Result, WakeEvent};

/// A task on its way.
#[derive(Debug)]
pub(super) struct Visit {
    target: u8,
    /// The command that the task concerns; `None` for all commands of the unit.
    id: Option<u64>,
    /// The response with which the commands are to end; `None` if the task is only a query.
    pub(super) response: Option<u8>,
    /// The number of members that have not ended the visit.
    left: AtomicU32,
    found: AtomicBool,
}

impl Visit {
    pub(super) fn new(target: u8, id: Option<u64>, response: Option<u8>) -> Self {
        Self { target, id, response, left: AtomicU32::new(0), found: AtomicBool::new(false) }
    }

    /// Whether the task concerns this command, which is under way. Notes it if so.
    pub(super) fn finds(&self, target: u8, id: u64) -> bool {
        let finds = self.target == target && self.id.is_none_or(|its| its == id);
        if finds {
            self.found.store(true, Ordering::Relaxed);
        }
        finds
    }

    /// Whether the task concerned any command. Valid once the visit is over.
    pub(super) fn has_found(&self) -> bool {
        self.found.load(Ordering::Relaxed)
    }

    /// Whether all members have ended the visit.
    pub(super) fn is_over(&self) -> bool {
        // Acquire: pairs with the release in `end`.
        self.left.load(Ordering::Acquire) == 0
    }

    /// Notes that a member has ended the visit.
    pub(super) fn end(&self) {
        self.left.fetch_sub(1, Ordering::Release);
    }
}

/// The part of a request queue that other threads reach.
#[derive(Debug)]
pub(super) struct Member {
    visits: Mutex<Vec<Arc<Visit>>>,
    /// The number of visits and of changes of the targets so far.
    news: AtomicU64,
    pub(super) wake: WakeEvent,
}

impl Member {
    pub(super) fn new() -> Result<Self> {
        let wake =
            WakeEvent::new().map_err(|cause| Error::os(cause, "creating an event for a queue"))?;
        Ok(Self { visits: Mutex::default(), news: AtomicU64::new(0), wake })
    }

    /// Returns the number of visits and of changes of the targets so far.
    #[inline]
    pub(super) fn news(&self) -> u64 {
        // Acquire: pairs with the release in `tell`.
        self.news.load(Ordering::Acquire)
    }

    /// Signals to the queue that there is news.
    pub(super) fn tell(&self) {
        self.news.fetch_add(1, Ordering::Release);
        self.wake.signal();
    }

    pub(super) fn post(&self, visit: &Arc<Visit>) {
        visit.left.fetch_add(1, Ordering::Relaxed);
        self.visits.lock().push(visit.clone());
        self.tell();
    }

    /// Takes the visits that have come.
    pub(super) fn take(&self) -> Vec<Arc<Visit>> {
        std::mem::take(&mut *self.visits.lock())
    }
}
