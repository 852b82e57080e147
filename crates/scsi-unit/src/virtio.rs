//! Commands, task management and events of virtio-scsi, for code that has its queues.

use std::collections::VecDeque;

use qpair_scsi_wire::sense::{Code, Sense};
use qpair_scsi_wire::{CHECK_CONDITION, GOOD};
use qpair_virtio::scsi::{Event, RESPONSE_BYTES, Response, Task, event, place_of, response, task};

/// The maximum number of events that wait for memory of the driver.
const EVENTS_MAX: usize = 16;

/// The end of a command.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The response code.
    pub response: u8,
    /// The SCSI status.
    pub status: u8,
    /// Sense data, with the status CHECK CONDITION.
    pub sense: Option<Sense>,
    /// The number of bytes of data that were moved.
    pub moved: u32,
}

impl Ended {
    /// Returns the end of a command that succeeded.
    #[must_use]
    pub fn good(moved: u32) -> Self {
        Self { response: response::OK, status: GOOD, sense: None, moved }
    }

    /// Returns the end of a command that failed with sense data.
    #[must_use]
    pub fn check(sense: Sense) -> Self {
        Self { status: CHECK_CONDITION, sense: Some(sense), ..Self::good(0) }
    }

    /// Returns the end of a command that did not reach a unit or that a task ended.
    #[must_use]
    pub fn fail(response: u8) -> Self {
        Self { response, ..Self::good(0) }
    }

    /// Encodes the response to a command that has `data_bytes` bytes of memory for data.
    #[must_use]
    pub fn encode(&self, data_bytes: u32) -> [u8; RESPONSE_BYTES] {
        let mut bytes = [0; RESPONSE_BYTES];
        let mut found = Response {
            response: self.response,
            status: self.status,
            residual: data_bytes.saturating_sub(self.moved),
            sense_bytes: 0,
        };
        if let Some(sense) = self.sense {
            let sense = sense.encode_fixed();
            bytes[Response::SENSE_AT..][..sense.len()].copy_from_slice(&sense);
            found.sense_bytes = sense.len() as u32;
        }
        bytes[..Response::SENSE_AT].copy_from_slice(&found.encode());
        bytes
    }
}

/// The effect of a task on the commands of a target.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    /// The id of the command that the task concerns; `None` for all commands of the unit.
    pub id: Option<u64>,
    /// The response with which the commands are to end; `None` if the task is only a query.
    pub ends: Option<u8>,
    /// The unit attention of a task that resets the unit.
    pub resets: Option<Code>,
}

impl Effect {
    /// Returns the effect of a task, with the number of its target and the result of `find` for it.
    ///
    /// # Errors
    /// The response to a task for no unit, or of an unknown type.
    pub fn of<T>(task: &Task, find: impl FnOnce(u8) -> Option<T>) -> Result<(u8, T, Self), u8> {
        let (target, number) = place_of(task.address).ok_or(response::INCORRECT_LUN)?;
        let unit = find(target).ok_or(response::BAD_TARGET)?;
        if number != 0 && task.what != task::NEXUS_RESET {
            return Err(response::INCORRECT_LUN);
        }
        let (id, ends, resets) = match task.what {
            task::ABORT_TASK => (Some(task.id), Some(response::ABORTED), None),
            task::ABORT_TASK_SET | task::CLEAR_TASK_SET => (None, Some(response::ABORTED), None),
            task::LUN_RESET => (None, Some(response::RESET), Some(Code::DEVICE_RESET)),
            task::NEXUS_RESET => (None, Some(response::RESET), Some(Code::NEXUS_LOSS)),
            task::QUERY_TASK => (Some(task.id), None, None),
            task::QUERY_TASK_SET => (None, None, None),
            _ => return Err(response::FUNCTION_REJECTED),
        };
        Ok((target, unit, Self { id, ends, resets }))
    }
}

/// Returns the response to a task whose commands have ended, or that was a query (`ends` is `None`)
/// and found a command or none.
#[must_use]
pub fn answer(ends: Option<u8>, has_found: bool) -> u8 {
    match ends {
        None if has_found => response::FUNCTION_SUCCEEDED,
        _ => response::OK,
    }
}

/// Events that wait for memory of the driver.
#[derive(Debug, Default)]
pub struct EventList(VecDeque<Event>);

impl EventList {
    /// Appends an event. If there are too many, the last one says that events were missed.
    pub fn push(&mut self, told: Event) {
        if self.0.len() < EVENTS_MAX {
            self.0.push_back(told);
        } else if let Some(last) = self.0.back_mut() {
            last.kind |= event::MISSED;
        }
    }

    /// Takes the first event.
    pub fn pop(&mut self) -> Option<Event> {
        self.0.pop_front()
    }

    /// Whether no event waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all events.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
