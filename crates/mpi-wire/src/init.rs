//! The facts about a controller and its ports, and its initialisation.

use crate::function;
use crate::message::{reply, request};
use qpair_wire::le::{u16_at, u32_at, u64_at};
use qpair_wire::{put, u8_at};

/// The version number of MPI 2.5 in messages.
pub const VERSION: u16 = 0x0205;
/// The version number of MPI 2.6 in messages.
pub const VERSION_26: u16 = 0x0206;
/// Capability: events are sent again after a reset of the message unit.
pub const CAPABILITY_EVENT_REPLAY: u32 = 0x2000;
/// Capability: more than one reply queue.
pub const CAPABILITY_MSI_X_INDEX: u32 = 0x8000;
/// Capability: the addresses of reply queues are given by a list.
pub const CAPABILITY_RDPQ: u32 = 0x4_0000;
/// Capability: a request descriptor is posted in one word.
pub const CAPABILITY_ATOMIC_REQUEST: u32 = 0x8_0000;
/// Protocol: an initiator.
pub const PROTOCOL_INITIATOR: u16 = 2;
pub const FACTS_REQUEST_BYTES: usize = 0x0C;
pub const FACTS_BYTES: usize = 0x44;
pub const INIT_BYTES: usize = 0x48;
pub const PORT_FACTS_BYTES: usize = 0x1C;
/// Flag of an initialisation: the reply queues' address is that of a list of addresses.
pub const FLAG_RDPQ: u8 = 1;
/// Bytes of an entry of that list: an address, and as many zeroes.
pub const RDPQ_ENTRY_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub version: u16,
    /// The maximum number of chained segments of a list.
    pub chain_depth_max: u8,
    /// The kind of software that initialised the controller.
    pub who: u8,
    pub ports: u8,
    /// The number of MSI-X vectors, each with a reply queue.
    pub vectors: u8,
    /// The maximum number of requests in flight.
    pub credit: u16,
    pub product: u16,
    /// The capabilities: `CAPABILITY_` bits.
    pub capabilities: u32,
    pub firmware: u32,
    /// The bytes of a request frame.
    pub frame_bytes: u32,
    /// The number of elements of 16 bytes in a chained segment.
    pub chain_elements: u16,
    pub protocols: u16,
    pub high_priority_credit: u16,
    pub reply_queue_entries_max: u16,
    /// The bytes of a reply frame.
    pub reply_bytes: u32,
    pub handle_max: u16,
    pub handle_min: u16,
}

#[must_use]
pub fn facts_request() -> [u8; FACTS_REQUEST_BYTES] {
    request(function::IOC_FACTS)
}

impl Facts {
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        Self {
            version: u16_at(data, 0x00),
            chain_depth_max: u8_at(data, 0x14),
            who: u8_at(data, 0x15),
            ports: u8_at(data, 0x16),
            vectors: u8_at(data, 0x17),
            credit: u16_at(data, 0x18),
            product: u16_at(data, 0x1A),
            capabilities: u32_at(data, 0x1C),
            firmware: u32_at(data, 0x20),
            frame_bytes: u32::from(u16_at(data, 0x24)) * 4,
            chain_elements: u16_at(data, 0x26),
            protocols: u16_at(data, 0x30),
            high_priority_credit: u16_at(data, 0x32),
            reply_queue_entries_max: u16_at(data, 0x34),
            reply_bytes: u32::from(u8_at(data, 0x36)) * 4,
            handle_max: u16_at(data, 0x38),
            handle_min: u16_at(data, 0x3C),
        }
    }

    #[must_use]
    pub fn encode(&self, asked: &[u8]) -> Vec<u8> {
        let mut data = reply(asked, FACTS_BYTES, 0);
        put(&mut data, 0x00, &self.version.to_le_bytes());
        put(&mut data, 0x04, &0x2A00u16.to_le_bytes());
        data[0x14] = self.chain_depth_max;
        data[0x15] = self.who;
        data[0x16] = self.ports;
        data[0x17] = self.vectors;
        put(&mut data, 0x18, &self.credit.to_le_bytes());
        put(&mut data, 0x1A, &self.product.to_le_bytes());
        put(&mut data, 0x1C, &self.capabilities.to_le_bytes());
        put(&mut data, 0x20, &self.firmware.to_le_bytes());
        put(&mut data, 0x24, &((self.frame_bytes / 4) as u16).to_le_bytes());
        put(&mut data, 0x26, &self.chain_elements.to_le_bytes());
        put(&mut data, 0x28, &1u16.to_le_bytes());
        put(&mut data, 0x2A, &self.handle_max.to_le_bytes());
        put(&mut data, 0x30, &self.protocols.to_le_bytes());
        put(&mut data, 0x32, &self.high_priority_credit.to_le_bytes());
        put(&mut data, 0x34, &self.reply_queue_entries_max.to_le_bytes());
        data[0x36] = (self.reply_bytes / 4) as u8;
        put(&mut data, 0x38, &self.handle_max.to_le_bytes());
        put(&mut data, 0x3C, &self.handle_min.to_le_bytes());
        data
    }
}

/// The initialisation request, with the addresses of a driver's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// The version of the interface that the driver speaks.
    pub version: u16,
    /// The kind of software that initialises the controller.
    pub who: u8,
    /// Flags: [`FLAG_RDPQ`].
    pub flags: u8,
    /// The number of reply queues in use.
    pub vectors: u8,
    pub frame_bytes: u32,
    pub reply_queue_entries: u16,
    pub reply_free_entries: u16,
    /// The upper half of the address of sense buffers.
    pub sense_high: u32,
    /// The upper half of the address of reply frames.
    pub reply_high: u32,
    /// The address of the first request frame: that of SMID 0.
    pub frames: u64,
    /// The address of the first reply queue; with [`FLAG_RDPQ`], that of the list of their
    /// addresses.
    pub reply_queues: u64,
    pub reply_free: u64,
    /// The time in ms since 1970.
    pub time_ms: u64,
}

impl Init {
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        Self {
            version: u16_at(data, 0x0C),
            who: u8_at(data, 0),
            flags: u8_at(data, 7),
            vectors: u8_at(data, 0x17),
            frame_bytes: u32::from(u16_at(data, 0x1A)) * 4,
            reply_queue_entries: u16_at(data, 0x1C),
            reply_free_entries: u16_at(data, 0x1E),
            sense_high: u32_at(data, 0x20),
            reply_high: u32_at(data, 0x24),
            frames: u64_at(data, 0x28),
            reply_queues: u64_at(data, 0x30),
            reply_free: u64_at(data, 0x38),
            time_ms: u64_at(data, 0x40),
        }
    }

    #[must_use]
    pub fn encode(&self) -> [u8; INIT_BYTES] {
        let mut data = request::<INIT_BYTES>(function::IOC_INIT);
        data[0] = self.who;
        data[7] = self.flags;
        put(&mut data, 0x0C, &self.version.to_le_bytes());
        put(&mut data, 0x0E, &0x2A00u16.to_le_bytes());
        // Pages of 4096 bytes.
        data[0x16] = 12;
        data[0x17] = self.vectors;
        put(&mut data, 0x1A, &((self.frame_bytes / 4) as u16).to_le_bytes());
        put(&mut data, 0x1C, &self.reply_queue_entries.to_le_bytes());
        put(&mut data, 0x1E, &self.reply_free_entries.to_le_bytes());
        put(&mut data, 0x20, &self.sense_high.to_le_bytes());
        put(&mut data, 0x24, &self.reply_high.to_le_bytes());
        put(&mut data, 0x28, &self.frames.to_le_bytes());
        put(&mut data, 0x30, &self.reply_queues.to_le_bytes());
        put(&mut data, 0x38, &self.reply_free.to_le_bytes());
        put(&mut data, 0x40, &self.time_ms.to_le_bytes());
        data
    }
}

/// Encodes the facts about a SAS port.
#[must_use]
pub fn port_facts(asked: &[u8], credit: u16) -> Vec<u8> {
    let mut data = reply(asked, PORT_FACTS_BYTES, 0);
    data[6] = u8_at(asked, 6);
    // A SAS initiator.
    data[0x15] = 0x30;
    put(&mut data, 0x18, &credit.to_le_bytes());
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_bytes() {
        let facts = Facts {
            version: VERSION,
            chain_depth_max: 128,
            who: 4,
            ports: 1,
            vectors: 8,
            credit: 1024,
            product: 0x2221,
            capabilities: 0xA000,
            firmware: 0x1000_0000,
            frame_bytes: 128,
            chain_elements: 8,
            protocols: 2,
            high_priority_credit: 8,
            reply_queue_entries_max: 4096,
            reply_bytes: 128,
            handle_max: 256,
            handle_min: 9,
        };
        assert_eq!(Facts::decode(&facts.encode(&facts_request())), facts);
        let init = Init {
            version: VERSION_26,
            who: 4,
            flags: 1,
            vectors: 3,
            frame_bytes: 128,
            reply_queue_entries: 512,
            reply_free_entries: 99,
            sense_high: 1,
            reply_high: 2,
            frames: 3 << 40,
            reply_queues: 4 << 40,
            reply_free: 5 << 40,
            time_ms: 6 << 30,
        };
        assert_eq!(Init::decode(&init.encode()), init);
    }
}
