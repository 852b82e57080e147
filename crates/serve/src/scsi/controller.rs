//! The SCSI host: its targets, and the events about them.

use qpair_memory::locks::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};
use qpair_scsi_wire::sense::Code;
use qpair_virtio::scsi::{
    CONTROL_QUEUE, Config, EVENT_QUEUE, Event, FEATURE_CHANGE, FEATURE_HOTPLUG, REQUEST_QUEUE,
    address, event,
};

use super::control::ControlVerbs;
use super::events::{EventVerbs, Events};
use super::requests::RequestVerbs;
use super::unit::Unit;
use super::visit::{Member, Visit};
use crate::device::Device;
use crate::disk::Disk;
use crate::queue::{GuestRing, Served};

/// The number of target slots, the same as in SPDK.
pub(super) const TARGETS: usize = 8;
/// The longest time for which the removal of a target waits for its commands.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) type Units = [Option<Arc<Unit>>; TARGETS];

#[derive(Debug)]
pub(crate) struct Controller {
    /// The number of request queues.
    queues: u16,
    units: Mutex<Units>,
    /// The request queues that run.
    members: Mutex<Vec<Arc<Member>>>,
    /// The features that the guest's driver has accepted.
    features: AtomicU64,
    events: Events,
}

impl Controller {
    /// Creates a controller without targets.
    ///
    /// # Errors
    /// `Limit` if there are no more descriptors.
    pub(crate) fn new(queues: u16) -> Result<Self> {
        Ok(Self {
            queues,
            units: Mutex::default(),
            members: Mutex::default(),
            features: AtomicU64::new(0),
            events: Events::new()?,
        })
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// Returns the current units.
    pub(super) fn units_now(&self) -> Units {
        self.units.lock().clone()
    }

    /// Returns the disks that are targets, with their numbers.
    pub(crate) fn targets(&self) -> Vec<(u8, Arc<Disk>)> {
        let units = self.units_now();
        let all = (0u8..).zip(units).filter_map(|(number, unit)| Some((number, unit?)));
        all.map(|(number, unit)| (number, unit.disk.clone())).collect()
    }

    /// Makes a disk a target, under a number or else the first free one. Returns the number.
    ///
    /// # Errors
    /// `Invalid` for a number that is too large, `Exists` for one that is taken, `NoSpace` if all
    /// are taken.
    pub(crate) fn add(&self, number: Option<u8>, disk: &Arc<Disk>) -> Result<u8> {
        let mut units = self.units.lock();
        let number = match number {
            Some(number) => number,
            None => units.iter().position(Option::is_none).ok_or_else(|| {
                Error::new(ErrorKind::NoSpace, format!("all {TARGETS} targets are taken"))
            })? as u8,
        };
        let place = units.get_mut(usize::from(number)).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("target {number} is out of range"))
                .hint(format!("targets are 0 to {}", TARGETS - 1))
        })?;
        if let Some(unit) = place {
            let context = format!("target {number} is {} already", unit.disk.name);
            return Err(Error::new(ErrorKind::Exists, context));
        }
        *place = Some(Arc::new(Unit::new(disk)));
        drop(units);
        self.plugged(number, event::RESCAN);
        Ok(number)
    }

    /// Removes a target after its commands under way have ended.
    ///
    /// # Errors
    /// `NotFound` for a target that does not exist; `Busy` if its commands do not end: then it
    /// stays.
    pub(crate) fn remove(&self, number: u8) -> Result<Arc<Disk>> {
        let place = usize::from(number);
        let unit = self.units.lock().get_mut(place).and_then(Option::take).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("there is no target {number}"))
        })?;
        self.plugged(number, event::REMOVED);
        if unit.wait_alone(TIMEOUT) {
            return Ok(unit.disk.clone());
        }
        let context = format!("target {number} cannot be removed: its commands do not end");
        self.units.lock()[place] = Some(unit);
        self.plugged(number, event::RESCAN);
        Err(Error::new(ErrorKind::Busy, context).hint("the target stays: look at the disk below"))
    }

    fn plugged(&self, number: u8, reason: u32) {
        self.members.lock().iter().for_each(|member| member.tell());
        let kind = event::TRANSPORT_RESET;
        self.tell(FEATURE_HOTPLUG, Event { kind, address: address(number, 0), reason });
    }

    /// Sends an event to the guest, if its driver has accepted `feature`.
    fn tell(&self, feature: u64, event: Event) {
        if self.features.load(Ordering::Relaxed) & feature != 0 {
            self.events.tell(event);
        }
    }

    pub(super) fn join(&self, member: &Arc<Member>) {
        self.members.lock().push(member.clone());
    }

    /// Removes a request queue that ends. It receives no visits afterwards.
    pub(super) fn leave(&self, member: &Arc<Member>) {
        self.members.lock().retain(|other| !Arc::ptr_eq(other, member));
        member.take().iter().for_each(|visit| visit.end());
    }

    /// Sends a task to all request queues.
    pub(super) fn send(&self, visit: &Arc<Visit>) {
        // While the list is locked, no member leaves.
        self.members.lock().iter().for_each(|member| member.post(visit));
    }
}

impl Device for Controller {
    fn queues(&self) -> u16 {
        REQUEST_QUEUE + self.queues
    }

    fn features(&self) -> u64 {
        FEATURE_HOTPLUG | FEATURE_CHANGE
    }

    fn settle(&self, features: u64) {
        self.features.store(features, Ordering::Relaxed);
    }

    fn config(&self) -> Vec<u8> {
        Config::new(self.queues, TARGETS as u16 - 1, 0).encode().to_vec()
    }

    fn set_config(&self, _offset: u32, _bytes: &[u8]) -> bool {
        false
    }

    fn reset(&self) {
        self.features.store(0, Ordering::Relaxed);
        self.events.clear();
        for unit in self.units.lock().iter().flatten() {
            unit.logical.reset(Code::NEXUS_LOSS);
        }
    }

    fn open(self: Arc<Self>, number: u16, ring: GuestRing) -> Result<Box<dyn crate::unit::Unit>> {
        Ok(match number {
            CONTROL_QUEUE => Box::new(Served::start(ring, ControlVerbs::new(self))),
            EVENT_QUEUE => Box::new(Served::start(ring, EventVerbs::new(self))),
            _ => {
                let verbs = RequestVerbs::open(&ring, self)?;
                Box::new(Served::start(ring, verbs))
            }
        })
    }

    fn look_after(&self) -> bool {
        let units = self.units_now();
        let all = (0u8..).zip(&units).filter_map(|(number, unit)| Some((number, unit.as_ref()?)));
        for (number, _) in all.filter(|(_, unit)| unit.has_resized()) {
            let Code(code, qualifier) = Code::CAPACITY_CHANGED;
            let reason = u32::from(code) | u32::from(qualifier) << 8;
            let address = address(number, 0);
            self.tell(FEATURE_CHANGE, Event { kind: event::PARAMETERS, address, reason });
        }
        false
    }
}
