//! Unsolicited events of the controller: the disks that exist, and disks that are added or removed.

use qpair_memory::locks::Mutex;
use std::collections::VecDeque;

use qpair_mpi_wire::event::{
    Change, DATA_AT, Event, Topology, change, encode_discovery, expander, is_wanted, kind,
};

use super::device::SoftHba;
use super::lane::REPLY_BYTES;
use super::topology::{Attached, Expander};

/// The maximum number of events that wait for room. If a driver takes none, the oldest is lost.
const EVENTS_MAX: usize = 1024;
/// The maximum number of changes of one event: those that fit into a reply frame.
const CHANGES_MAX: usize = (REPLY_BYTES - DATA_AT - 12) / 4;
/// The link rate is 12 Gbit/s now and the link was down before; `LINK_DOWN` is the reverse.
const LINK_UP: u8 = 0xB0;
const LINK_DOWN: u8 = 0x0B;
/// The status of a phy to which nothing is attached.
const VACANT: u8 = 0x80;

#[derive(Debug)]
pub(crate) struct Events {
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    masks: [u32; 4],
    /// Whether the events of the first discovery were queued. From then on, changes are reported.
    is_told: bool,
    news: VecDeque<Vec<u8>>,
}

impl Default for Events {
    fn default() -> Self {
        let held = Held { masks: [u32::MAX; 4], is_told: false, news: VecDeque::new() };
        Self { held: Mutex::new(held) }
    }
}

impl Events {
    pub(crate) fn set_masks(&self, masks: [u32; 4]) {
        self.held.lock().masks = masks;
    }

    pub(crate) fn forget(&self) {
        *self.held.lock() = Held { masks: [u32::MAX; 4], is_told: false, news: VecDeque::new() };
    }

    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        self.held.lock().news.pop_front()
    }

    fn tell(held: &mut Held, kind: u16, body: &[u8]) {
        if !is_wanted(held.masks, kind) {
            return;
        }
        if held.news.len() == EVENTS_MAX {
            held.news.pop_front();
        }
        held.news.push_back(Event { kind, needs_ack: false, context: 0 }.encode(body));
    }
}

fn added(handle: u16) -> Change {
    Change { handle, link_rate: LINK_UP, reason: change::ADDED }
}

impl Expander {
    fn list(&self, first: u8, status: u8) -> Topology {
        let Self { enclosure, handle: expander, phys, .. } = *self;
        Topology { enclosure, expander, phys, first, status, port: 0 }
    }
}

impl SoftHba {
    /// Queues the events of a discovery of all disks.
    pub(crate) fn tell_all(&self) {
        let mut held = self.events.held.lock();
        held.is_told = true;
        Events::tell(&mut held, kind::SAS_DISCOVERY, &encode_discovery(false));
        // Each disk at the controller's own phys has an event of its own, since each such phy is a
        // port.
        for phy in 0..self.topology.phys {
            if let Some(handle) = self.attached_handle(self.topology.at_phy(phy)) {
                let body = self.own(phy as u8).encode(&[added(handle)]);
                Events::tell(&mut held, kind::SAS_TOPOLOGY_CHANGE_LIST, &body);
            }
        }
        for it in self.topology.expanders() {
            self.tell_expander(&mut held, &it);
        }
        Events::tell(&mut held, kind::SAS_DISCOVERY, &encode_discovery(true));
    }

    fn own(&self, phy: u8) -> Topology {
        let phys = self.topology.phys as u8;
        let port = if self.topology.has_expanders() { 0 } else { phy };
        let (enclosure, expander) = (0, 0);
        Topology { enclosure, expander, phys, first: phy, status: expander::RESPONDING, port }
    }

    /// Queues the events for a new expander and the devices at its phys.
    fn tell_expander(&self, held: &mut Held, it: &Expander) {
        let phys: Vec<u8> = (0..it.phys - 1).collect();
        for (number, phys) in phys.chunks(CHANGES_MAX).enumerate() {
            let changes: Vec<Change> = phys
                .iter()
                .map(|phy| self.topology.attached(it, *phy))
                .map(|attached| match (attached, self.attached_handle(attached)) {
                    (_, None) => Change { handle: 0, link_rate: 0, reason: VACANT },
                    (Some(Attached::Disk(_)), Some(handle)) => added(handle),
                    // The expander has an event of its own.
                    (_, Some(handle)) => Change { reason: change::PHY_CHANGED, ..added(handle) },
                })
                .collect();
            let status = if number == 0 { expander::ADDED } else { expander::RESPONDING };
            let body = it.list(phys[0], status).encode(&changes);
            Events::tell(held, kind::SAS_TOPOLOGY_CHANGE_LIST, &body);
        }
    }

    /// Queues the event of a disk that was added or removed.
    pub(crate) fn tell_change(&self, number: usize, handle: u16, is_added: bool) {
        let (link_rate, reason) = match is_added {
            true => (LINK_UP, change::ADDED),
            false => (LINK_DOWN, change::NOT_RESPONDING),
        };
        let change = Change { handle, link_rate, reason };
        let place = self.topology.place(number);
        let list = match place.expander {
            Some(expander) => expander.list(place.phy, expander::RESPONDING),
            None => self.own(place.phy),
        };
        let body = list.encode(&[change]);
        {
            let mut held = self.events.held.lock();
            if held.is_told {
                Events::tell(&mut held, kind::SAS_TOPOLOGY_CHANGE_LIST, &body);
            }
        }
        self.call_attention(0);
    }
}
