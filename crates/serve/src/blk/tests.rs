//! Tests a disk's queue with a hand-written driver.

use std::ops::Deref;
use std::sync::Arc;

use qpair_block::time::SimClock;
use qpair_block::{
    BlockDevice, DeviceInfo, FaultDevice, FaultOptions, IoError, Mapping, NullDevice, NullOptions,
};
use qpair_nvme::{Controller, ControllerOptions};
use qpair_pci::InProcess;
use qpair_sim_block::{SimDevice, SimOptions};
use qpair_softdev::{NamespaceOptions, SoftNvme, SoftNvmeOptions};
use qpair_virtio::ring::{INDIRECT, NEXT, WRITE};

use super::Blk;
use crate::disk::Disk;
use crate::queue::rig::{GUEST, MEMORY_BYTES, Memory, Narrow, Ring, SIZE, ram};
use crate::queue::{Inflight, RingOptions, inflight_bytes};
use crate::unit::Unit;

/// The places of headers, statuses, tables and data in memory, by head.
const HEADERS_AT: u64 = 0x8000;
const STATUSES_AT: u64 = 0x9000;
const TABLES_AT: u64 = 0xA000;
const DATA_AT: u64 = 0x1_0000;

struct Guest {
    memory: Memory,
    ring: Ring,
    blk: Arc<Blk>,
}

impl Deref for Guest {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl Guest {
    fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self::with(device, false)
    }

    fn with(device: Arc<dyn BlockDevice>, read_only: bool) -> Self {
        let memory = Memory::new();
        let blk = Arc::new(Blk::new(&Disk::new("unit-7", device), 1, read_only));
        Self { ring: memory.ring(0), memory, blk }
    }

    fn start(&self) -> Box<dyn Unit> {
        self.ring.open(&self.blk)
    }

    fn start_with(&self, inflight: Option<Inflight>) -> Box<dyn Unit> {
        self.ring.open_with(&self.blk, RingOptions { inflight, ..self.ring.options() })
    }

    fn header(&self, head: u16, verb: u32, sector: u64) {
        let at = (HEADERS_AT + 16 * u64::from(head)) as usize;
        self.bytes().store_u32(at, verb);
        self.bytes().store_u64(at + 8, sector);
        self.bytes().store_u8((STATUSES_AT + u64::from(head)) as usize, 0xFF);
    }

    /// Adds a chain of three descriptors from `head` on: header, data, status.
    fn request(&mut self, head: u16, verb: u32, sector: u64, data: (u64, u32), is_in: bool) {
        self.header(head, verb, sector);
        let flags = if is_in { WRITE } else { 0 };
        self.describe(head, HEADERS_AT + 16 * u64::from(head), 16, NEXT, head + 1);
        self.describe(head + 1, data.0, data.1, NEXT | flags, head + 2);
        self.describe(head + 2, STATUSES_AT + u64::from(head), 1, WRITE, 0);
        self.offer(head);
    }

    /// Adds a chain of a header and a status.
    fn bare(&mut self, head: u16, verb: u32) {
        self.header(head, verb, 0);
        self.describe(head, HEADERS_AT + 16 * u64::from(head), 16, NEXT, head + 1);
        self.describe(head + 1, STATUSES_AT + u64::from(head), 1, WRITE, 0);
        self.offer(head);
    }

    fn offer(&mut self, head: u16) {
        self.ring.offer(head);
    }

    fn describe(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        self.ring.describe(index, address, len, flags, next);
    }

    /// Turns the queue until `count` heads have come back. Returns their statuses and lengths.
    fn finish(&mut self, queue: &mut Box<dyn Unit>, count: usize) -> Vec<(u16, u8, u32)> {
        let mut found = Vec::new();
        for _ in 0..100_000 {
            queue.turn();
            while let Some(used) = self.ring.take() {
                let status = self.bytes().load_u8((STATUSES_AT + u64::from(used.id)) as usize);
                found.push((used.id as u16, status, used.len));
            }
            if found.len() >= count {
                break;
            }
        }
        assert_eq!(found.len(), count);
        found
    }
}

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

#[test]
fn every_verb() {
    let mut guest = Guest::new(ram());
    let mut queue = guest.start();
    let data: Vec<u8> = (0..8192u32).map(|at| (at % 251) as u8).collect();
    guest.put(DATA_AT, &data);
    guest.request(0, OUT, 8, (DATA_AT, 8192), false);
    assert_eq!(guest.finish(&mut queue, 1), [(0, 0, 1)]);
    // Data that crosses the end of a region, without any alignment.
    let across = MEMORY_BYTES / 2 - 1001;
    guest.request(3, IN, 9, (across, 4096), true);
    assert_eq!(guest.finish(&mut queue, 1), [(3, 0, 4097)]);
    assert_eq!(guest.get(across, 4096), data[512..512 + 4096]);
    guest.bare(0, FLUSH);
    assert_eq!(guest.finish(&mut queue, 1), [(0, 0, 1)]);
    guest.request(0, GET_ID, 0, (DATA_AT, 20), true);
    assert_eq!(guest.finish(&mut queue, 1), [(0, 0, 21)]);
    assert_eq!(guest.get(DATA_AT, 20), b"unit-7\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    for verb in [WRITE_ZEROES, DISCARD] {
        let mut range = [0; 16];
        range[..8].copy_from_slice(&9u64.to_le_bytes());
        range[8..12].copy_from_slice(&2u32.to_le_bytes());
        guest.put(DATA_AT, &range);
        guest.request(0, verb, 0, (DATA_AT, 16), false);
        assert_eq!(guest.finish(&mut queue, 1), [(0, 0, 1)]);
    }
    guest.request(0, IN, 8, (DATA_AT, 2048), true);
    assert_eq!(guest.finish(&mut queue, 1), [(0, 0, 2049)]);
    let found = guest.get(DATA_AT, 2048);
    assert_eq!(found[..512], data[..512]);
    assert!(found[512..1536].iter().all(|byte| *byte == 0));
    assert_eq!(found[1536..], data[1536..2048]);
    assert_eq!(queue.stop().taken, 7);
    let counters = guest.blk.disk.counters();
    assert_eq!((counters.requests, counters.reads, counters.flushes), (7, 2, 1));
}

#[test]
fn what_is_wrong_with_a_request_is_its_answer() {
    let mut guest = Guest::new(ram());
    let mut queue = guest.start();
    let far = GUEST.wrapping_neg();
    for (verb, sector, data, is_in, status) in [
        (OUT, 0, (DATA_AT, 100), false, 1),
        (OUT, 2047, (DATA_AT, 1024), false, 1),
        (OUT, u64::MAX, (DATA_AT, 512), false, 1),
        (IN, u64::MAX / 512, (DATA_AT, 512), true, 1),
        (OUT, 0, (far, 512), false, 1),
        (OUT, 0, (MEMORY_BYTES - 511, 512), false, 1),
        (IN, 0, (DATA_AT, 512), false, 1),
        (OUT, 0, (DATA_AT, 512), true, 1),
        (DISCARD, 0, (DATA_AT, 15), false, 1),
        (99, 0, (DATA_AT, 512), false, 2),
        // After all of these, the queue still works.
        (IN, 0, (DATA_AT, 512), true, 0),
    ] {
        guest.request(4, verb, sector, data, is_in);
        let [(4, found, _)] = guest.finish(&mut queue, 1)[..] else { panic!("not given back") };
        assert_eq!(found, status, "{verb} {sector} {data:?} {is_in}");
    }
    // A discard with a flag that only write-zeroes has.
    let mut range = [0; 16];
    (range[8], range[12]) = (1, 1);
    guest.put(DATA_AT, &range);
    guest.request(0, DISCARD, 0, (DATA_AT, 16), false);
    assert_eq!(guest.finish(&mut queue, 1), [(0, 2, 1)]);
}

#[test]
fn a_disk_that_is_not_to_be_written() {
    let mut guest = Guest::with(ram(), true);
    let mut queue = guest.start();
    guest.request(0, OUT, 0, (DATA_AT, 512), false);
    guest.request(3, IN, 0, (DATA_AT, 512), true);
    let mut found = guest.finish(&mut queue, 2);
    found.sort_unstable();
    assert_eq!(found, [(0, 1, 1), (3, 0, 513)]);
}

#[test]
fn indirect_tables() {
    let mut guest = Guest::new(ram());
    let mut queue = guest.start();
    let table = |guest: &Guest, index: u64, address: u64, len: u32, flags: u16, next: u16| {
        let at = (TABLES_AT + 16 * index) as usize;
        let high = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
        guest.bytes().store_u64(at, GUEST + address);
        guest.bytes().store_u64(at + 8, high);
    };
    guest.put(DATA_AT, &[7; 1024]);
    guest.header(0, OUT, 0);
    // The header is in two parts, and the table's entries are not in order.
    table(&guest, 0, HEADERS_AT, 5, NEXT, 4);
    table(&guest, 4, HEADERS_AT + 5, 11, NEXT, 2);
    table(&guest, 2, DATA_AT, 700, NEXT, 3);
    table(&guest, 3, DATA_AT + 700, 324, NEXT, 1);
    table(&guest, 1, STATUSES_AT, 1, WRITE, 0);
    guest.describe(0, TABLES_AT, 5 * 16, INDIRECT, 0);
    guest.offer(0);
    assert_eq!(guest.finish(&mut queue, 1), [(0, 0, 1)]);
    guest.request(3, IN, 1, (DATA_AT + 8192, 512), true);
    guest.finish(&mut queue, 1);
    assert_eq!(guest.get(DATA_AT + 8192, 512), [7; 512]);
    // A table with a loop: the queue gives the ring up, and no head comes back.
    table(&guest, 4, HEADERS_AT + 5, 11, NEXT, 0);
    guest.offer(0);
    queue.turn();
    assert!(queue.stop().is_broken);
}

/// Heads that are offered twice, indexes too far ahead, and chains without a status: the queue
/// gives the ring up, and answers the requests that were already under way.
#[test]
fn a_ring_that_makes_no_sense_is_given_up() {
    type Damage = fn(&mut Guest);
    let damages: [Damage; 5] = [
        |guest| {
            let at = guest.ring.areas().available.at + 2;
            guest.bytes().store_u16(at, 100);
        },
        |guest| guest.offer(SIZE),
        |guest| {
            guest.describe(6, HEADERS_AT, 16, NEXT, 6);
            guest.offer(6);
        },
        |guest| {
            guest.describe(6, HEADERS_AT, 16, 0, 0);
            guest.offer(6);
        },
        |guest| {
            guest.describe(6, HEADERS_AT, 16, NEXT, 7);
            guest.describe(7, MEMORY_BYTES, 1, WRITE, 0);
            guest.offer(6);
        },
    ];
    for damage in damages {
        let mut guest = Guest::new(ram());
        let mut queue = guest.start();
        guest.request(0, IN, 0, (DATA_AT, 512), true);
        assert_eq!(guest.finish(&mut queue, 1), [(0, 0, 513)]);
        damage(&mut guest);
        queue.turn();
        guest.request(9, IN, 0, (DATA_AT, 512), true);
        assert!(!queue.turn());
        assert!(queue.stop().is_broken);
    }
}

/// Requests that were under way when a target ended are executed by the next target, once and in
/// order. Requests whose heads the first target had published are not repeated.
#[test]
fn requests_survive_the_target() {
    let mut guest = Guest::new(ram());
    let region = Mapping::new_file(inflight_bytes(SIZE)).unwrap().0;
    let part = || Inflight::new(region.clone(), 0, SIZE);
    for head in [0u8, 3] {
        guest.put(DATA_AT + 4096 * u64::from(head), &[head + 1; 512]);
    }
    let mut queue = guest.start_with(part());
    guest.bare(12, FLUSH);
    assert_eq!(guest.finish(&mut queue, 1), [(12, 0, 1)]);
    drop(queue);
    // The target ends between taking and answering, so that only the marks are left.
    guest.request(3, OUT, 1, (DATA_AT + 4096 * 3, 512), false);
    guest.request(0, OUT, 0, (DATA_AT, 512), false);
    let mut its = part().unwrap();
    assert!(its.recover(1).is_empty());
    its.take(3);
    its.take(0);
    // The index that the front end reports has no effect.
    let options = RingOptions { inflight: part(), taken: 1, ..guest.ring.options() };
    let mut queue = guest.ring.open_with(&guest.blk, options);
    assert_eq!(guest.finish(&mut queue, 2), [(3, 0, 1), (0, 0, 1)]);
    assert_eq!(queue.stop().taken, 3);
    let mut queue = guest.start_with(part());
    guest.request(6, IN, 0, (DATA_AT + 8192, 1024), true);
    assert_eq!(guest.finish(&mut queue, 1), [(6, 0, 1025)]);
    assert_eq!(guest.get(DATA_AT + 8192, 1024), [[1; 512], [4; 512]].concat());
}

/// Requests are split, exceed the channel's depth, and have lists that do not meet the device's
/// alignment.
#[test]
fn a_device_that_is_narrow() {
    let inner = ram();
    let info = DeviceInfo {
        memory_alignment_bytes: 512,
        transfer_bytes_max: 2048,
        depth_max: 2,
        ..inner.info().clone()
    };
    let mut guest = Guest::new(Arc::new(Narrow { info, inner }));
    let mut queue = guest.start();
    for (head, at) in
        [(0, DATA_AT), (3, DATA_AT + 0x4000 + 8), (6, DATA_AT + 0x8000), (9, DATA_AT + 0xC001)]
    {
        guest.put(at, &vec![head as u8 + 1; 0x2000]);
        guest.request(head, OUT, u64::from(head) * 16, (at, 0x2000), false);
    }
    let mut found = guest.finish(&mut queue, 4);
    found.sort_unstable();
    assert_eq!(found, [(0, 0, 1), (3, 0, 1), (6, 0, 1), (9, 0, 1)]);
    assert_eq!(guest.blk.disk.counters().bounced, 2);
    for (head, at) in
        [(0, DATA_AT + 3), (3, DATA_AT + 0x4000), (6, DATA_AT + 0x8001), (9, DATA_AT + 0xC000)]
    {
        guest.request(head, IN, u64::from(head) * 16, (at, 0x2000), true);
    }
    guest.finish(&mut queue, 4);
    for (head, at) in
        [(0u8, DATA_AT + 3), (3, DATA_AT + 0x4000), (6, DATA_AT + 0x8001), (9, DATA_AT + 0xC000)]
    {
        assert!(guest.get(at, 0x2000).iter().all(|byte| *byte == head + 1), "{head}");
    }
    assert_eq!(guest.blk.disk.counters().bounced, 4);
}

/// A regression: a list whose segments all began on the alignment and held whole blocks was
/// submitted unchanged. The cut at the longest transfer made its second part begin inside a
/// segment, off the alignment, and the device refused it.
#[test]
fn a_list_that_is_cut_off_the_alignment() {
    let aligned = SimOptions {
        memory_alignment_bytes: 4096,
        free_running: true,
        ..SimOptions::new(1, &SimClock::new())
    };
    let inner: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(aligned).unwrap());
    let info = DeviceInfo { transfer_bytes_max: 4096, ..inner.info().clone() };
    let mut guest = Guest::new(Arc::new(Narrow { info, inner }));
    let mut queue = guest.start();
    let parts = [(DATA_AT, 0x200), (DATA_AT + 0x1000, 0x1E00)];
    for (number, (at, len)) in parts.into_iter().enumerate() {
        guest.put(at, &vec![number as u8 + 1; len as usize]);
    }
    guest.request(0, OUT, 0, parts[0], false);
    guest.describe(1, parts[0].0, parts[0].1, NEXT, 3);
    guest.describe(3, parts[1].0, parts[1].1, NEXT, 2);
    assert_eq!(guest.finish(&mut queue, 1), [(0, 0, 1)]);
    guest.request(6, IN, 0, (DATA_AT + 0x4000, 0x2000), true);
    assert_eq!(guest.finish(&mut queue, 1), [(6, 0, 0x2001)]);
    let found = guest.get(DATA_AT + 0x4000, 0x2000);
    assert!(found[..0x200].iter().all(|byte| *byte == 1));
    assert!(found[0x200..].iter().all(|byte| *byte == 2));
}

/// Requests that the driver below copies are counted together with those copied here.
#[test]
fn copies_of_the_driver_are_counted() {
    let namespace = NamespaceOptions { size_bytes: 1 << 20, ..NamespaceOptions::default() };
    let soft = SoftNvmeOptions { namespaces: vec![namespace], ..SoftNvmeOptions::default() };
    let function = InProcess::new("soft", SoftNvme::new(soft).unwrap());
    let controller = Controller::open(Arc::new(function), ControllerOptions::default()).unwrap();
    let mut guest = Guest::new(Arc::new(controller.open_default_namespace(None).unwrap()));
    let mut queue = guest.start();
    let bounced = |guest: &Guest| guest.blk.disk.counters().bounced;
    for (head, parts, copied) in [
        // Data on page boundaries, and off them.
        (0, [(DATA_AT + 0xE00, 0x200), (DATA_AT + 0x3000, 0x200)], 0),
        (6, [(DATA_AT + 0x5000, 0x200), (DATA_AT + 0x7200, 0x200)], 1),
    ] {
        for (at, len) in parts {
            guest.put(at, &vec![head as u8 + 1; len as usize]);
        }
        // The worker has not looked at the ring yet.
        guest.request(head, OUT, u64::from(head), parts[0], false);
        guest.describe(head + 1, parts[0].0, parts[0].1, NEXT, head + 3);
        guest.describe(head + 3, parts[1].0, parts[1].1, NEXT, head + 2);
        assert_eq!(guest.finish(&mut queue, 1), [(head, 0, 1)]);
        // The channel is asked in a turn in which nothing ends.
        queue.turn();
        assert_eq!(bounced(&guest), copied);
        guest.request(head, IN, u64::from(head), (DATA_AT, 0x400), true);
        assert_eq!(guest.finish(&mut queue, 1), [(head, 0, 0x401)]);
        assert_eq!(guest.get(DATA_AT, 0x400), [head as u8 + 1; 0x400]);
    }
}

#[test]
fn a_device_that_fails() {
    let faulty = Arc::new(FaultDevice::new(ram(), FaultOptions::default()).unwrap());
    let mut guest = Guest::new(faulty.clone());
    let mut queue = guest.start();
    faulty.control().fail_writes(true);
    guest.request(0, OUT, 0, (DATA_AT, 512), false);
    assert_eq!(guest.finish(&mut queue, 1), [(0, 1, 1)]);
    faulty.control().set_error(IoError::UNSUPPORTED);
    let mut range = [0; 16];
    range[8] = 1;
    guest.put(DATA_AT, &range);
    guest.request(0, WRITE_ZEROES, 0, (DATA_AT, 16), false);
    assert_eq!(guest.finish(&mut queue, 1), [(0, 2, 1)]);
    assert_eq!(guest.blk.disk.counters().errors, 2);
}

/// With random descriptors and headers, the queue neither panics nor touches memory outside the
/// guest's, and a queue after it works.
#[test]
fn rings_of_random_bytes() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut guest = Guest::new(ram());
        let region = Mapping::new_file(inflight_bytes(SIZE)).unwrap().0;
        for at in (0..inflight_bytes(SIZE)).step_by(8).filter(|_| seed % 2 == 0) {
            region.bytes().store_u64(at, random.u64(..));
        }
        let inflight = Inflight::new(region, 0, SIZE);
        let mut queue = guest.start_with(inflight);
        for _ in 0..50 {
            for index in 0..SIZE {
                let address = random.u64(0..MEMORY_BYTES + 4096);
                let len = random.u32(0..0x3000) >> random.u32(0..14);
                let flags = random.u16(0..8) & if random.bool() { 3 } else { 7 };
                guest.describe(index, address, len, flags, random.u16(0..SIZE + 1));
            }
            for at in (HEADERS_AT..DATA_AT).step_by(8) {
                let word = if random.bool() { random.u64(..) } else { random.u64(0..16) };
                guest.bytes().store_u64(at as usize, word);
            }
            for _ in 0..random.usize(0..4) {
                guest.offer(random.u16(0..SIZE));
            }
            queue.turn();
        }
        queue.stop();
    }
}

/// A fixed run of reads, four at a time, for callgrind to count: `cargo xtask instructions` calls
/// it, with the number of turns in the environment.
#[test]
#[ignore = "it is counted, not checked"]
fn counted_reads() {
    const HEADS: [u16; 4] = [0, 3, 6, 9];
    let turns: u32 = std::env::var("QPAIR_TURNS").map_or(10, |turns| turns.parse().unwrap());
    let null = NullDevice::new(NullOptions::default()).unwrap();
    let mut guest = Guest::new(Arc::new(null));
    let mut queue = guest.start();
    for head in HEADS {
        guest.request(head, IN, 8, (DATA_AT + 4096 * u64::from(head), 4096), true);
    }
    for turn in 0..turns {
        if turn > 0 {
            HEADS.into_iter().for_each(|head| guest.offer(head));
        }
        queue.turn();
        let taken = std::iter::from_fn(|| guest.ring.take()).count();
        assert_eq!(taken, HEADS.len());
    }
    queue.stop();
}
