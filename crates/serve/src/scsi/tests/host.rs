//! A handwritten driver for the queues of a SCSI host.

use std::ops::Deref;
use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_scsi_wire::command::Range;
use qpair_scsi_wire::operations;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_scsi_wire::{CHECK_CONDITION, Command as Scsi, Width};
use qpair_virtio::ring::{NEXT, WRITE};
use qpair_virtio::scsi::{
    CDB_BYTES, COMMAND_BYTES, CONTROL_QUEUE, Command, EVENT_BYTES, EVENT_QUEUE, Event,
    FEATURE_CHANGE, FEATURE_HOTPLUG, REQUEST_QUEUE, RESPONSE_BYTES, Response, TASK_BYTES, Task,
    address, response,
};

use crate::device::Device as _;
use crate::disk::Disk;
use crate::queue::rig::{Memory, Ring};
use crate::scsi::Controller;
use crate::unit::Unit;

/// The places of commands, responses, tasks, their answers and events in memory, by head. Those of
/// the second request queue follow those of the first.
pub(super) const COMMANDS_AT: u64 = 0x8000;
pub(super) const RESPONSES_AT: u64 = 0xA000;
pub(super) const TASKS_AT: u64 = 0xC000;
pub(super) const ANSWERS_AT: u64 = 0xD000;
pub(super) const EVENTS_AT: u64 = 0xE000;
pub(super) const DATA_AT: u64 = 0x1_0000;

pub(super) struct Host {
    pub(super) memory: Memory,
    pub(super) controller: Arc<Controller>,
    pub(super) control: Ring,
    pub(super) events: Ring,
    pub(super) requests: [Ring; 2],
}

impl Deref for Host {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.memory
    }
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended {
    pub(super) response: u8,
    pub(super) status: u8,
    pub(super) residual: u32,
    pub(super) sense: Option<Sense>,
    pub(super) written: u32,
}

impl Ended {
    #[track_caller]
    pub(super) fn is_good(&self, residual: u32) {
        let (response, status) = (self.response, self.status);
        assert_eq!((response, status, self.residual), (response::OK, 0, residual), "{self:?}");
    }

    #[track_caller]
    pub(super) fn checks(&self, key: Key, code: Code) {
        let sense = self.sense.unwrap_or_default();
        assert_eq!((self.status, sense.key, sense.code), (CHECK_CONDITION, key, code), "{self:?}");
    }
}

pub(super) fn none() -> (u64, u32) {
    (DATA_AT, 0)
}

pub(super) fn sixteen(block: u64, blocks: u32) -> Range {
    Range { block, blocks, width: Width::Sixteen }
}

pub(super) fn read(block: u64, blocks: u32) -> Scsi {
    Scsi::Read { range: sixteen(block, blocks), force_unit_access: false, protect: 0 }
}

pub(super) fn write(block: u64, blocks: u32) -> Scsi {
    Scsi::Write { range: sixteen(block, blocks), force_unit_access: false, protect: 0 }
}

impl Host {
    /// Creates a host with these targets. Their first unit attentions have been reported.
    pub(super) fn new(devices: &[Arc<dyn BlockDevice>]) -> Self {
        let memory = Memory::new();
        let controller = Arc::new(Controller::new(2).unwrap());
        controller.settle(FEATURE_HOTPLUG | FEATURE_CHANGE);
        for (number, device) in (0..).zip(devices) {
            let disk = Disk::new(&format!("disk-{number}"), device.clone());
            assert_eq!(controller.add(None, &disk).unwrap(), number);
        }
        controller.events().clear();
        let requests = [0, 1].map(|number| memory.ring(REQUEST_QUEUE + number));
        let (control, events) = (memory.ring(CONTROL_QUEUE), memory.ring(EVENT_QUEUE));
        let mut host = Self { memory, controller, control, events, requests };
        let mut queue = host.start();
        for number in 0..devices.len() as u8 {
            let ready = host.run_on(&mut queue, number, Scsi::TestUnitReady, none(), false);
            ready.checks(Key::UnitAttention, Code::POWER_ON);
        }
        // The stopped queue leaves its ring in the state in which the next one begins.
        let stopped = queue.stop();
        host.requests[0] = host.memory.ring(REQUEST_QUEUE);
        assert!(!stopped.is_broken);
        host.bytes().zero(0x2000, 0x1000);
        host
    }

    pub(super) fn start(&self) -> Box<dyn Unit> {
        self.requests[0].open(&self.controller)
    }

    /// Offers a command in two or three descriptors from `head` on.
    pub(super) fn offer(
        &mut self,
        which: usize,
        head: u16,
        target: u8,
        scsi: Scsi,
        data: (u64, u32),
        is_out: bool,
    ) {
        let mut cdb = [0; CDB_BYTES];
        cdb[..16].copy_from_slice(scsi.encode().padded());
        let id = u64::from(head) + 100;
        self.offer_cdb(which, head, Command { address: address(target, 0), id, cdb }, data, is_out);
    }

    pub(super) fn offer_cdb(
        &mut self,
        which: usize,
        head: u16,
        command: Command,
        data: (u64, u32),
        is_out: bool,
    ) {
        let slot = u64::from(head) + 16 * which as u64;
        let (command_at, response_at) = (COMMANDS_AT + 64 * slot, RESPONSES_AT + 128 * slot);
        self.put(command_at, &command.encode());
        self.put(response_at, &[0xEE; RESPONSE_BYTES]);
        let ring = &mut self.requests[which];
        let (next, last) = (head + 1, head + 2);
        let has_data = data.1 > 0;
        ring.describe(head, command_at, COMMAND_BYTES as u32, NEXT, next);
        match (has_data, is_out) {
            (false, _) => ring.describe(next, response_at, RESPONSE_BYTES as u32, WRITE, 0),
            (true, true) => {
                ring.describe(next, data.0, data.1, NEXT, last);
                ring.describe(last, response_at, RESPONSE_BYTES as u32, WRITE, 0);
            }
            (true, false) => {
                ring.describe(next, response_at, RESPONSE_BYTES as u32, WRITE | NEXT, last);
                ring.describe(last, data.0, data.1, WRITE, 0);
            }
        }
        ring.offer(head);
    }

    pub(super) fn ended(&mut self, which: usize) -> Option<(u16, Ended)> {
        let used = self.requests[which].take()?;
        let at = RESPONSES_AT + 128 * (u64::from(used.id) + 16 * which as u64);
        let bytes = self.get(at, RESPONSE_BYTES);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let found = Response::decode(u64::from(word(0)) | u64::from(word(4)) << 32, word(8));
        let sense = &bytes[Response::SENSE_AT..][..found.sense_bytes as usize];
        let ended = Ended {
            response: found.response,
            status: found.status,
            residual: found.residual,
            sense: Sense::decode(sense),
            written: used.len,
        };
        Some((used.id as u16, ended))
    }

    /// Turns a queue until a command has come back.
    #[track_caller]
    pub(super) fn finish(&mut self, queue: &mut Box<dyn Unit>) -> (u16, Ended) {
        for _ in 0..100_000 {
            queue.turn();
            if let Some(ended) = self.ended(0) {
                return ended;
            }
        }
        panic!("it does not come back");
    }

    #[track_caller]
    pub(super) fn run_on(
        &mut self,
        queue: &mut Box<dyn Unit>,
        target: u8,
        scsi: Scsi,
        data: (u64, u32),
        is_out: bool,
    ) -> Ended {
        self.offer(0, 3, target, scsi, data, is_out);
        let (3, ended) = self.finish(queue) else { panic!("another one") };
        ended
    }

    /// Runs a command of the first target that receives data, and returns the data.
    #[track_caller]
    pub(super) fn ask(&mut self, queue: &mut Box<dyn Unit>, scsi: Scsi, len: u32) -> Vec<u8> {
        let ended = self.run_on(queue, 0, scsi, (DATA_AT, len), false);
        assert_eq!((ended.response, ended.status), (response::OK, 0), "{scsi:?}: {ended:?}");
        let len = (len - ended.residual) as usize;
        assert_eq!(ended.written as usize, RESPONSE_BYTES + len);
        self.get(DATA_AT, len)
    }

    /// Returns the operation codes that the unit reports as supported.
    pub(super) fn known(&mut self, queue: &mut Box<dyn Unit>) -> Vec<u8> {
        let known = Scsi::ReportOperations {
            timeouts: false,
            options: 0,
            opcode: 0,
            action: 0,
            allocation: 4096,
        };
        let bytes = self.ask(queue, known, 4096);
        operations::decode_all(&bytes).map(|(code, _)| code).collect()
    }

    #[track_caller]
    pub(super) fn fails(
        &mut self,
        queue: &mut Box<dyn Unit>,
        scsi: Scsi,
        data: (u64, u32),
        is_out: bool,
        why: (Key, Code),
    ) -> Ended {
        let ended = self.run_on(queue, 0, scsi, data, is_out);
        ended.checks(why.0, why.1);
        assert_eq!(ended.residual, data.1);
        ended
    }

    pub(super) fn offer_task(&mut self, head: u16, task: Task) {
        let (at, answer_at) = (TASKS_AT + 32 * u64::from(head), ANSWERS_AT + u64::from(head));
        self.put(at, &task.encode());
        self.put(answer_at, &[0xEE]);
        self.control.describe(head, at, TASK_BYTES as u32, NEXT, head + 1);
        self.control.describe(head + 1, answer_at, 1, WRITE, 0);
        self.control.offer(head);
    }

    pub(super) fn answer(&mut self) -> Option<u8> {
        let used = self.control.take()?;
        Some(self.get(ANSWERS_AT + u64::from(used.id), 1)[0])
    }

    pub(super) fn expect_event(&mut self, head: u16) {
        let at = EVENTS_AT + 16 * u64::from(head);
        self.events.describe(head, at, EVENT_BYTES as u32, WRITE, 0);
        self.events.offer(head);
    }

    pub(super) fn event(&mut self) -> Option<Event> {
        let used = self.events.take()?;
        let bytes = self.get(EVENTS_AT + 16 * u64::from(used.id), EVENT_BYTES);
        Some(Event::decode(bytes[..].try_into().unwrap()))
    }
}
