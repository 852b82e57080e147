//! Tests which writes a simulated device loses when its power is cut, and which it never loses.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::time::SimClock;
use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, IoChannel, IoError, Op, Request, WaitOptions,
};
use qpair_sim_block::{SimDevice, SimFaults, SimOptions, SimPower};

const PAGE: usize = 4096;

struct Rig {
    clock: SimClock,
    power: SimPower,
    device: SimDevice,
    channel: Box<dyn IoChannel>,
    arena: Arc<Arena>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let clock = SimClock::new();
        let options = SimOptions::new(seed, &clock);
        let power = options.power.clone();
        let device = SimDevice::new(options).unwrap();
        let channel = device.open_channel(&ChannelOptions::default()).unwrap();
        let arena = Arena::new(PAGE, 64, ArenaOptions::ordinary_pages()).unwrap();
        Self { clock, power, device, channel, arena }
    }

    fn request(&self, op: Op, page: u64, byte: u8) -> Request {
        if op == Op::Flush {
            return Request::flush(0);
        }
        let mut buffer = self.arena.lease().unwrap();
        buffer.copy_from(0, &[byte; PAGE]);
        let offset = page * PAGE as u64;
        match op {
            Op::Write => Request::write(offset, PAGE as u32, buffer, page),
            _ => Request::read(offset, PAGE as u32, buffer, page),
        }
    }

    fn begin(&mut self, op: Op, page: u64, byte: u8) {
        let request = self.request(op, page, byte);
        self.channel.submit(request).unwrap();
        self.channel.kick();
    }

    /// Waits for all requests in flight. Returns tags and results in the order of completion.
    fn drain(&mut self) -> Vec<(u64, Result<(), IoError>)> {
        let mut completions = Vec::new();
        while self.channel.in_flight() > 0 {
            let all = WaitOptions { want: 128, linger: Duration::MAX, timeout: None };
            self.channel.wait(&mut completions, all);
        }
        completions.into_iter().map(|completion| (completion.tag, completion.result)).collect()
    }

    fn run(&mut self, op: Op, page: u64, byte: u8) -> Result<(), IoError> {
        self.begin(op, page, byte);
        self.drain().pop().unwrap().1
    }

    fn page(&self, page: usize) -> Vec<u8> {
        self.device.content()[page * PAGE..][..PAGE].to_vec()
    }

    /// Returns the different bytes that a page contains now.
    fn bytes_of(&self, page: usize) -> BTreeSet<u8> {
        self.page(page).into_iter().collect()
    }
}

fn only(byte: u8) -> BTreeSet<u8> {
    BTreeSet::from([byte])
}

#[test]
fn what_was_flushed_survives_and_the_rest_may_not() {
    let mut fates = BTreeSet::new();
    for seed in 0..200 {
        let mut rig = Rig::new(seed);
        rig.run(Op::Write, 0, 1).unwrap();
        rig.run(Op::Flush, 0, 0).unwrap();
        rig.run(Op::Write, 0, 2).unwrap();
        rig.run(Op::Write, 1, 3).unwrap();
        rig.begin(Op::Write, 2, 4);
        rig.power.cut();
        let results = rig.drain();
        assert_eq!(results, [(2, Err(IoError::IO))]);
        assert_eq!(rig.run(Op::Read, 0, 0), Err(IoError::IO));
        assert!(rig.bytes_of(0).is_subset(&BTreeSet::from([1, 2])));
        // A write is never torn inside a sector.
        for sector in rig.device.content().chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]));
        }
        fates.insert((rig.bytes_of(0), rig.bytes_of(1), rig.bytes_of(2)));
    }
    for page in [only(1), only(2), BTreeSet::from([1, 2])] {
        assert!(fates.iter().any(|fate| fate.0 == page), "{page:?}");
    }
    // A later write can be kept although an earlier one is lost, and the other way round.
    assert!(fates.iter().any(|fate| (&fate.0, &fate.1) == (&only(1), &only(3))));
    assert!(fates.iter().any(|fate| (&fate.0, &fate.1) == (&only(2), &only(0))));
    assert!(fates.iter().any(|fate| fate.2 == BTreeSet::from([0, 4])), "in flight, torn");
    assert!(fates.len() > 12);
}

#[test]
fn a_flush_covers_what_was_complete_when_it_was_submitted() {
    let mut lost = 0;
    for seed in 0..100 {
        let mut rig = Rig::new(seed);
        rig.run(Op::Write, 0, 1).unwrap();
        rig.begin(Op::Write, 1, 1);
        rig.begin(Op::Flush, 0, 0);
        rig.drain();
        rig.power.cut();
        assert_eq!(rig.bytes_of(0), only(1));
        lost += u32::from(rig.bytes_of(1) != only(1));
    }
    assert!((5..95).contains(&lost), "{lost}");
}

#[test]
fn forced_writes_survive_and_older_ones_do_not_come_back() {
    for seed in 0..100 {
        let mut rig = Rig::new(seed);
        rig.run(Op::Write, 0, 1).unwrap();
        let mut forced = rig.request(Op::Write, 0, 2);
        forced.force_unit_access = true;
        rig.channel.submit(forced).unwrap();
        rig.drain();
        if seed % 2 == 0 {
            rig.run(Op::Flush, 0, 0).unwrap();
        }
        rig.power.cut();
        assert_eq!(rig.bytes_of(0), only(2));
    }
}

#[test]
fn a_second_flush_after_one_that_failed_proves_nothing() {
    let mut lost = 0;
    for seed in 0..100 {
        let mut rig = Rig::new(seed);
        rig.run(Op::Write, 0, 1).unwrap();
        rig.device.set_faults(SimFaults { flush_error: 1.0, ..SimFaults::default() });
        assert_eq!(rig.run(Op::Flush, 0, 0), Err(IoError::IO));
        rig.device.set_faults(SimFaults::default());
        rig.run(Op::Flush, 0, 0).unwrap();
        rig.run(Op::Read, 0, 0).unwrap();
        rig.power.cut();
        lost += u32::from(rig.bytes_of(0) == only(0));
    }
    assert!((10..90).contains(&lost), "{lost}");
}

#[test]
fn faults_strike_and_bad_sectors_heal_when_written() {
    let mut rig = Rig::new(1);
    rig.run(Op::Write, 0, 1).unwrap();
    rig.device.set_faults(SimFaults { bad_sector: 1.0, ..SimFaults::default() });
    assert_eq!(rig.run(Op::Read, 0, 0), Err(IoError::IO));
    rig.device.set_faults(SimFaults::default());
    assert_eq!(rig.run(Op::Read, 0, 0), Err(IoError::IO));
    rig.run(Op::Write, 0, 1).unwrap();
    rig.run(Op::Read, 0, 0).unwrap();
    rig.device.set_faults(SimFaults { bit_flip: 1.0, ..SimFaults::default() });
    rig.run(Op::Read, 0, 0).unwrap();
    assert_eq!(rig.page(0).iter().filter(|byte| **byte != 1).count(), 1);
    rig.device.set_faults(SimFaults { write_error: 1.0, ..SimFaults::default() });
    assert_eq!(rig.run(Op::Write, 1, 9), Err(IoError::IO));
    assert!(rig.bytes_of(1).is_subset(&BTreeSet::from([0, 9])));
    assert_eq!(rig.device.errors(), 3);
}

#[test]
fn the_cut_meets_the_change_that_it_was_set_for() {
    for nth in 1..10 {
        let mut rig = Rig::new(nth);
        rig.power.cut_at_change(nth);
        let mut done = 0;
        while rig.run(Op::Write, done, 1).is_ok() {
            done += 1;
        }
        assert!(rig.power.is_cut() && (done == nth - 1 || done == nth), "{done} of {nth}");
        assert!(rig.device.grow(8 << 20).is_err());
    }
}

#[test]
fn requests_end_out_of_order_and_the_same_for_the_same_seed() {
    let story = |seed| {
        let mut rig = Rig::new(seed);
        (0..32).for_each(|page| rig.begin(Op::Write, page, page as u8));
        let order: Vec<_> = rig.drain().into_iter().map(|(tag, _)| tag).collect();
        rig.power.cut();
        (order, rig.clock.now_ns(), rig.device.content_hash(), rig.device.trace())
    };
    assert!(!story(1).0.is_sorted());
    assert_eq!(story(1), story(1));
    assert_ne!(story(1), story(2));
}

#[test]
fn grows_up_to_its_limit() {
    let clock = SimClock::new();
    let options = SimOptions { size_bytes_max: 2 << 20, ..SimOptions::new(1, &clock) };
    let device = SimDevice::new(options).unwrap();
    device.grow(2 << 20).unwrap();
    assert_eq!(device.size_bytes(), 2 << 20);
    assert!(device.grow((2 << 20) + 1).is_err());
}

#[test]
fn what_shrank_stays_small_and_grows_with_zeroes() {
    let clock = SimClock::new();
    let options = SimOptions { size_bytes_max: 2 << 20, ..SimOptions::new(1, &clock) };
    let (power, content) = (options.power.clone(), vec![7; 1 << 20]);
    let device = SimDevice::over(options, content).unwrap();
    device.shrink(4096).unwrap();
    assert_eq!(device.content(), [7; 4096]);
    device.grow(8192).unwrap();
    assert_eq!(device.content(), [[7; 4096], [0; 4096]].concat());
    device.shrink(4096).unwrap();
    power.cut();
    assert_eq!(device.content(), [7; 4096]);
}
