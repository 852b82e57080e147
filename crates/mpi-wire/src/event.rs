//! Events: messages that a controller sends on its own.

use crate::function;
use crate::message::{reply, request};
use qpair_wire::le::{u16_at, u32_at};
use qpair_wire::{put, u8_at};

pub mod kind {
    pub const SAS_DISCOVERY: u16 = 0x16;
    pub const SAS_TOPOLOGY_CHANGE_LIST: u16 = 0x1C;
    pub const SAS_DEVICE_STATUS_CHANGE: u16 = 0x0F;
}

/// The bytes of the request that chooses the events to receive.
pub const NOTIFICATION_BYTES: usize = 0x28;
/// The offset of an event's data in its message.
pub const DATA_AT: usize = 0x1C;

/// Reasons of an entry in a list of changes.
pub mod change {
    pub const ADDED: u8 = 1;
    pub const NOT_RESPONDING: u8 = 2;
    /// The state of the link changed.
    pub const PHY_CHANGED: u8 = 3;
}

/// Encodes the request for events; a set bit in `masked` suppresses that event.
#[must_use]
pub fn notification(masked: [u32; 4]) -> [u8; NOTIFICATION_BYTES] {
    let mut data = request::<NOTIFICATION_BYTES>(function::EVENT_NOTIFICATION);
    for (at, word) in (0x14..).step_by(4).zip(masked) {
        put(&mut data, at, &word.to_le_bytes());
    }
    data
}

#[must_use]
pub fn masks_for(kinds: &[u16]) -> [u32; 4] {
    let mut masks = [u32::MAX; 4];
    for kind in kinds.iter().filter(|kind| **kind < 128) {
        masks[usize::from(kind / 32)] &= !(1 << (kind % 32));
    }
    masks
}

#[must_use]
pub fn decode_masks(data: &[u8]) -> [u32; 4] {
    [0x14, 0x18, 0x1C, 0x20].map(|at| u32_at(data, at))
}

#[must_use]
pub fn is_wanted(masks: [u32; 4], kind: u16) -> bool {
    masks.get(usize::from(kind / 32)).is_some_and(|mask| mask >> (kind % 32) & 1 == 0)
}

/// An event, without its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The event code: one of [`kind`].
    pub kind: u16,
    pub needs_ack: bool,
    /// The context, which an acknowledgement returns.
    pub context: u32,
}

impl Event {
    /// Decodes an event and returns it with its data.
    #[must_use]
    pub fn decode(data: &[u8]) -> (Self, &[u8]) {
        let len = usize::from(u16_at(data, 0)) * 4;
        let body = data.get(DATA_AT..).unwrap_or(&[]);
        let event = Self {
            kind: u16_at(data, 0x14),
            needs_ack: u8_at(data, 6) & 1 != 0,
            context: u32_at(data, 0x18),
        };
        (event, &body[..len.min(body.len())])
    }

    /// Encodes the message, with data of a multiple of 4 bytes.
    #[must_use]
    pub fn encode(&self, body: &[u8]) -> Vec<u8> {
        let mut data = reply(
            &request::<12>(function::EVENT_NOTIFICATION),
            DATA_AT + body.len().next_multiple_of(4),
            0,
        );
        put(&mut data, 0, &(body.len().div_ceil(4) as u16).to_le_bytes());
        data[6] = self.needs_ack.into();
        put(&mut data, 0x14, &self.kind.to_le_bytes());
        put(&mut data, 0x18, &self.context.to_le_bytes());
        put(&mut data, DATA_AT, body);
        data
    }
}

#[must_use]
pub fn acknowledgement(event: &Event) -> [u8; 0x14] {
    let mut data = request::<0x14>(function::EVENT_ACK);
    put(&mut data, 0x0C, &event.kind.to_le_bytes());
    put(&mut data, 0x10, &event.context.to_le_bytes());
    data
}

#[must_use]
pub fn encode_discovery(is_over: bool) -> [u8; 8] {
    [0, if is_over { 2 } else { 1 }, 0, 0, 0, 0, 0, 0]
}

#[must_use]
pub fn is_discovery_over(data: &[u8]) -> bool {
    u8_at(data, 1) == 2
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub handle: u16,
    /// The speed of the link: the new one in the upper four bits, the old one in the lower four.
    pub link_rate: u8,
    /// The reason: one of [`change`].
    pub reason: u8,
}

/// The state of an expander.
pub mod expander {
    pub const ADDED: u8 = 1;
    /// The expander responds. The controller's own phys always have this state.
    pub const RESPONDING: u8 = 3;
}

/// A list of changes at consecutive phys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The enclosure of the expander; 0: none.
    pub enclosure: u16,
    /// The handle of the expander; 0: the controller's own phys.
    pub expander: u16,
    pub phys: u8,
    /// The number of the first phy in the list.
    pub first: u8,
    /// The state of the expander: one of [`expander`].
    pub status: u8,
    pub port: u8,
}

impl Topology {
    #[must_use]
    pub fn encode(&self, changes: &[Change]) -> Vec<u8> {
        let mut data = vec![0; 0xC + 4 * changes.len()];
        put(&mut data, 0, &self.enclosure.to_le_bytes());
        put(&mut data, 2, &self.expander.to_le_bytes());
        data[4] = self.phys;
        data[8] = changes.len() as u8;
        data[9] = self.first;
        data[0xA] = self.status;
        data[0xB] = self.port;
        for (change, at) in changes.iter().zip((0xC..).step_by(4)) {
            put(&mut data, at, &change.handle.to_le_bytes());
            data[at + 2] = change.link_rate;
            data[at + 3] = change.reason;
        }
        data
    }
}

/// Decodes the entries of a list of changes, without phys that have no device.
pub fn decode_topology(data: &[u8]) -> impl Iterator<Item = Change> {
    let entries = data.get(0xC..).unwrap_or(&[]).as_chunks::<4>().0;
    entries.iter().take(usize::from(u8_at(data, 8))).filter(|entry| entry[3] & 0x80 == 0).map(
        |entry| Change { handle: u16_at(entry, 0), link_rate: entry[2], reason: entry[3] & 0x0F },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_their_bytes() {
        let change = Change { handle: 40, link_rate: 0xB0, reason: change::ADDED };
        let event =
            Event { kind: kind::SAS_TOPOLOGY_CHANGE_LIST, needs_ack: true, context: 0x1234 };
        let list = Topology {
            enclosure: 2,
            expander: 33,
            phys: 32,
            first: 7,
            status: expander::ADDED,
            port: 0,
        };
        let message = event.encode(&list.encode(&[change, change]));
        let (read, data) = Event::decode(&message);
        assert_eq!(read, event);
        assert_eq!(decode_topology(data).collect::<Vec<_>>(), [change, change]);
        assert!(is_discovery_over(&encode_discovery(true)));
        // The count is larger than the list.
        let mut data = list.encode(&[change]);
        data[8] = 255;
        assert_eq!(decode_topology(&data).count(), 1);
        assert_eq!(Event::decode(&[0xFF; 20]).1, []);
    }

    #[test]
    fn masks() {
        let masks = masks_for(&[kind::SAS_DISCOVERY, kind::SAS_TOPOLOGY_CHANGE_LIST]);
        let read = decode_masks(&notification(masks));
        assert_eq!(read, masks);
        assert!(is_wanted(read, kind::SAS_DISCOVERY));
        assert!(!is_wanted(read, kind::SAS_DEVICE_STATUS_CHANGE));
        assert!(!is_wanted(read, 200));
    }
}
