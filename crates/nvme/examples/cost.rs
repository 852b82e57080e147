//! The cost of the driver by itself: reads of 4 KiB at depth 32 on a controller that completes them
//! at once and moves no data.
//!
//! ```text
//! cargo run --release -p qpair-nvme --example cost                 ns an I/O, the stub's share in it
//! cargo run --release -p qpair-nvme --example cost 200000 lists    the same into lists of one page of memory of others; copied: which the
//!                                                                  controller does not reach
//! valgrind --tool=callgrind target/release/examples/cost 1000      instructions: those of Stub::step are not the driver's
//! ```
//!
// A stub serves the I/O queues: it takes entries and posts completions. The soft controller does
// the rest.

#![allow(clippy::unwrap_used, reason = "an example that fails should panic")]
#![allow(clippy::print_stdout, reason = "an example speaks")]

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, Completion, Request, Result, Segment,
};
use qpair_memory::{DmaMemory, Mapping};
use qpair_nvme::{Controller, ControllerOptions};
use qpair_nvme_wire::command::admin;
use qpair_nvme_wire::registers::{ASQ, doorbell};
use qpair_nvme_wire::{Command, SUBMISSION_BYTES};
use qpair_pci::{InProcess, PciDevice, PciWrapper, Stepped};
use qpair_softdev::{SoftNvme, SoftNvmeOptions};

const DEPTH: u32 = 32;
const BLOCKS: u64 = 1 << 20;

struct Pair {
    memory: DmaMemory,
    submission: usize,
    completion: usize,
    entries: u32,
    head: u32,
    tail: u32,
    phase: u32,
}

#[derive(Default)]
struct Known {
    opened: Vec<(u64, DmaMemory)>,
    asq: u64,
    admin_head: u32,
    completion_iova: u64,
    pair: Option<Pair>,
}

struct Stub {
    soft: Arc<SoftNvme>,
    doorbells: Arc<Mapping>,
    known: Mutex<Known>,
    spent_ns: AtomicU64,
}

impl Known {
    fn find(&self, iova: u64) -> Option<(DmaMemory, usize)> {
        let of = |(start, memory): &&(u64, DmaMemory)| {
            (*start..*start + memory.bytes().len() as u64).contains(&iova)
        };
        self.opened.iter().find(of).map(|(start, memory)| (memory.clone(), (iova - start) as usize))
    }

    /// Follows the driver's admin commands to learn the addresses of its queues.
    fn listen(&mut self, tail: u32) {
        while self.admin_head != tail {
            let at = self.asq + u64::from(self.admin_head) * SUBMISSION_BYTES as u64;
            let Some((memory, offset)) = self.find(at) else { return };
            let mut bytes = [0; SUBMISSION_BYTES];
            memory.bytes().copy_to(offset, &mut bytes);
            let command = Command::decode(&bytes);
            match command.opcode() {
                admin::CREATE_CQ => self.completion_iova = command.prp1(),
                admin::CREATE_SQ => {
                    let (memory, submission) = self.find(command.prp1()).unwrap();
                    let (_, completion) = self.find(self.completion_iova).unwrap();
                    let entries = (command.cdw(10) >> 16) + 1;
                    let (head, tail, phase) = (0, 0, 1);
                    self.pair =
                        Some(Pair { memory, submission, completion, entries, head, tail, phase });
                }
                _ => {}
            }
            self.admin_head = (self.admin_head + 1) % 64;
        }
    }
}

impl Pair {
    fn run(&mut self, tail: u32) -> bool {
        let bytes = self.memory.bytes();
        let progress = self.head != tail;
        while self.head != tail {
            let cid = bytes.load_u16(self.submission + self.head as usize * SUBMISSION_BYTES + 2);
            self.head = if self.head + 1 == self.entries { 0 } else { self.head + 1 };
            let at = self.completion + self.tail as usize * 16;
            bytes.store_u32_release(at + 12, u32::from(cid) | self.phase << 16);
            self.tail += 1;
            if self.tail == self.entries {
                (self.tail, self.phase) = (0, self.phase ^ 1);
            }
        }
        progress
    }
}

impl PciWrapper for Stub {
    fn wrapped(&self) -> &impl PciDevice {
        &*self.soft
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        if offset == ASQ {
            let asq = u64::from_le_bytes(bytes.try_into().unwrap());
            let mut known = self.known.lock().unwrap();
            (known.asq, known.admin_head) = (asq, 0);
        }
        self.wrapped().write_bar(bar, offset, bytes)
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        self.known.lock().unwrap().opened.push((iova, memory.clone()));
        self.wrapped().map_dma(iova, memory)
    }

    #[inline(never)]
    fn step(&self, queue: u16) -> Stepped {
        let tail =
            self.doorbells.bytes().load_u32_acquire(doorbell(queue, false, 4) as usize - 0x1000);
        let mut known = self.known.lock().unwrap();
        if queue == 0 {
            known.listen(tail);
            drop(known);
            return self.wrapped().step(0);
        }
        let start = Instant::now();
        let progress = known.pair.as_mut().is_some_and(|pair| pair.run(tail));
        self.spent_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Stepped { progress, due: None }
    }

    fn step_all(&self) -> Stepped {
        PciWrapper::step(self, 0)
    }
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).map_or(200_000, |text| text.parse().unwrap());
    let soft = SoftNvme::new(SoftNvmeOptions::parse("size=512MiB,medium=null").unwrap()).unwrap();
    let doorbells = {
        let area = soft.shared_area(0).unwrap();
        let file = PciDevice::shared_file(&*soft, 0).unwrap();
        Mapping::of_file(file.as_fd(), area.file_offset_bytes, area.len as usize, true).unwrap()
    };
    let stub =
        Arc::new(Stub { soft, doorbells, known: Mutex::default(), spent_ns: AtomicU64::new(0) });
    let function = Arc::new(InProcess::new("stub", stub.clone()));
    let controller = Controller::open(function, ControllerOptions::default()).unwrap();
    let device = controller.open_default_namespace(None).unwrap();
    let what = std::env::args().nth(2);
    let arena = match what {
        None => Arena::new(4096, DEPTH, ArenaOptions::ordinary_pages()).unwrap(),
        Some(_) => Arena::foreign(vec![Mapping::new_anonymous(1 << 20).unwrap()], DEPTH, 1),
    };
    let is_known = what.as_deref() != Some("copied");
    let arenas = if is_known { vec![arena.clone()] } else { Vec::new() };
    let mut channel =
        device.open_channel(&ChannelOptions { depth: DEPTH, arenas, wake: None }).unwrap();
    let mut buffers: Vec<Buffer> = std::iter::from_fn(|| arena.lease()).collect();
    for (page, list) in buffers.iter_mut().enumerate().filter(|(_, buffer)| buffer.is_list()) {
        let offset_bytes = page as u64 * 4096;
        list.fill([Segment { region: 0, offset_bytes, len_bytes: 4096 }]).unwrap();
    }
    let mut completions: Vec<Completion> = Vec::with_capacity(DEPTH as usize);
    let (mut place, mut done) = (0u64, 0u64);
    let start = Instant::now();
    for _ in 0..rounds {
        while let Some(buffer) = buffers.pop() {
            place = place
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let offset = (place >> 33) % (BLOCKS / 8) * 4096;
            channel.submit(Request::read(offset, 4096, buffer, place)).unwrap();
        }
        channel.kick();
        done += channel.poll(&mut completions) as u64;
        for completion in completions.drain(..) {
            completion.result.unwrap();
            buffers.extend(completion.buffer);
        }
    }
    let elapsed = start.elapsed();
    let each = |ns: u64| ns as f64 / done as f64;
    let stub_ns = stub.spent_ns.load(Ordering::Relaxed);
    println!(
        "{done} reads: {:.1} ns each for the driver and this loop, {:.1} ns for the stub",
        each(elapsed.as_nanos() as u64 - stub_ns),
        each(stub_ns)
    );
}
