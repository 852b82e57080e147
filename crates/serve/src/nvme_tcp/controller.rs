//! Controllers: each is made by a host's Connect, and has one connection for each of its queues.
//!
//! Invariants:
//! - a connection has a seat of its controller from the answer to its Connect until its last
//!   request at a device has ended;
//! - a controller is in the list of its portal while it has a seat;
//! - no queue has two seats, and no host connects again to a subsystem while seats of its ended
//!   controllers are left: a request of a lost connection cannot overtake one of its successor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use qpair_memory::locks::Mutex;
use qpair_nvme_wire::Status;

use crate::nvmf::Subsystem;

/// The most controllers of a portal.
const CONTROLLERS_MAX: usize = 512;
/// The highest number of a controller.
const ID_MAX: u16 = 0xFFEF;

/// The numbers of a target's controllers. A host that reaches a subsystem by several portals must
/// find controllers with different numbers.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Mutex<(BTreeSet<u16>, u16)>);

impl Numbers {
    /// Takes a number that was not used for long: an old host must not reach a new controller.
    fn take(&self) -> Option<u16> {
        let (taken, last) = &mut *self.0.lock();
        let after = (*last..ID_MAX).map(|number| number + 1);
        let found = after.chain(1..=*last).find(|number| !taken.contains(number))?;
        taken.insert(found);
        *last = found;
        Some(found)
    }
}

/// A controller, as far as its connections share it.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) id: u16,
    /// The subsystem; `None`: the discovery subsystem.
    pub(crate) subsystem: Option<Arc<Subsystem>>,
    pub(crate) host: String,
    pub(crate) host_id: [u8; 16],
    /// Whether the host has enabled the controller (CC.EN).
    pub(crate) is_enabled: AtomicBool,
    /// The highest number of a queue.
    pub(crate) queue_max: AtomicU16,
    is_over: AtomicBool,
    seats: Mutex<BTreeMap<u16, Arc<AtomicBool>>>,
    numbers: Arc<Numbers>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.numbers.0.lock().0.remove(&self.id);
    }
}

/// The place of a connection: a queue of a controller.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) controller: Arc<Controller>,
    pub(crate) queue: u16,
    /// Whether the connection is to end.
    is_cut: Arc<AtomicBool>,
}

impl Seat {
    /// Whether the connection is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_cut.load(Ordering::Acquire) || self.controller.is_over.load(Ordering::Acquire)
    }
}

impl Controller {
    /// Takes a free queue. If a connection has it, that is cut, and the answer is `None`.
    pub(crate) fn sit(self: &Arc<Self>, queue: u16) -> Option<Seat> {
        let mut seats = self.seats.lock();
        if let Some(other) = seats.get(&queue) {
            other.store(true, Ordering::Release);
            return None;
        }
        let is_cut = Arc::new(AtomicBool::new(false));
        seats.insert(queue, is_cut.clone());
        Some(Seat { controller: self.clone(), queue, is_cut })
    }

    /// Whether a connection has the queue.
    pub(crate) fn has_seat(&self, queue: u16) -> bool {
        self.seats.lock().contains_key(&queue)
    }

    /// Cuts the connections of all I/O queues.
    pub(crate) fn cut_queues(&self) {
        for (_, is_cut) in self.seats.lock().range(1..) {
            is_cut.store(true, Ordering::Release);
        }
    }

    /// Whether the controller has I/O queues.
    pub(crate) fn has_queues(&self) -> bool {
        self.seats.lock().range(1..).next().is_some()
    }

    /// Ends the controller with all its connections.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// The controllers of a portal.
#[derive(Debug)]
pub(crate) struct Controllers {
    state: Mutex<State>,
    numbers: Arc<Numbers>,
}

#[derive(Debug, Default)]
struct State {
    all: BTreeMap<u16, Arc<Controller>>,
}

impl Controllers {
    pub(crate) fn new(numbers: Arc<Numbers>) -> Self {
        Self { state: Mutex::default(), numbers }
    }

    /// Makes a controller for a host; `None` while requests of an earlier one of the host are under
    /// way.
    ///
    /// # Errors
    /// A status, if there are too many controllers.
    pub(crate) fn begin(
        &self,
        subsystem: Option<Arc<Subsystem>>,
        host: &str,
        host_id: [u8; 16],
    ) -> Result<Option<Arc<Controller>>, Status> {
        let mut state = self.state.lock();
        let is_same = |other: &Controller| match (&other.subsystem, &subsystem) {
            (Some(other), Some(this)) => Arc::ptr_eq(other, this),
            _ => false,
        };
        let waits = |it: &&Arc<Controller>| {
            it.is_over.load(Ordering::Acquire) && it.host_id == host_id && is_same(it)
        };
        if state.all.values().any(|it| waits(&it)) {
            return Ok(None);
        }
        if state.all.len() >= CONTROLLERS_MAX {
            return Err(Status::CONTROLLER_BUSY);
        }
        let id = self.numbers.take().ok_or(Status::CONTROLLER_BUSY)?;
        let controller = Arc::new(Controller {
            id,
            subsystem,
            host: host.to_owned(),
            host_id,
            is_enabled: AtomicBool::new(false),
            queue_max: AtomicU16::new(0),
            is_over: AtomicBool::new(false),
            seats: Mutex::default(),
            numbers: self.numbers.clone(),
        });
        state.all.insert(id, controller.clone());
        Ok(Some(controller))
    }

    pub(crate) fn find(&self, id: u16) -> Option<Arc<Controller>> {
        let found = self.state.lock().all.get(&id).cloned();
        found.filter(|it| !it.is_over.load(Ordering::Acquire))
    }

    /// Gives up the seat of a connection that has ended. The controller ends with its admin queue.
    pub(crate) fn leave(&self, seat: &Seat) {
        let mut state = self.state.lock();
        let controller = &seat.controller;
        let mut seats = controller.seats.lock();
        seats.remove(&seat.queue);
        if seat.queue == 0 {
            controller.end();
        }
        if seats.is_empty() && controller.is_over.load(Ordering::Acquire) {
            state.all.remove(&controller.id);
        }
    }

    /// Ends the controllers of a subsystem.
    pub(crate) fn end_of(&self, subsystem: &Arc<Subsystem>) {
        for it in self.state.lock().all.values() {
            if it.subsystem.as_ref().is_some_and(|its| Arc::ptr_eq(its, subsystem)) {
                it.end();
            }
        }
    }
}
