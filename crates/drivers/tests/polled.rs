//! A thread over several polled drives makes no system call for an I/O, because it polls all of
//! them.
//!
//! A regression: the thread slept instead. Only channels that reported completions without a system
//! call were polled, and neither NVMe nor SCSI channels reported that. Two drives behind one thread
//! cost an event and a poll(2) for each I/O, while one drive cost nothing.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use qpair_baselines::{IoThreadDevice, OneLockDevice};
use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelGroup, ChannelOptions, Completion, DeviceSpec, Error,
    ErrorKind, LimitDevice, Member, PAIR_SECOND_BYTES, Request, Result, SliceDevice, StripeDevice,
    WaitOptions, WakeEvent, open_pair,
};
use qpair_drivers::Drivers;

/// A drive whose commands take some time, so that a wait does not find them complete at once.
const NVME: &str = "softnvme:size=1MiB,profile=optane";
const SCSI: &str = "scsi:soft/0";
const BLOCK_BYTES: u32 = 4096;
const READS: u64 = 400;
/// The maximum number of calls of a run that are not for an I/O: each of up to 24 drives makes its
/// completion descriptor readable once.
const SET_UP_MAX: u64 = 24;

fn open(text: &str) -> Arc<dyn BlockDevice> {
    let files = |_: &Path| -> Result<Arc<dyn BlockDevice>> {
        Err(Error::new(ErrorKind::Unsupported, "these tests open no files"))
    };
    DeviceSpec::parse(text).unwrap().open(&Drivers::new().opening(files)).unwrap()
}

fn stripe_of(drive: &str, count: usize) -> Arc<dyn BlockDevice> {
    open(&format!("stripe:unit=4KiB:{}", vec![drive; count].join("+")))
}

/// Executes [`READS`] reads, `depth` at a time: `submit` sends one, and `wait` takes completions.
fn read(
    arena: &Arc<Arena>,
    depth: u64,
    want: u32,
    submit: &mut dyn FnMut(u64, Request),
    wait: &mut dyn FnMut(&mut Vec<Completion>, WaitOptions) -> usize,
) {
    let options = WaitOptions { want, linger: Duration::from_secs(60), timeout: None };
    let (mut sent, mut done) = (0, 0);
    let mut completions = Vec::new();
    while done < READS {
        while sent < READS && sent - done < depth {
            let block = sent % 16;
            let buffer = arena.lease().unwrap();
            submit(sent, Request::read(block * u64::from(BLOCK_BYTES), BLOCK_BYTES, buffer, sent));
            sent += 1;
        }
        assert!(wait(&mut completions, options) > 0);
        for completion in completions.drain(..) {
            completion.result.unwrap();
            done += 1;
        }
    }
}

fn arena(depth: u64) -> Arc<Arena> {
    Arena::new(BLOCK_BYTES as usize, depth as u32, ArenaOptions::ordinary_pages()).unwrap()
}

/// Returns the number of system calls that one channel makes for the reads.
fn calls_of(device: &dyn BlockDevice, depth: u64, want: u32, wake: bool) -> u64 {
    let arena = arena(depth);
    let wake = wake.then(|| Arc::new(WakeEvent::new().unwrap()));
    let options = ChannelOptions { depth: depth as u32, arenas: vec![arena.clone()], wake };
    let channel = std::cell::RefCell::new(device.open_channel(&options).unwrap());
    let before = channel.borrow().statistics().system_calls;
    read(
        &arena,
        depth,
        want,
        &mut |_, request| channel.borrow_mut().submit(request).unwrap(),
        &mut |completions, options| channel.borrow_mut().wait(completions, options),
    );
    channel.borrow().statistics().system_calls - before
}

#[test]
fn stripes_of_polled_drives_make_no_calls() {
    for (drive, counts) in [(NVME, &[1, 2, 3, 8, 24][..]), (SCSI, &[1, 2][..])] {
        for &count in counts {
            let stripe = stripe_of(drive, count);
            for (depth, want) in [(1, 1), (4, 1), (32, 1), (32, 8)] {
                for wake in [false, true] {
                    let calls = calls_of(&*stripe, depth, want, wake);
                    let what = format!("{count} of {drive}, depth {depth}, {want}, wake {wake}");
                    assert!(calls <= SET_UP_MAX, "{what}: {calls} calls for {READS} reads");
                }
            }
        }
    }
}

#[test]
fn groups_of_polled_drives_make_no_calls() {
    for count in [2_u64, 5, 24] {
        let drives: Vec<_> = (0..count).map(|_| open(NVME)).collect();
        for depth in [1, 4, 48] {
            let arena = arena(depth);
            let options =
                ChannelOptions { depth: depth as u32, arenas: vec![arena.clone()], wake: None };
            let group = ChannelGroup::open(drives.iter().map(|drive| (&**drive, &options)));
            let group = std::cell::RefCell::new(group.unwrap());
            read(
                &arena,
                depth,
                1,
                &mut |at, request| {
                    group.borrow_mut().submit((at % count) as usize, request).unwrap();
                },
                &mut |completions, options| group.borrow_mut().wait(completions, options),
            );
            let calls = group.borrow().statistics().system_calls;
            assert!(calls <= SET_UP_MAX, "{count} drives, depth {depth}: {calls} calls");
        }
    }
}

#[test]
fn what_lies_before_polled_drives_adds_no_calls() {
    let two = |drive: &dyn Fn() -> Arc<dyn BlockDevice>| -> Arc<dyn BlockDevice> {
        let members = (0..2).map(|_| Member { device: drive(), start_bytes: 0 }).collect();
        Arc::new(StripeDevice::new(4096, members).unwrap())
    };
    let slice = || -> Arc<dyn BlockDevice> {
        Arc::new(SliceDevice::new(open(NVME), 4096, 512 << 10).unwrap())
    };
    let lock = || -> Arc<dyn BlockDevice> { Arc::new(OneLockDevice::new(open(NVME))) };
    let limit = || -> Arc<dyn BlockDevice> { Arc::new(LimitDevice::new(open(NVME))) };
    let fault = || open(&format!("fault:seed=1:{NVME}"));
    let delay = || open(&format!("delay:read_us=0,write_us=0,flush_us=0:{NVME}"));
    let nested = || stripe_of(NVME, 2);
    for (name, drive) in [
        ("slice", &slice as &dyn Fn() -> Arc<dyn BlockDevice>),
        ("onelock", &lock),
        ("limit", &limit),
        ("fault", &fault),
        ("delay", &delay),
        ("stripe", &nested),
    ] {
        for wake in [false, true] {
            let calls = calls_of(&*two(drive), 8, 1, wake);
            // A delay sets a timer for each request that it holds.
            let most = if name == "delay" { 2 * READS } else { SET_UP_MAX };
            assert!(calls <= most, "{name}, wake {wake}: {calls} calls for {READS} reads");
        }
    }
}

#[test]
fn a_pair_of_polled_drives_makes_no_calls() {
    let (first, second) = (open(NVME), open(NVME));
    let arena = arena(8);
    for wake in [false, true] {
        let wake = wake.then(|| Arc::new(WakeEvent::new().unwrap()));
        let options = ChannelOptions { depth: 8, arenas: vec![arena.clone()], wake };
        let pair = open_pair((&*first, &options), (&*second, &options)).unwrap();
        let pair = std::cell::RefCell::new(pair);
        read(
            &arena,
            8,
            1,
            &mut |at, mut request| {
                request.offset_bytes += at % 2 * PAIR_SECOND_BYTES;
                pair.borrow_mut().submit(request).unwrap();
            },
            &mut |completions, options| pair.borrow_mut().wait(completions, options),
        );
        let calls = pair.borrow().statistics().system_calls;
        assert!(calls <= SET_UP_MAX, "{calls} calls for {READS} reads");
    }
}

/// With a separate I/O thread, that thread makes no call for an I/O on the channels below either.
/// The two threads wake each other.
#[test]
fn a_thread_for_io_does_not_sleep_while_a_polled_drive_works() {
    let device = IoThreadDevice::new(open(NVME)).unwrap();
    let calls = calls_of(&device, 1, 1, false);
    // For each read both threads sleep and are signalled, and the descriptor of the idle channel
    // below is cleared and set.
    assert!(calls <= 6 * READS + SET_UP_MAX, "{calls} calls for {READS} reads");
}

/// A thread that polls several drives notices the wake event and its time-out.
#[test]
fn looking_ends_when_it_is_to_end() {
    let stripe = stripe_of("softnvme:size=1MiB,timeout_rate=1", 2);
    let wake = Arc::new(WakeEvent::new().unwrap());
    for wake in [None, Some(wake)] {
        let arena = arena(2);
        let options = ChannelOptions { depth: 2, arenas: vec![arena.clone()], wake: wake.clone() };
        let mut channel = stripe.open_channel(&options).unwrap();
        for block in 0..2 {
            let buffer = arena.lease().unwrap();
            let offset = block * u64::from(BLOCK_BYTES);
            channel.submit(Request::read(offset, BLOCK_BYTES, buffer, block)).unwrap();
        }
        let mut completions = Vec::new();
        let wait = WaitOptions {
            want: 1,
            linger: Duration::ZERO,
            timeout: Some(Duration::from_millis(5)),
        };
        assert_eq!(channel.wait(&mut completions, wait), 0);
        if let Some(wake) = wake {
            std::thread::scope(|scope| {
                wake.prepare();
                scope.spawn(|| wake.wake());
                let wait = WaitOptions { timeout: None, ..wait };
                assert_eq!(channel.wait(&mut completions, wait), 0);
                wake.awake();
            });
        }
        // A hanging command ends by the driver's error ladder, which would take too long here.
        std::mem::forget(channel);
    }
}
