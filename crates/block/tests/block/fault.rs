//! The fault device does what its control says, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, Completion, ErrorKind, FaultControl,
    FaultCounts, FaultDevice, FaultOptions, IoChannel, IoError, Op, RamDevice, RamOptions, Request,
    WaitOptions,
};

struct Bench {
    ram: Arc<dyn BlockDevice>,
    control: FaultControl,
    channel: Box<dyn IoChannel>,
    arena: Arc<Arena>,
}

impl Bench {
    fn new(options: FaultOptions) -> Self {
        let ram: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(RamOptions::default()).unwrap());
        let device = FaultDevice::new(ram.clone(), options).unwrap();
        let arena = Arena::new(4096, 4, ArenaOptions::default()).unwrap();
        let channel = device.open_channel(&ChannelOptions::default()).unwrap();
        Self { ram, control: device.control(), channel, arena }
    }

    fn buffer(&self, byte: u8) -> Buffer {
        let mut buffer = self.arena.lease().unwrap();
        buffer.copy_from(0, &[byte; 4096]);
        buffer
    }

    fn write(&mut self, offset: u64, byte: u8) -> Result<(), IoError> {
        let request = Request::write(offset, 4096, self.buffer(byte), 1);
        run(&mut *self.channel, request).result
    }

    fn read(&mut self, offset: u64) -> Result<Vec<u8>, IoError> {
        let request = Request::read(offset, 4096, self.buffer(0xEE), 2);
        let completion = run(&mut *self.channel, request);
        completion.result.map(|()| completion.buffer.unwrap().as_slice().to_vec())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        run(&mut *self.channel, Request::flush(3)).result
    }

    /// Reads a block of the device below.
    fn below(&self, offset: u64) -> Vec<u8> {
        let mut channel = self.ram.open_channel(&ChannelOptions::default()).unwrap();
        let completion = run(&mut *channel, Request::read(offset, 4096, self.buffer(0), 4));
        completion.buffer.unwrap().as_slice().to_vec()
    }
}

fn run(channel: &mut dyn IoChannel, request: Request) -> Completion {
    let tag = request.tag;
    channel.submit(request).unwrap();
    let mut completions = Vec::new();
    channel.wait(&mut completions, WaitOptions { want: 1, linger: Duration::ZERO, timeout: None });
    let completion = completions.pop().unwrap();
    assert_eq!(completion.tag, tag);
    completion
}

#[test]
fn fails_by_verb_until_healed() {
    let mut bench = Bench::new(FaultOptions::default());
    bench.write(0, 1).unwrap();
    bench.control.fail_writes(true);
    assert_eq!(bench.write(0, 2), Err(IoError::IO));
    assert_eq!(bench.read(0).unwrap(), [1; 4096]);
    bench.flush().unwrap();
    bench.control.fail_flushes(true);
    assert_eq!(bench.flush(), Err(IoError::IO));
    bench.control.fail_all(true);
    bench.control.set_error(IoError::NO_SPACE);
    assert_eq!(bench.read(0), Err(IoError::NO_SPACE));
    bench.control.heal();
    bench.write(0, 3).unwrap();
    bench.flush().unwrap();
    assert_eq!(bench.read(0).unwrap(), [3; 4096]);
    assert_eq!(bench.control.counts().errors, 3);
    let statistics = bench.channel.statistics();
    assert_eq!((statistics.writes, statistics.reads, statistics.flushes), (2, 2, 2));
    assert_eq!(statistics.errors, 3);
}

#[test]
fn fails_the_nth_once() {
    let mut bench = Bench::new(FaultOptions::default());
    bench.control.fail_nth(Op::Write, 3);
    let results: Vec<_> = (0..5).map(|n| bench.write(n * 4096, 1).is_ok()).collect();
    assert_eq!(results, [true, true, false, true, true]);
    assert_eq!(bench.control.seen(Op::Write), 5);
}

#[test]
fn fails_a_bad_spot() {
    let mut bench = Bench::new(FaultOptions::default());
    bench.control.fail_range(Op::Read, 8192..8193);
    assert!(bench.read(4096).is_ok());
    assert!(bench.read(8192 - 512).is_err());
    assert!(bench.read(8192).is_err());
    assert!(bench.read(12288).is_ok());
    assert!(bench.write(8192, 1).is_ok());
}

#[test]
fn tears_a_write() {
    for sectors in [0, 1, 5, 8, 100] {
        let mut bench = Bench::new(FaultOptions::default());
        bench.write(0, 1).unwrap();
        bench.control.tear_nth_write(2, sectors);
        bench.write(4096, 1).unwrap();
        assert_eq!(bench.write(0, 2), Err(IoError::IO));
        let torn = (sectors as usize * 512).min(4096);
        let found = bench.read(0).unwrap();
        assert!(found[..torn].iter().all(|b| *b == 2) && found[torn..].iter().all(|b| *b == 1));
        bench.write(0, 3).unwrap();
        let counts = FaultCounts { errors: 1, torn_writes: 1, corrupt_reads: 0 };
        assert_eq!(bench.control.counts(), counts);
    }
}

#[test]
fn crashes_in_a_write() {
    let mut bench = Bench::new(FaultOptions::default());
    bench.control.crash_at_write(2, 1);
    bench.write(0, 1).unwrap();
    assert!(bench.write(0, 2).is_err());
    assert!(bench.write(4096, 2).is_err());
    assert!(bench.read(0).is_err());
    assert!(bench.flush().is_err());
    let found = bench.below(0);
    assert_eq!((found[511], found[512]), (2, 1));
    assert_eq!(bench.below(4096), [0; 4096]);
}

#[test]
fn flips_one_bit() {
    let mut bench = Bench::new(FaultOptions::default());
    bench.write(0, 0).unwrap();
    bench.control.corrupt_nth_read(2);
    assert_eq!(bench.read(0).unwrap(), [0; 4096]);
    let ones: u32 = bench.read(0).unwrap().iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(ones, 1);
    assert_eq!(bench.read(0).unwrap(), [0; 4096]);
    assert_eq!(bench.control.counts().corrupt_reads, 1);
}

#[test]
fn repeats_itself_by_seed() {
    let run = |seed| {
        let options = FaultOptions { seed, read_error_rate: 0.3, ..FaultOptions::default() };
        let mut bench = Bench::new(options);
        (0..200).map(|_| bench.read(0).is_ok()).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let failed = run(1).iter().filter(|ok| !**ok).count();
    assert!((20..120).contains(&failed), "{failed} of 200 failed at a rate of 0.3");
}

#[test]
fn growing_can_fail() {
    let ram = Arc::new(RamDevice::new(RamOptions::default()).unwrap());
    let device = FaultDevice::new(ram, FaultOptions::default()).unwrap();
    device.control().fail_grow(true);
    let old = device.size_bytes();
    assert_eq!(device.grow(old + 4096).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(device.size_bytes(), old);
    device.control().heal();
    device.grow(old + 4096).unwrap();
}

#[test]
fn refuses_rates_that_are_none() {
    for rate in [-0.1, 1.1, f64::NAN] {
        let ram = Arc::new(RamDevice::new(RamOptions::default()).unwrap());
        let options = FaultOptions { flush_error_rate: rate, ..FaultOptions::default() };
        assert_eq!(FaultDevice::new(ram, options).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
