//! The slot of a disk: the lamps of its enclosure, controlled by the SCSI enclosure processor
//! message.

use crate::message::{reply as new_reply, request};
use qpair_wire::le::{u16_at, u32_at};
use qpair_wire::{put, u8_at};

pub const SLOT_BYTES: usize = 0x20;

pub mod status {
    pub const NO_ERROR: u32 = 1;
    /// The lamp that identifies the slot is on.
    pub const IDENTIFY: u32 = 1 << 17;
}

/// A request that sets the status of the slot with a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteSlot {
    pub handle: u16,
    /// The status: [`status`] bits.
    pub status: u32,
}

/// The action, and the way in which a slot is named.
const WRITE_STATUS: u8 = 0;
const BY_HANDLE: u8 = 0;

impl WriteSlot {
    /// Decodes the request; `None` if it asks for something else.
    #[must_use]
    pub fn decode(data: &[u8]) -> Option<Self> {
        let is_it = u8_at(data, 4) == WRITE_STATUS && u8_at(data, 5) == BY_HANDLE;
        is_it.then(|| Self { handle: u16_at(data, 0), status: u32_at(data, 0x0C) })
    }

    #[must_use]
    pub fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut data = request::<SLOT_BYTES>(crate::function::SCSI_ENCLOSURE_PROCESSOR);
        put(&mut data, 0, &self.handle.to_le_bytes());
        put(&mut data, 0x0C, &self.status.to_le_bytes());
        data
    }

    #[must_use]
    pub fn reply(request: &[u8], ioc_status: u16) -> Vec<u8> {
        let mut data = new_reply(request, SLOT_BYTES, ioc_status);
        data[..2].copy_from_slice(request.get(..2).unwrap_or(&[0, 0]));
        put(&mut data, 0x14, request.get(0x0C..0x10).unwrap_or(&[0; 4]));
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_bytes() {
        let slot = WriteSlot { handle: 9, status: status::NO_ERROR | status::IDENTIFY };
        let mut request = slot.encode();
        assert_eq!(WriteSlot::decode(&request), Some(slot));
        let reply = WriteSlot::reply(&request, 0);
        assert_eq!((reply.len(), u32_at(&reply, 0x14), reply[3]), (0x20, slot.status, 0x18));
        request[4] = 1;
        assert_eq!(WriteSlot::decode(&request), None, "a question");
    }
}
