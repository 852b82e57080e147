//! A controller with scripted answers. In all other respects it works like a real one: it becomes
//! ready, takes commands, and posts completions.

use std::sync::{Arc, Mutex};

use qpair_block::Result;
use qpair_memory::DmaMemory;
use qpair_nvme_wire::command::{admin, cns};
use qpair_nvme_wire::registers::{ACQ, ASQ, CAP, CC, CSTS, Capabilities, DOORBELLS};
use qpair_nvme_wire::{
    Command, IdentifyController, IdentifyNamespace, LbaFormat, SUBMISSION_BYTES,
};
use qpair_pci::{PciDevice, Stepped};

#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) is_silent: bool,
    pub(crate) data: Vec<u8>,
    pub(crate) result: u32,
    /// The status without the phase, as in bits 31:17.
    pub(crate) status: u16,
    /// The command to complete instead of the one that was sent.
    pub(crate) cid: Option<u16>,
}

type Answering = Box<dyn FnMut(u16, &Command) -> Answer + Send>;

#[derive(Default)]
pub(crate) struct Queue {
    submission: u64,
    completion: u64,
    entries: u32,
    head: u32,
    doorbell: u32,
    tail: u32,
    phase: bool,
}

pub(crate) struct Inner {
    memory: Vec<(u64, DmaMemory)>,
    queues: Vec<Queue>,
    asq: u64,
    acq: u64,
    cc: u32,
    answering: Answering,
}

pub(crate) struct Script {
    pub(crate) bar_bytes: u64,
    pub(crate) cap: u64,
    pub(crate) class: u32,
    /// The value of CSTS while the controller is disabled, and while it is enabled.
    pub(crate) csts: [u32; 2],
    pub(crate) inner: Mutex<Inner>,
}

impl Script {
    pub(crate) fn new(answering: impl FnMut(u16, &Command) -> Answer + Send + 'static) -> Self {
        let inner = Inner {
            memory: Vec::new(),
            queues: Vec::new(),
            asq: 0,
            acq: 0,
            cc: 0,
            answering: Box::new(answering),
        };
        Self {
            bar_bytes: 0x4000,
            cap: Capabilities::of(256, 500).0,
            class: 0x01_08_02,
            csts: [0, 1],
            inner: Mutex::new(inner),
        }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Returns the answer of a sound controller with one namespace of 512-byte blocks.
pub(crate) fn sound(queue: u16, command: &Command) -> Answer {
    let data = match (command.opcode(), command.cdw(10) as u8) {
        (admin::IDENTIFY, cns::CONTROLLER) => {
            let it = IdentifyController { mdts: 5, namespaces: 1, ..Default::default() };
            it.encode().to_vec()
        }
        (admin::IDENTIFY, cns::ACTIVE_NAMESPACES) if command.nsid() == 0 => vec![1, 0, 0, 0],
        (admin::IDENTIFY, cns::NAMESPACE) => sound_namespace().encode().to_vec(),
        (admin::IDENTIFY, _) => vec![0; 4096],
        _ => Vec::new(),
    };
    let is_event = command.opcode() == admin::ASYNC_EVENT_REQUEST;
    Answer { data, is_silent: is_event && queue == 0, result: 0x0003_0003, ..Answer::default() }
}

pub(crate) fn sound_namespace() -> IdentifyNamespace {
    IdentifyNamespace {
        size_blocks: 4096,
        capacity_blocks: 4096,
        formats: vec![LbaFormat { metadata_bytes: 0, data_shift: 9 }],
        ..IdentifyNamespace::default()
    }
}

impl Inner {
    fn find(&self, iova: u64) -> Option<(DmaMemory, usize)> {
        let (start, memory) = self.memory.iter().find(|(start, memory)| {
            iova.checked_sub(*start).is_some_and(|at| at < memory.bytes().len() as u64)
        })?;
        Some((memory.clone(), (iova - start) as usize))
    }

    fn run(&mut self, number: u16) -> Option<bool> {
        let queue = self.queues.get_mut(usize::from(number))?;
        if queue.entries == 0 || queue.head == queue.doorbell % queue.entries {
            return Some(false);
        }
        let at = queue.submission + u64::from(queue.head) * SUBMISSION_BYTES as u64;
        queue.head = (queue.head + 1) % queue.entries;
        let (memory, offset) = self.find(at)?;
        let mut bytes = [0; SUBMISSION_BYTES];
        memory.bytes().copy_to(offset, &mut bytes);
        let command = Command::decode(&bytes);
        let mut answer = (self.answering)(number, &command);
        if number == 0 {
            self.make_queue(&command);
        }
        // A correct transport confines the controller to open memory. Inside that memory, it may
        // write to any place that a command names.
        answer.data.truncate(4096);
        if let Some((memory, offset)) = self.find(command.prp1()) {
            memory.bytes().copy_from(offset, &answer.data);
        }
        let queue = self.queues.get_mut(usize::from(number))?;
        if answer.is_silent {
            return Some(true);
        }
        let at = queue.completion + u64::from(queue.tail) * 16;
        let phase = queue.phase;
        queue.tail = (queue.tail + 1) % queue.entries;
        queue.phase ^= queue.tail == 0;
        let (memory, offset) = self.find(at)?;
        let cid = answer.cid.unwrap_or(command.cid());
        let last = u32::from(cid) | u32::from(phase) << 16 | u32::from(answer.status) << 17;
        memory.bytes().store_u32(offset, answer.result);
        memory.bytes().store_u32_release(offset + 12, last);
        Some(true)
    }

    fn make_queue(&mut self, command: &Command) {
        let number = usize::from(command.cdw(10) as u16).min(64);
        if self.queues.len() <= number {
            self.queues.resize_with(number + 1, Queue::default);
        }
        let entries = (command.cdw(10) >> 16) + 1;
        let queue = &mut self.queues[number];
        match command.opcode() {
            admin::CREATE_CQ => {
                let phase = true;
                *queue = Queue { completion: command.prp1(), entries, phase, ..Queue::default() };
            }
            admin::CREATE_SQ => (queue.submission, queue.head) = (command.prp1(), 0),
            _ => {}
        }
    }
}

impl PciDevice for Script {
    fn kind(&self) -> &'static str {
        "nvme"
    }

    fn config_bytes(&self) -> u32 {
        256
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        let value = if offset == 8 { self.class << 8 } else { 0 };
        into.copy_from_slice(&value.to_le_bytes()[..into.len().min(4)]);
        true
    }

    fn write_config(&self, _offset: u32, _bytes: &[u8]) -> bool {
        true
    }

    fn bar_bytes(&self, _bar: u8) -> u64 {
        self.bar_bytes
    }

    fn read_bar(&self, _bar: u8, offset: u64, into: &mut [u8]) -> bool {
        let cc = self.inner().cc;
        let value = match offset {
            CAP => self.cap,
            CC => cc.into(),
            CSTS => self.csts[(cc & 1) as usize].into(),
            _ => 0,
        };
        into.copy_from_slice(&value.to_le_bytes()[..into.len().min(8)]);
        true
    }

    fn write_bar(&self, _bar: u8, offset: u64, bytes: &[u8]) -> bool {
        let mut word = [0; 8];
        word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        let value = u64::from_le_bytes(word);
        let mut inner = self.inner();
        match offset {
            ASQ => inner.asq = value,
            ACQ => inner.acq = value,
            CC => {
                inner.cc = value as u32;
                if value & 1 != 0 {
                    let (submission, completion) = (inner.asq, inner.acq);
                    let (entries, phase) = (64, true);
                    inner.queues =
                        vec![Queue { submission, completion, entries, phase, ..Queue::default() }];
                } else {
                    inner.queues.clear();
                }
            }
            DOORBELLS.. => {
                let stride = u64::from(Capabilities(self.cap).doorbell_stride_bytes());
                let number = (offset - DOORBELLS) / stride;
                if let (0, Some(queue)) = (number % 2, inner.queues.get_mut((number / 2) as usize))
                {
                    queue.doorbell = value as u32;
                }
            }
            _ => {}
        }
        true
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        self.inner().memory.push((iova, memory));
        Ok(())
    }

    fn unmap_dma(&self, iova: u64, _len: u64) -> Result<()> {
        self.inner().memory.retain(|(start, _)| *start != iova);
        Ok(())
    }

    fn unmap_all(&self) {
        self.inner().memory.clear();
    }

    fn reset(&self) {
        let mut inner = self.inner();
        (inner.cc, inner.queues) = (0, Vec::new());
    }

    fn step(&self, queue: u16) -> Stepped {
        let progress = self.inner().run(queue).unwrap_or(false);
        Stepped { progress, due: None }
    }

    fn step_all(&self) -> Stepped {
        self.step(0)
    }
}

pub(crate) fn function(script: Script) -> Arc<qpair_pci::InProcess<Script>> {
    Arc::new(qpair_pci::InProcess::new("scripted", Arc::new(script)))
}
