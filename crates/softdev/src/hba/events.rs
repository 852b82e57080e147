//! What the controller says without being asked: which disks there are, and which come and go.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use qpair_mpi_wire::event::{
    Change, Event, change, encode_discovery, encode_topology, is_wanted, kind,
};

use super::device::SoftHba;

/// Events that wait for room, at most: a driver that takes none loses the oldest.
const EVENTS_MAX: usize = 1024;
/// 12 Gbit/s now, nothing before; and the other way round.
const LINK_UP: u8 = 0xB0;
const LINK_DOWN: u8 = 0x0B;

#[derive(Debug)]
pub(crate) struct Events {
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    masks: [u32; 4],
    /// The first discovery was told: from then on changes are.
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
    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_masks(&self, masks: [u32; 4]) {
        self.held().masks = masks;
    }

    pub(crate) fn forget(&self) {
        *self.held() = Held { masks: [u32::MAX; 4], is_told: false, news: VecDeque::new() };
    }

    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        self.held().news.pop_front()
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

impl SoftHba {
    /// Tells of all disks, as a discovery does.
    pub(crate) fn tell_all(&self) {
        let mut held = self.events.held();
        held.is_told = true;
        Events::tell(&mut held, kind::SAS_DISCOVERY, &encode_discovery(false));
        for (number, phy) in self.phys().iter().enumerate() {
            if let Some(handle) = phy.handle() {
                let change = Change { handle, link_rate: LINK_UP, reason: change::ADDED };
                let body = encode_topology(self.phys().len() as u8, number as u8, change);
                Events::tell(&mut held, kind::SAS_TOPOLOGY_CHANGE_LIST, &body);
            }
        }
        Events::tell(&mut held, kind::SAS_DISCOVERY, &encode_discovery(true));
    }

    /// Tells that a disk came or went.
    pub(crate) fn tell_change(&self, number: usize, handle: u16, is_added: bool) {
        let (link_rate, reason) = match is_added {
            true => (LINK_UP, change::ADDED),
            false => (LINK_DOWN, change::NOT_RESPONDING),
        };
        let change = Change { handle, link_rate, reason };
        let body = encode_topology(self.phys().len() as u8, number as u8, change);
        {
            let mut held = self.events.held();
            if held.is_told {
                Events::tell(&mut held, kind::SAS_TOPOLOGY_CHANGE_LIST, &body);
            }
        }
        self.call_attention(0);
    }
}
