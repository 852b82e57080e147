//! A virtio SCSI host as bytes: its configuration, commands, tasks and events. Integers are
//! little-endian.

use qpair_wire::get;
use qpair_wire::le::{u32_at, u64_at};

/// The PCI device id, version 1.
pub const PCI_DEVICE: u16 = 0x1048;
/// The PCI device id of a transitional device.
pub const PCI_DEVICE_TRANSITIONAL: u16 = 0x1004;

/// Feature bit: the driver is told when units come and go.
pub const FEATURE_HOTPLUG: u64 = 1 << 1;
/// Feature bit: the driver is told when parameters of units change.
pub const FEATURE_CHANGE: u64 = 1 << 2;

pub const CONTROL_QUEUE: u16 = 0;
pub const EVENT_QUEUE: u16 = 1;
/// The number of the first queue for commands.
pub const REQUEST_QUEUE: u16 = 2;

/// Bytes of a command's header, with a CDB of the default size.
pub const COMMAND_BYTES: usize = 51;
/// Bytes of a response, with sense data of the default size.
pub const RESPONSE_BYTES: usize = 108;
pub const TASK_BYTES: usize = 24;
/// Type of a message on the control queue: a task.
pub const KIND_TASK: u32 = 0;
/// Type of a message on the control queue: a query for events.
pub const KIND_QUERY_EVENTS: u32 = 1;
/// Type of a message on the control queue: a subscription to events.
pub const KIND_SUBSCRIBE_EVENTS: u32 = 2;
/// The bytes of an answer about events: the supported ones, and a response code.
pub const EVENTS_ANSWER_BYTES: usize = 5;
pub const EVENT_BYTES: usize = 16;
/// The default number of bytes of a CDB.
pub const CDB_BYTES: usize = 32;
/// The default number of bytes of sense data.
pub const SENSE_BYTES: usize = 96;
/// The number of targets that a unit's address can name.
pub const TARGETS_MAX: u16 = 256;
/// The number of units of a target that an address can name.
pub const UNITS_MAX: u16 = 0x4000;

pub mod response {
    /// For a command: see its status. For a task: it is complete.
    pub const OK: u8 = 0;
    /// The data did not fit the memory for it.
    pub const OVERRUN: u8 = 1;
    /// A task ended the command.
    pub const ABORTED: u8 = 2;
    pub const BAD_TARGET: u8 = 3;
    /// A reset ended the command.
    pub const RESET: u8 = 4;
    /// There is no room for the command now.
    pub const BUSY: u8 = 5;
    pub const TRANSPORT_FAILURE: u8 = 6;
    pub const TARGET_FAILURE: u8 = 7;
    pub const NEXUS_FAILURE: u8 = 8;
    /// Something else failed.
    pub const FAILURE: u8 = 9;
    /// The task is done.
    pub const FUNCTION_SUCCEEDED: u8 = 10;
    /// The device does not support the task.
    pub const FUNCTION_REJECTED: u8 = 11;
    /// There is no unit for the task.
    pub const INCORRECT_LUN: u8 = 12;
}

pub mod task {
    pub const ABORT_TASK: u32 = 0;
    /// Ends all commands of a unit.
    pub const ABORT_TASK_SET: u32 = 1;
    /// Ends all commands of a unit, including those of other drivers.
    pub const CLEAR_TASK_SET: u32 = 3;
    /// Resets a target.
    pub const NEXUS_RESET: u32 = 4;
    pub const LUN_RESET: u32 = 5;
    /// Asks whether a command is in flight.
    pub const QUERY_TASK: u32 = 6;
    /// Asks whether any command of a unit is in flight.
    pub const QUERY_TASK_SET: u32 = 7;
}

/// The types of events, and the reasons of a transport reset.
pub mod event {
    /// A unit came, went, or was reset.
    pub const TRANSPORT_RESET: u32 = 1;
    /// A unit's parameters have changed: the reason is a code of sense data, with its qualifier in
    /// the upper byte.
    pub const PARAMETERS: u32 = 3;
    /// Added to a type if earlier events were lost for want of memory.
    pub const MISSED: u32 = 1 << 31;
    /// Reason of a transport reset: the unit was reset.
    pub const HARD_RESET: u32 = 0;
    /// Reason of a transport reset: the unit came, or has changed.
    pub const RESCAN: u32 = 1;
    /// Reason of a transport reset: the unit has gone.
    pub const REMOVED: u32 = 2;
}

/// Encodes the address of a unit.
#[must_use]
pub fn address(target: u8, unit: u16) -> [u8; 8] {
    let [high, low] = (unit & (UNITS_MAX - 1)).to_be_bytes();
    [1, target, 0x40 | high, low, 0, 0, 0, 0]
}

/// Decodes the target and the unit of an address.
#[must_use]
pub fn place_of(address: [u8; 8]) -> Option<(u8, u16)> {
    let [1, target, high, low, 0, 0, 0, 0] = address else { return None };
    Some((target, u16::from_be_bytes([high, low]) & (UNITS_MAX - 1)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub queues: u32,
    /// The maximum number of descriptors of a command's data.
    pub segments_max: u32,
    /// The maximum data of a command, in units of 512 bytes.
    pub sectors_max: u32,
    /// The number of commands of one unit that should not be exceeded.
    pub commands_per_unit: u32,
    pub event_bytes: u32,
    pub sense_bytes: u32,
    pub cdb_bytes: u32,
    pub channel_max: u16,
    pub target_max: u16,
    pub unit_max: u32,
}

impl Config {
    pub const BYTES: usize = 36;

    /// Returns the configuration of a device with messages of the default sizes.
    #[must_use]
    pub fn new(queues: u16, target_max: u16, unit_max: u16) -> Self {
        Self {
            queues: queues.into(),
            segments_max: 126,
            sectors_max: 0xFFFF,
            commands_per_unit: 128,
            event_bytes: EVENT_BYTES as u32,
            sense_bytes: SENSE_BYTES as u32,
            cdb_bytes: CDB_BYTES as u32,
            channel_max: 0,
            target_max,
            unit_max: unit_max.into(),
        }
    }

    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at| u32_at(bytes, at);
        Self {
            queues: word(0),
            segments_max: word(4),
            sectors_max: word(8),
            commands_per_unit: word(12),
            event_bytes: word(16),
            sense_bytes: word(20),
            cdb_bytes: word(24),
            channel_max: word(28) as u16,
            target_max: (word(28) >> 16) as u16,
            unit_max: word(32),
        }
    }

    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let words = [
            self.queues,
            self.segments_max,
            self.sectors_max,
            self.commands_per_unit,
            self.event_bytes,
            self.sense_bytes,
            self.cdb_bytes,
            u32::from(self.channel_max) | u32::from(self.target_max) << 16,
            self.unit_max,
        ];
        let mut bytes = [0; Self::BYTES];
        let (places, _) = bytes.as_chunks_mut::<4>();
        places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
        bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    pub address: [u8; 8],
    /// The id by which a task names the command.
    pub id: u64,
    /// The CDB, padded with zeroes.
    pub cdb: [u8; CDB_BYTES],
}

impl Command {
    /// Encodes the header, with the attribute "simple" and no priority.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[..8].copy_from_slice(&self.address);
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[19..].copy_from_slice(&self.cdb);
        bytes
    }

    #[must_use]
    pub fn decode(bytes: &[u8; COMMAND_BYTES]) -> Self {
        let mut cdb = [0; CDB_BYTES];
        cdb.copy_from_slice(&bytes[19..]);
        Self { address: get(bytes, 0), id: u64_at(bytes, 8), cdb }
    }
}

/// A response, without its sense data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    pub sense_bytes: u32,
    /// The bytes of data that were not moved.
    pub residual: u32,
    pub status: u8,
    /// The response code: one of [`response`].
    pub response: u8,
}

impl Response {
    pub const SENSE_AT: usize = 12;

    /// Decodes a response from its first 12 bytes, as two integers.
    #[inline]
    #[must_use]
    pub fn decode(first: u64, second: u32) -> Self {
        Self {
            sense_bytes: first as u32,
            residual: (first >> 32) as u32,
            status: (second >> 16) as u8,
            response: (second >> 24) as u8,
        }
    }

    #[must_use]
    pub fn encode(&self) -> [u8; Self::SENSE_AT] {
        let mut bytes = [0; Self::SENSE_AT];
        bytes[..4].copy_from_slice(&self.sense_bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.residual.to_le_bytes());
        bytes[10] = self.status;
        bytes[11] = self.response;
        bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The type: one of [`task`].
    pub what: u32,
    pub address: [u8; 8],
    /// The id of the command that the task is about.
    pub id: u64,
}

impl Task {
    #[must_use]
    pub fn encode(&self) -> [u8; TASK_BYTES] {
        let mut bytes = [0; TASK_BYTES];
        bytes[4..8].copy_from_slice(&self.what.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address);
        bytes[16..].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    /// Decodes a task; `None` if the message is something else.
    #[must_use]
    pub fn decode(bytes: &[u8; TASK_BYTES]) -> Option<Self> {
        let task = Self { what: u32_at(bytes, 4), address: get(bytes, 8), id: u64_at(bytes, 16) };
        (u32_at(bytes, 0) == KIND_TASK).then_some(task)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The type: one of [`event`], and whether events were missed.
    pub kind: u32,
    pub address: [u8; 8],
    pub reason: u32,
}

impl Event {
    #[must_use]
    pub fn encode(&self) -> [u8; EVENT_BYTES] {
        let mut bytes = [0; EVENT_BYTES];
        bytes[..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.address);
        bytes[12..].copy_from_slice(&self.reason.to_le_bytes());
        bytes
    }

    #[must_use]
    pub fn decode(bytes: &[u8; EVENT_BYTES]) -> Self {
        Self { kind: u32_at(bytes, 0), address: get(bytes, 4), reason: u32_at(bytes, 12) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_bytes() {
        for (target, unit) in [(0, 0), (255, 0x3FFF), (7, 256)] {
            assert_eq!(place_of(address(target, unit)), Some((target, unit)));
        }
        // Peripheral addressing is another way to write small units.
        assert_eq!(place_of([1, 3, 0, 2, 0, 0, 0, 0]), Some((3, 2)));
        assert_eq!(place_of([0, 3, 0, 2, 0, 0, 0, 0]), None);
        let config = Config { channel_max: 2, ..Config::new(1, 255, 16383) };
        assert_eq!(Config::decode(&config.encode()), config);
        let command = Command { address: address(1, 2), id: 0x0102_0304_0506_0708, cdb: [9; 32] };
        assert_eq!(Command::decode(&command.encode()), command);
        let response = Response { sense_bytes: 18, residual: 7, status: 2, response: 9 };
        let bytes = response.encode();
        assert_eq!(Response::decode(u64_at(&bytes, 0), u32_at(&bytes, 8)), response);
        let task = Task { what: task::LUN_RESET, address: address(1, 2), id: 5 };
        assert_eq!(Task::decode(&task.encode()), Some(task));
        let event = Event { kind: event::MISSED, address: address(1, 2), reason: 2 };
        assert_eq!(Event::decode(&event.encode()), event);
    }
}
