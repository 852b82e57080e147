//! Every fault of a soft drive, with every operation, polled and asleep: each request completes
//! exactly once, with a suitable error, and its buffer is returned.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, Completion, ErrorKind, IoChannel, IoError,
    Op, Request, WaitOptions,
};
use qpair_nvme::{Controller, ControllerOptions, NvmeDevice, WaitMode};
use qpair_pci::InProcess;
use qpair_softdev::{SoftNvme, SoftNvmeOptions};

const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];
const MODES: [WaitMode; 2] = [WaitMode::Poll, WaitMode::Sleep];
const BLOCK: u32 = 4096;
const DEPTH: u32 = 16;
/// The time after which a test counts as hanging, and fails.
const TIMEOUT: Duration = Duration::from_secs(60);

type Results = HashMap<u64, Result<(), IoError>>;

struct Rig {
    device: NvmeDevice,
    channel: Box<dyn IoChannel>,
    arena: Arc<Arena>,
    next_tag: u64,
    name: String,
}

impl Rig {
    fn new(faults: &str, wait: WaitMode) -> Self {
        let options = format!("size=8MiB,block=4096,cache=on,{faults}");
        let soft = SoftNvme::new(SoftNvmeOptions::parse(&options).unwrap()).unwrap();
        let function = Arc::new(InProcess::new("soft", soft));
        let options = ControllerOptions { wait, timeout_ms: 100, ..ControllerOptions::default() };
        let controller = Controller::open(function, options).unwrap();
        let device = controller.open_namespace(1).unwrap();
        let arena = Arena::new(BLOCK as usize, 2 * DEPTH, ArenaOptions::ordinary_pages()).unwrap();
        let channel = open(&device, &arena).unwrap();
        Self { device, channel, arena, next_tag: 0, name: format!("{faults}, {wait}") }
    }

    fn request(&mut self, op: Op) -> Request {
        let tag = self.next_tag;
        self.next_tag += 1;
        let at = tag % 1024 * u64::from(BLOCK);
        match op {
            Op::Read => Request::read(at, BLOCK, self.arena.lease().unwrap(), tag),
            Op::Write => {
                let mut buffer = self.arena.lease().unwrap();
                buffer.copy_from(0, &[tag as u8; BLOCK as usize]);
                Request::write(at, BLOCK, buffer, tag)
            }
            Op::Flush => Request::flush(tag),
            Op::Discard => Request::discard(at, BLOCK, tag),
            Op::WriteZeroes => Request::write_zeroes(at, BLOCK, tag),
        }
    }

    /// Keeps the queue full until `count` requests have completed. Returns the results by tag.
    fn run(&mut self, count: u64, op_of: impl Fn(u64) -> Op) -> Results {
        let (mut sent, mut results) = (0, Results::new());
        let first = self.next_tag;
        let mut completions: Vec<Completion> = Vec::new();
        let end = Instant::now() + TIMEOUT;
        while (results.len() as u64) < count {
            while sent < count && self.channel.in_flight() < DEPTH {
                let request = self.request(op_of(self.next_tag));
                self.channel.submit(request).unwrap();
                sent += 1;
            }
            let options = WaitOptions {
                want: 1,
                linger: Duration::ZERO,
                timeout: Some(Duration::from_secs(1)),
            };
            self.channel.wait(&mut completions, options);
            for completion in completions.drain(..) {
                let Completion { tag, op, buffer, result } = completion;
                assert!((first..first + sent).contains(&tag), "{}: tag {tag}", self.name);
                assert_eq!(op, op_of(tag), "{}", self.name);
                let twice = results.insert(tag, result);
                assert!(twice.is_none(), "{}: {tag} completed twice", self.name);
                let moves = matches!(op, Op::Read | Op::Write);
                assert_eq!(buffer.is_some(), moves, "{}: the buffer of {tag}", self.name);
            }
            let left = count - results.len() as u64;
            assert!(Instant::now() < end, "{}: {left} of {count} never completed", self.name);
        }
        assert_eq!(self.channel.in_flight(), 0);
        results
    }

    fn run_all(&mut self, op: Op) -> Results {
        self.run(64, |_| op)
    }

    fn works(&mut self) {
        let results = self.run(64, |tag| OPS[tag as usize % OPS.len()]);
        let failed: Vec<_> = results.iter().filter(|(_, result)| result.is_err()).collect();
        assert!(failed.is_empty(), "{} afterwards: {failed:?}", self.name);
    }
}

fn open(device: &NvmeDevice, arena: &Arc<Arena>) -> qpair_block::Result<Box<dyn IoChannel>> {
    let arenas = vec![arena.clone()];
    device.open_channel(&ChannelOptions { depth: DEPTH, arenas, wake: None })
}

/// Runs `check` for every operation and both ways of waiting.
fn matrix(faults: &str, check: impl Fn(Op, &mut Rig)) {
    for wait in MODES {
        for op in OPS {
            check(op, &mut Rig::new(faults, wait));
        }
    }
}

fn errors(results: &Results) -> Vec<IoError> {
    results.values().filter_map(|result| result.err()).collect()
}

#[test]
fn media_errors_are_errors_of_the_one_request() {
    for (faults, hit) in [
        ("read_error_blocks=7", vec![Op::Read]),
        ("write_error_blocks=7", vec![Op::Write, Op::WriteZeroes]),
    ] {
        matrix(faults, |op, rig| {
            let results = rig.run_all(op);
            for (tag, result) in results {
                let expected =
                    if tag == 7 && hit.contains(&op) { Err(IoError::IO) } else { Ok(()) };
                assert_eq!(result, expected, "{}: {op:?} {tag}", rig.name);
            }
        });
    }
    for (faults, hit) in [
        ("read_error_rate=1", vec![Op::Read]),
        ("write_error_rate=1", vec![Op::Write, Op::WriteZeroes, Op::Discard]),
        ("flush_error_rate=1", vec![Op::Flush]),
    ] {
        matrix(faults, |op, rig| {
            let failed = errors(&rig.run_all(op));
            assert_eq!(failed.len(), if hit.contains(&op) { 64 } else { 0 }, "{} {op:?}", rig.name);
            for error in failed {
                assert_eq!(error, IoError::IO, "{} {op:?}", rig.name);
                assert!(!error.can_be_retried());
            }
        });
    }
}

#[test]
fn delays_are_no_errors() {
    matrix("delay_rate=0.3,delay_us=300", |op, rig| {
        assert_eq!(errors(&rig.run_all(op)), [], "{} {op:?}", rig.name);
    });
    matrix("profile=qlc,read_us=20,program_us=50,erase_us=50,slc_program_us=30", |op, rig| {
        assert_eq!(errors(&rig.run_all(op)), [], "{} {op:?}", rig.name);
        rig.works();
    });
}

#[test]
fn corrupt_reads_look_well() {
    for wait in MODES {
        let mut rig = Rig::new("corrupt_rate=1", wait);
        let mut completions = Vec::new();
        let request = rig.request(Op::Read);
        rig.channel.submit(request).unwrap();
        while completions.is_empty() {
            let options = WaitOptions { want: 1, linger: Duration::ZERO, timeout: Some(TIMEOUT) };
            rig.channel.wait(&mut completions, options);
        }
        let completion = completions.pop().unwrap();
        assert_eq!(completion.result, Ok(()));
        let buffer = completion.buffer.unwrap();
        let ones: u32 = buffer.as_slice().iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(ones, 1, "{}", rig.name);
    }
}

#[test]
fn one_command_without_an_answer_is_one_request_that_timed_out() {
    matrix("timeout_after=9", |op, rig| {
        let failed = errors(&rig.run_all(op));
        // An abort ends this one command. No other command need fail.
        assert_eq!(failed, [IoError::TIMED_OUT], "{} {op:?}", rig.name);
        assert!(failed[0].can_be_retried());
        rig.works();
    });
}

#[test]
fn a_dropped_completion_costs_the_queue_and_no_more() {
    matrix("drop_after=9", |op, rig| {
        let failed = errors(&rig.run_all(op));
        let timed_out = failed.iter().filter(|error| **error == IoError::TIMED_OUT).count();
        assert_eq!(timed_out, 1, "{} {op:?}: {failed:?}", rig.name);
        assert!(
            failed.iter().all(|error| error.can_be_retried()),
            "{} {op:?}: {failed:?}",
            rig.name
        );
        assert!(failed.len() <= DEPTH as usize, "{} {op:?}: {failed:?}", rig.name);
        rig.works();
    });
}

#[test]
fn a_fatal_controller_is_reset_and_goes_on() {
    matrix("fatal_after=9", |op, rig| {
        let failed = errors(&rig.run_all(op));
        assert!(!failed.is_empty() && failed.len() <= DEPTH as usize, "{} {op:?}", rig.name);
        assert!(
            failed.iter().all(|error| error.can_be_retried()),
            "{} {op:?}: {failed:?}",
            rig.name
        );
        rig.works();
    });
}

#[test]
fn a_drive_that_is_gone_answers_everything_and_nothing_well() {
    for faults in ["remove_after=9", "power_cut_after=9"] {
        matrix(faults, |op, rig| {
            let results = rig.run_all(op);
            let failed = errors(&results);
            assert!(failed.len() >= 64 - 8 - DEPTH as usize, "{} {op:?}", rig.name);
            for error in failed {
                assert_eq!(error.kind, ErrorKind::Gone, "{} {op:?}", rig.name);
                assert!(!error.can_be_retried());
            }
            // All later requests end that way, too.
            assert_eq!(errors(&rig.run_all(op)).len(), 64);
            let opened = open(&rig.device, &rig.arena).map(|_| ()).unwrap_err();
            assert_eq!(opened.kind(), ErrorKind::Gone, "{} {op:?}: {opened}", rig.name);
        });
    }
}

#[test]
fn all_at_once_still_completes_each_once() {
    for wait in MODES {
        for seed in 0..4 {
            let mut rig = Rig::new(
                &format!(
                    "seed={seed},read_error_rate=0.05,write_error_rate=0.05,flush_error_rate=0.05,\
                     timeout_rate=0.004,drop_rate=0.004,delay_rate=0.2,delay_us=100,fatal_after=150"
                ),
                wait,
            );
            let results = rig.run(400, |tag| OPS[(tag * 7 % 31) as usize % OPS.len()]);
            for (tag, result) in results {
                let fits = match result {
                    Ok(()) => true,
                    Err(error) => error == IoError::IO || error.can_be_retried(),
                };
                assert!(fits, "{}: {tag}: {result:?}", rig.name);
            }
        }
    }
}

#[test]
fn a_channel_closes_whatever_is_under_way() {
    for faults in [
        "timeout_rate=1",
        "drop_rate=1",
        "fatal_after=5",
        "remove_after=5",
        "delay_rate=1,delay_us=2000",
    ] {
        for wait in MODES {
            let mut rig = Rig::new(faults, wait);
            for number in 0..DEPTH as usize {
                let request = rig.request(OPS[number % OPS.len()]);
                rig.channel.submit(request).unwrap();
            }
            rig.channel.kick();
            let start = Instant::now();
            drop(rig.channel);
            assert!(start.elapsed() < TIMEOUT, "{}", rig.name);
            // Every buffer was returned.
            let leases: Vec<_> = std::iter::from_fn(|| rig.arena.lease()).collect();
            assert_eq!(leases.len(), 2 * DEPTH as usize, "{}", rig.name);
        }
    }
}
