//! A minimal driver for tests of a controller: memory at its own address, queues in that memory,
//! and commands one at a time or many at once. It checks the phases and heads that it receives.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::sync::Arc;

use qpair_memory::{DmaMemory, Mapping, SharedBytes};
use qpair_nvme_wire::command::admin;
use qpair_nvme_wire::registers::{ACQ, AQA, ASQ, CC, CC_RUN, CSTS, CSTS_READY, doorbell};
use qpair_nvme_wire::{Command, Completion, Status};
use qpair_pci::PciDevice;

/// The device's address of the driver's memory.
pub(crate) const IOVA: u64 = 0x7F00_0000_0000;
/// The bytes of the driver's memory: the first MiB for queues and lists, the rest for data.
pub(crate) const MEMORY_BYTES: usize = 8 << 20;
/// The device's address of the driver's data.
pub(crate) const DATA: u64 = IOVA + (1 << 20);

pub(crate) struct Queue {
    pub(crate) number: u16,
    pub(crate) entries: u32,
    pub(crate) sq: u64,
    pub(crate) cq: u64,
    pub(crate) tail: u32,
    pub(crate) head: u32,
    pub(crate) phase: bool,
}

pub(crate) struct Host<D> {
    pub(crate) device: Arc<D>,
    pub(crate) memory: Arc<Mapping>,
    pub(crate) admin: Queue,
    next_page: u64,
}

impl<D: PciDevice> Host<D> {
    /// Returns a driver of a controller that was made ready, with its admin queues.
    pub(crate) fn of(device: Arc<D>) -> Self {
        let mut host = Self::unready(device);
        host.enable();
        host
    }

    /// Opens memory to a controller, and does nothing more.
    pub(crate) fn unready(device: Arc<D>) -> Self {
        let (memory, _file) = Mapping::new_file(MEMORY_BYTES).unwrap();
        device.map_dma(IOVA, DmaMemory::of_mapping(memory.clone())).unwrap();
        let admin = queue(0, 32, IOVA);
        Self { device, memory, admin, next_page: IOVA + 0x4000 }
    }

    pub(crate) fn enable(&mut self) {
        self.bytes().zero(0, 0x4000);
        self.admin = queue(0, 32, IOVA);
        let entries = self.admin.entries - 1;
        self.write32(AQA, entries | entries << 16);
        self.write64(ASQ, self.admin.sq);
        self.write64(ACQ, self.admin.cq);
        self.write32(CC, CC_RUN);
        assert_eq!(self.read32(CSTS), CSTS_READY);
    }

    pub(crate) fn disable(&mut self) {
        self.write32(CC, 0);
        assert_eq!(self.read32(CSTS), 0);
        self.next_page = IOVA + 0x4000;
    }

    pub(crate) fn bytes(&self) -> SharedBytes<'_> {
        self.memory.bytes()
    }

    pub(crate) fn read32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        assert!(self.device.read_bar(0, offset, &mut bytes));
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn read64(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        assert!(self.device.read_bar(0, offset, &mut bytes));
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn write32(&self, offset: u64, value: u32) {
        assert!(self.device.write_bar(0, offset, &value.to_le_bytes()));
    }

    pub(crate) fn write64(&self, offset: u64, value: u64) {
        assert!(self.device.write_bar(0, offset, &value.to_le_bytes()));
    }

    /// Allocates zeroed pages for a queue or a list.
    pub(crate) fn page(&mut self, pages: u64) -> u64 {
        let page = self.next_page;
        self.next_page += 4096 * pages;
        assert!(self.next_page <= DATA);
        self.bytes().zero((page - IOVA) as usize, 4096 * pages as usize);
        page
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        self.bytes().copy_from((at - IOVA) as usize, bytes);
    }

    pub(crate) fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.bytes().copy_to((at - IOVA) as usize, &mut bytes);
        bytes
    }

    /// Appends a command to a queue. The controller does not see it until [`Self::ring`].
    pub(crate) fn push(&self, queue: &mut Queue, command: &Command) {
        let at = (queue.sq - IOVA) as usize + queue.tail as usize * 64;
        for (number, word) in command.words().into_iter().enumerate() {
            self.bytes().store_u64(at + 8 * number, word);
        }
        queue.tail = (queue.tail + 1) % queue.entries;
    }

    pub(crate) fn ring(&self, queue: &Queue) {
        self.write32(doorbell(queue.number, false, 4), queue.tail);
    }

    /// Takes a completion, if there is one, and acknowledges it.
    pub(crate) fn pop(&self, queue: &mut Queue) -> Option<Completion> {
        let entry = self.peek(queue)?;
        queue.head = (queue.head + 1) % queue.entries;
        queue.phase ^= queue.head == 0;
        self.write32(doorbell(queue.number, true, 4), queue.head);
        Some(entry)
    }

    pub(crate) fn peek(&self, queue: &Queue) -> Option<Completion> {
        let at = (queue.cq - IOVA) as usize + queue.head as usize * 16;
        let last = self.bytes().load_u32_acquire(at + 12);
        if Completion::phase_of(last) != queue.phase {
            return None;
        }
        let first = self.bytes().load_u32(at);
        let entry = Completion::from_dwords(first, self.bytes().load_u32(at + 8), last);
        assert_eq!(entry.sq_id, queue.number);
        assert!(u32::from(entry.sq_head) < queue.entries);
        Some(entry)
    }

    /// Submits a command and steps until it is complete.
    pub(crate) fn run(&self, queue: &mut Queue, mut command: Command) -> Completion {
        command.set_cid(0x4321);
        self.push(queue, &command);
        self.ring(queue);
        for _ in 0..1_000_000 {
            self.device.step(queue.number);
            if let Some(entry) = self.pop(queue) {
                assert_eq!(entry.cid, 0x4321);
                return entry;
            }
            std::thread::yield_now();
        }
        panic!("no completion of {command:?}");
    }

    pub(crate) fn status(&self, queue: &mut Queue, command: Command) -> Status {
        self.run(queue, command).status
    }

    pub(crate) fn admin(&mut self, command: Command) -> Completion {
        let mut queue = std::mem::replace(&mut self.admin, queue(0, 2, 0));
        let entry = self.run(&mut queue, command);
        self.admin = queue;
        entry
    }

    pub(crate) fn admin_status(&mut self, command: Command) -> Status {
        self.admin(command).status
    }

    pub(crate) fn queue(&mut self, number: u16, entries: u32, vector: Option<u16>) -> Queue {
        let sq = self.page(u64::from(entries * 64).div_ceil(4096));
        let cq = self.page(u64::from(entries * 16).div_ceil(4096));
        let created = self.admin_status(Command::create_cq(number, entries, cq, vector));
        assert_eq!(created, Status::SUCCESS);
        let created = self.admin_status(Command::create_sq(number, entries, sq));
        assert_eq!(created, Status::SUCCESS);
        Queue { number, entries, sq, cq, tail: 0, head: 0, phase: true }
    }

    pub(crate) fn delete(&mut self, queue: Queue) {
        let delete = |opcode| Command::delete_queue(opcode, queue.number);
        assert_eq!(self.admin_status(delete(admin::DELETE_SQ)), Status::SUCCESS);
        assert_eq!(self.admin_status(delete(admin::DELETE_CQ)), Status::SUCCESS);
    }
}

fn queue(number: u16, entries: u32, at: u64) -> Queue {
    Queue { number, entries, sq: at, cq: at + 0x2000, tail: 0, head: 0, phase: true }
}

/// Returns a read, write or compare of `blocks` blocks whose memory is contiguous from `address`
/// on, over at most two pages.
pub(crate) fn transfer(opcode: u8, first: u64, blocks: u32, address: u64) -> Command {
    let mut command = Command::blocks_of(opcode, 1, first, blocks);
    command.set_prps(address, address / 4096 * 4096 + 4096);
    command
}
