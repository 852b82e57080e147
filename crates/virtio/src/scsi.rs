//! A SCSI host of virtio: its configuration, commands, tasks and events, as bytes. Integers are little-endian.

/// The id of the device over PCI, version 1.
pub const PCI_DEVICE: u16 = 0x1048;
/// The id of a transitional device.
pub const PCI_DEVICE_TRANSITIONAL: u16 = 0x1004;

/// Units come and go, and the driver is told.
pub const FEATURE_HOTPLUG: u64 = 1 << 1;
/// Parameters of units change, and the driver is told.
pub const FEATURE_CHANGE: u64 = 1 << 2;

/// Which queue is for tasks.
pub const CONTROL_QUEUE: u16 = 0;
/// Which one is for events.
pub const EVENT_QUEUE: u16 = 1;
/// The first one for commands.
pub const REQUEST_QUEUE: u16 = 2;

/// Bytes of a command's header, with a CDB of the default size.
pub const COMMAND_BYTES: usize = 51;
/// Bytes of a response, with sense data of the default size.
pub const RESPONSE_BYTES: usize = 108;
/// Bytes of a task.
pub const TASK_BYTES: usize = 24;
/// What comes by the control queue begins with: a task; a question for events, or a wish to hear of them.
pub const KIND_TASK: u32 = 0;
/// See [`KIND_TASK`].
pub const KIND_QUERY_EVENTS: u32 = 1;
/// See [`KIND_TASK`].
pub const KIND_SUBSCRIBE_EVENTS: u32 = 2;
/// Bytes of an answer to one about events: those that there are, and how it ended.
pub const EVENTS_ANSWER_BYTES: usize = 5;
/// Bytes of an event.
pub const EVENT_BYTES: usize = 16;
/// Bytes of a CDB, by default.
pub const CDB_BYTES: usize = 32;
/// Bytes of sense data, by default.
pub const SENSE_BYTES: usize = 96;
/// Targets that a unit's address can name.
pub const TARGETS_MAX: u16 = 256;
/// Units of a target that it can name.
pub const UNITS_MAX: u16 = 0x4000;

/// How a command or a task ended.
pub mod response {
    /// A command: see its status. A task: it is complete.
    pub const OK: u8 = 0;
    /// There was more to move than memory for it.
    pub const OVERRUN: u8 = 1;
    /// A task ended it.
    pub const ABORTED: u8 = 2;
    /// There is no such target.
    pub const BAD_TARGET: u8 = 3;
    /// A reset ended it.
    pub const RESET: u8 = 4;
    /// There is no room for it now.
    pub const BUSY: u8 = 5;
    /// The transport failed.
    pub const TRANSPORT_FAILURE: u8 = 6;
    /// The target failed.
    pub const TARGET_FAILURE: u8 = 7;
    /// The path failed.
    pub const NEXUS_FAILURE: u8 = 8;
    /// Something else failed.
    pub const FAILURE: u8 = 9;
    /// A task: it is done.
    pub const FUNCTION_SUCCEEDED: u8 = 10;
    /// A task: the device does not know it.
    pub const FUNCTION_REJECTED: u8 = 11;
    /// A task: there is no such unit.
    pub const INCORRECT_LUN: u8 = 12;
}

/// What a task is to do.
pub mod task {
    /// End a command.
    pub const ABORT_TASK: u32 = 0;
    /// End all commands of a unit.
    pub const ABORT_TASK_SET: u32 = 1;
    /// End all commands of a unit, those of other drivers too.
    pub const CLEAR_TASK_SET: u32 = 3;
    /// Reset a target.
    pub const NEXUS_RESET: u32 = 4;
    /// Reset a unit.
    pub const LUN_RESET: u32 = 5;
    /// Tell whether a command is under way.
    pub const QUERY_TASK: u32 = 6;
    /// Tell whether any command of a unit is under way.
    pub const QUERY_TASK_SET: u32 = 7;
}

/// What an event tells.
pub mod event {
    /// A unit came, went, or was reset.
    pub const TRANSPORT_RESET: u32 = 1;
    /// A unit's parameters have changed: the reason is a code of sense data, its qualifier in the upper byte.
    pub const PARAMETERS: u32 = 3;
    /// Some were not told, for want of memory: beside the rest.
    pub const MISSED: u32 = 1 << 31;
    /// Why, of a transport reset: the unit was reset.
    pub const HARD_RESET: u32 = 0;
    /// It came, or has changed.
    pub const RESCAN: u32 = 1;
    /// It has gone.
    pub const REMOVED: u32 = 2;
}

/// The address of a unit.
#[must_use]
pub fn address(target: u8, unit: u16) -> [u8; 8] {
    let [high, low] = (unit & (UNITS_MAX - 1)).to_be_bytes();
    [1, target, 0x40 | high, low, 0, 0, 0, 0]
}

/// Target and unit of an address.
#[must_use]
pub fn place_of(address: [u8; 8]) -> Option<(u8, u16)> {
    let [1, target, high, low, 0, 0, 0, 0] = address else { return None };
    Some((target, u16::from_be_bytes([high, low]) & (UNITS_MAX - 1)))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn eight_at(bytes: &[u8], at: usize) -> [u8; 8] {
    u64_at(bytes, at).to_le_bytes()
}

/// What a device says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Queues for commands.
    pub queues: u32,
    /// Descriptors of a command's data, at most.
    pub segments_max: u32,
    /// Data of a command at most, in units of 512 bytes.
    pub sectors_max: u32,
    /// Commands of one unit that should be under way, at most.
    pub commands_per_unit: u32,
    /// Bytes of an event.
    pub event_bytes: u32,
    /// Bytes of sense data.
    pub sense_bytes: u32,
    /// Bytes of a CDB.
    pub cdb_bytes: u32,
    /// The highest channel, target and unit.
    pub channel_max: u16,
    /// The highest target.
    pub target_max: u16,
    /// The highest unit.
    pub unit_max: u32,
}

impl Config {
    /// Bytes of it.
    pub const BYTES: usize = 36;

    /// From bytes.
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

    /// As bytes.
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

/// A command's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The unit.
    pub address: [u8; 8],
    /// By which a task names it.
    pub id: u64,
    /// The CDB, with zeroes behind it.
    pub cdb: [u8; CDB_BYTES],
}

impl Command {
    /// As bytes; a simple task, without priority.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[..8].copy_from_slice(&self.address);
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[19..].copy_from_slice(&self.cdb);
        bytes
    }

    /// From bytes.
    #[must_use]
    pub fn decode(bytes: &[u8; COMMAND_BYTES]) -> Self {
        let mut cdb = [0; CDB_BYTES];
        cdb.copy_from_slice(&bytes[19..]);
        Self { address: eight_at(bytes, 0), id: u64_at(bytes, 8), cdb }
    }
}

/// A response, without its sense data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Bytes of sense data.
    pub sense_bytes: u32,
    /// Bytes of data that were not moved.
    pub residual: u32,
    /// SCSI status.
    pub status: u8,
    /// One of [`response`].
    pub response: u8,
}

impl Response {
    /// Where sense data begins.
    pub const SENSE_AT: usize = 12;

    /// From the first bytes, as a number.
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

    /// As bytes.
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

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// One of [`task`].
    pub what: u32,
    /// The unit.
    pub address: [u8; 8],
    /// The command that is to end.
    pub id: u64,
}

impl Task {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; TASK_BYTES] {
        let mut bytes = [0; TASK_BYTES];
        bytes[4..8].copy_from_slice(&self.what.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address);
        bytes[16..].copy_from_slice(&self.id.to_le_bytes());
        bytes
    }

    /// From bytes; `None`: something else that came by the control queue.
    #[must_use]
    pub fn decode(bytes: &[u8; TASK_BYTES]) -> Option<Self> {
        let task =
            Self { what: u32_at(bytes, 4), address: eight_at(bytes, 8), id: u64_at(bytes, 16) };
        (u32_at(bytes, 0) == KIND_TASK).then_some(task)
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// One of [`event`], and whether some were missed.
    pub kind: u32,
    /// The unit.
    pub address: [u8; 8],
    /// Why.
    pub reason: u32,
}

impl Event {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; EVENT_BYTES] {
        let mut bytes = [0; EVENT_BYTES];
        bytes[..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.address);
        bytes[12..].copy_from_slice(&self.reason.to_le_bytes());
        bytes
    }

    /// From bytes.
    #[must_use]
    pub fn decode(bytes: &[u8; EVENT_BYTES]) -> Self {
        Self { kind: u32_at(bytes, 0), address: eight_at(bytes, 4), reason: u32_at(bytes, 12) }
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
        let config = Config {
            queues: 1,
            segments_max: 126,
            sectors_max: 0xFFFF,
            commands_per_unit: 128,
            event_bytes: 16,
            sense_bytes: 96,
            cdb_bytes: 32,
            channel_max: 2,
            target_max: 255,
            unit_max: 16383,
        };
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
