//! Task management: ending commands and resetting units and targets.

use crate::function;
use crate::message::{reply as new_reply, request};
use qpair_wire::le::{u16_at, u32_at};
use qpair_wire::{put, u8_at};

pub const TASK_BYTES: usize = 0x34;
pub const TASK_REPLY_BYTES: usize = 0x1C;

pub mod kind {
    pub const ABORT_TASK: u8 = 1;
    pub const ABORT_TASK_SET: u8 = 2;
    pub const TARGET_RESET: u8 = 3;
    pub const LUN_RESET: u8 = 5;
    /// Asks whether a command is in flight.
    pub const QUERY_TASK: u8 = 7;
}

pub mod response {
    pub const COMPLETE: u8 = 0x00;
    pub const NOT_SUPPORTED: u8 = 0x04;
    pub const FAILED: u8 = 0x05;
    /// The task is done, or the answer to its question is yes.
    pub const SUCCEEDED: u8 = 0x08;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    pub handle: u16,
    /// The type: one of [`kind`].
    pub kind: u8,
    pub lun: [u8; 8],
    /// The SMID of the command, for a task about one command.
    pub smid: u16,
}

impl Task {
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        let mut lun = [0; 8];
        lun.copy_from_slice(data.get(0x0C..0x14).unwrap_or(&[0; 8]));
        Self { handle: u16_at(data, 0), kind: u8_at(data, 5), lun, smid: u16_at(data, 0x30) }
    }

    #[must_use]
    pub fn encode(&self) -> [u8; TASK_BYTES] {
        let mut data = request::<TASK_BYTES>(function::SCSI_TASK_MGMT);
        put(&mut data, 0, &self.handle.to_le_bytes());
        data[5] = self.kind;
        put(&mut data, 0x0C, &self.lun);
        put(&mut data, 0x30, &self.smid.to_le_bytes());
        data
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskReply {
    /// The response code: one of [`response`].
    pub response: u8,
    pub ioc_status: u16,
    /// The number of commands that the task ended.
    pub terminated: u32,
}

impl TaskReply {
    #[must_use]
    pub fn decode(data: &[u8]) -> Self {
        Self {
            response: u8_at(data, 4),
            ioc_status: u16_at(data, 0x0E) & crate::ioc_status::MASK,
            terminated: u32_at(data, 0x14),
        }
    }

    #[must_use]
    pub fn encode(&self, request: &[u8]) -> Vec<u8> {
        let mut data = new_reply(request, TASK_REPLY_BYTES, self.ioc_status);
        data[..2].copy_from_slice(request.get(..2).unwrap_or(&[0, 0]));
        data[4] = self.response;
        data[5] = u8_at(request, 5);
        put(&mut data, 0x14, &self.terminated.to_le_bytes());
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_bytes() {
        let task = Task { handle: 9, kind: kind::LUN_RESET, lun: [7; 8], smid: 77 };
        assert_eq!(Task::decode(&task.encode()), task);
        let reply = TaskReply { response: 8, ioc_status: 0x4A, terminated: 3 };
        assert_eq!(TaskReply::decode(&reply.encode(&task.encode())), reply);
        assert_eq!(reply.encode(&task.encode())[5], kind::LUN_RESET);
    }
}
