//! Every device of this crate passes the conformance suite.

use std::sync::Arc;

use qpair_baselines::{IoThreadDevice, OneLockDevice};
use qpair_block::time::SimClock;
use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, DelayDevice, DelayOptions, FaultDevice,
    FaultOptions, IoError, LimitDevice, Limits, Member, NullDevice, NullOptions, Op, RamDevice,
    RamOptions, Request, SliceDevice, StripeDevice,
};
use qpair_conformance::{Options, Report, run};
use qpair_sim_block::{SimDevice, SimOptions};

fn ram(options: RamOptions) -> Arc<dyn BlockDevice> {
    Arc::new(RamDevice::new(options).unwrap())
}

fn pass(make: impl Fn() -> Arc<dyn BlockDevice>, options: Options, skips: &[&str]) {
    let report = run(make, options);
    println!("{report}");
    report.assert_passed();
    // None of these devices can be reset.
    assert_eq!(skipped(&report), [skips, &["reset"]].concat(), "{report}");
}

fn skipped(report: &Report) -> Vec<&str> {
    report.skipped().map(|(name, _)| name).collect()
}

#[test]
fn ram_device() {
    let make = || ram(RamOptions::default());
    pass(make, Options::default(), &["read_only_refuses_writes", "completion_fd"]);
}

#[test]
fn ram_device_of_large_blocks() {
    let options =
        RamOptions { logical_block_bytes: 4096, size_bytes: 300 << 10, ..RamOptions::default() };
    pass(|| ram(options), Options::default(), &["read_only_refuses_writes", "completion_fd"]);
}

#[test]
fn ram_device_of_fixed_size() {
    let options = RamOptions { growable: false, ..RamOptions::default() };
    pass(
        || ram(options),
        Options::default(),
        &["grow", "read_only_refuses_writes", "completion_fd"],
    );
}

#[test]
fn ram_device_read_only() {
    let report =
        run(|| ram(RamOptions { read_only: true, ..RamOptions::default() }), Options::default());
    println!("{report}");
    report.assert_passed();
    assert!(report.passed().any(|name| name == "read_only_refuses_writes"));
    assert!(skipped(&report).contains(&"read_back_random"));
}

#[test]
fn null_device() {
    let report = run(
        || Arc::new(NullDevice::new(NullOptions::default()).unwrap()),
        Options { keeps_content: false, ..Options::default() },
    );
    println!("{report}");
    report.assert_passed();
    assert!(report.passed().any(|name| name == "every_tag_once"));
}

fn sim(options: impl Fn(SimOptions) -> SimOptions) -> impl Fn() -> Arc<dyn BlockDevice> {
    move || {
        let fresh = SimOptions { free_running: true, ..SimOptions::new(1, &SimClock::new()) };
        Arc::new(SimDevice::new(options(fresh)).unwrap())
    }
}

#[test]
fn sim_device() {
    let skips = &["read_only_refuses_writes", "completion_fd"];
    pass(sim(|options| options), Options::default(), skips);
    pass(
        sim(|options| SimOptions { logical_block_bytes: 4096, ..options }),
        Options::default(),
        skips,
    );
}

/// Returns a disk whose memory alignment is above its block.
fn aligned(options: SimOptions) -> SimOptions {
    SimOptions { memory_alignment_bytes: 4096, ..options }
}

#[test]
fn sim_device_of_aligned_memory() {
    let skips = &["read_only_refuses_writes", "completion_fd"];
    pass(sim(aligned), Options::default(), skips);
}

/// A regression: a store with pages of 512 bytes on three files could not be opened after a crash.
/// The file system did not report its alignment, which was taken to be 4,096. A read of the log
/// across units was split at a multiple of the page, and the member refused the rest.
#[test]
fn stripe_of_members_of_aligned_memory() {
    for unit_bytes in [512, 1536, 16384] {
        let make = || {
            let members = [0, 512, 1024].map(|start_bytes| {
                let options = |seed| SimOptions {
                    size_bytes: 2 << 20,
                    free_running: true,
                    ..aligned(SimOptions::new(seed, &SimClock::new()))
                };
                let device = Arc::new(SimDevice::new(options(start_bytes)).unwrap());
                Member { device, start_bytes }
            });
            Arc::new(StripeDevice::new(unit_bytes, members.into()).unwrap()) as Arc<dyn BlockDevice>
        };
        let skips = &["read_only_refuses_writes", "completion_fd"];
        pass(make, Options { rounds: 80, ..Options::default() }, skips);
    }
}

/// As above, with members that complete later, not all of which need the alignment.
#[test]
fn stripe_of_delayed_and_unlike_members_of_aligned_memory() {
    let make = || {
        let members = [true, false, true].map(|is_aligned| {
            let options = SimOptions { free_running: true, ..SimOptions::new(1, &SimClock::new()) };
            let options = if is_aligned { aligned(options) } else { options };
            let device = delay(Arc::new(SimDevice::new(options).unwrap()));
            Member { device, start_bytes: 0 }
        });
        Arc::new(StripeDevice::new(1536, members.into()).unwrap()) as Arc<dyn BlockDevice>
    };
    pass(make, Options { rounds: 40, ..Options::default() }, &["read_only_refuses_writes"]);
}

#[test]
fn sim_device_without_a_cache() {
    let make = sim(|options| SimOptions { volatile_write_cache: false, ..options });
    pass(make, Options::default(), &["read_only_refuses_writes", "completion_fd"]);
}

fn delay(inner: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    let options = DelayOptions { read_us: 30, write_us: 20, flush_us: 50 };
    Arc::new(DelayDevice::new(inner, options).unwrap())
}

#[test]
fn delay_device() {
    let make = || delay(ram(RamOptions::default()));
    pass(make, Options { rounds: 80, ..Options::default() }, &["read_only_refuses_writes"]);
}

/// A regression: a request that was due when the doorbell rang was passed to the RAM device and
/// completed there. As no more requests were held, the timer was disarmed, and a thread that slept
/// on the descriptor was not woken.
#[test]
fn delay_of_nothing() {
    let make = || {
        let inner = ram(RamOptions::default());
        Arc::new(DelayDevice::new(inner, DelayOptions::default()).unwrap()) as Arc<dyn BlockDevice>
    };
    pass(make, Options::default(), &["read_only_refuses_writes"]);
}

#[test]
fn delay_of_a_delay_device() {
    let make = || delay(delay(ram(RamOptions::default())));
    pass(make, Options { rounds: 40, ..Options::default() }, &["read_only_refuses_writes"]);
}

fn io_thread(inner: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    Arc::new(IoThreadDevice::new(inner).unwrap())
}

#[test]
fn one_thread_for_all() {
    let make = || io_thread(ram(RamOptions::default()));
    pass(make, Options::default(), &["read_only_refuses_writes"]);
    let make = || io_thread(delay(ram(RamOptions::default())));
    pass(make, Options { rounds: 80, ..Options::default() }, &["read_only_refuses_writes"]);
    let make = || stripe(16384, 2, |options| io_thread(delay(ram(options))));
    pass(make, Options { rounds: 40, ..Options::default() }, &["read_only_refuses_writes"]);
}

#[test]
fn one_lock_for_all() {
    let one_lock = |inner| Arc::new(OneLockDevice::new(inner)) as Arc<dyn BlockDevice>;
    let skips = ["read_only_refuses_writes", "completion_fd"];
    pass(|| one_lock(ram(RamOptions::default())), Options::default(), &skips);
    let make = || one_lock(delay(ram(RamOptions::default())));
    pass(make, Options { rounds: 80, ..Options::default() }, &skips[..1]);
}

fn stripe(
    unit_bytes: u64,
    members: u64,
    make: impl Fn(RamOptions) -> Arc<dyn BlockDevice>,
) -> Arc<dyn BlockDevice> {
    let members = (0..members)
        .map(|number| {
            let size_bytes = (2 << 20) + number * 4096;
            let device = make(RamOptions { size_bytes, ..RamOptions::default() });
            Member { device, start_bytes: number * 512 }
        })
        .collect();
    Arc::new(StripeDevice::new(unit_bytes, members).unwrap())
}

#[test]
fn stripe_of_one() {
    pass(
        || stripe(4096, 1, ram),
        Options::default(),
        &["read_only_refuses_writes", "completion_fd"],
    );
}

#[test]
fn stripe_of_one_delayed() {
    let make = || stripe(4096, 1, |options| delay(ram(options)));
    pass(make, Options { rounds: 40, ..Options::default() }, &["read_only_refuses_writes"]);
}

#[test]
fn stripe_of_odd_units() {
    pass(
        || stripe(1536, 3, ram),
        Options::default(),
        &["read_only_refuses_writes", "completion_fd"],
    );
}

#[test]
fn stripe_of_delayed_members() {
    let make = || stripe(16384, 2, |options| delay(ram(options)));
    pass(make, Options { rounds: 40, ..Options::default() }, &["read_only_refuses_writes"]);
}

/// A regression: the RAM member has no descriptor, because its completions need no waiting. The
/// stripe has a descriptor because of the other member, and did not announce the first one's
/// completions.
#[test]
fn stripe_of_unlike_members() {
    let make = || {
        let members = vec![
            Member { device: delay(ram(RamOptions::default())), start_bytes: 0 },
            Member { device: ram(RamOptions::default()), start_bytes: 0 },
        ];
        Arc::new(StripeDevice::new(65536, members).unwrap()) as Arc<dyn BlockDevice>
    };
    pass(make, Options { rounds: 80, ..Options::default() }, &["read_only_refuses_writes"]);
}

#[test]
fn stripe_of_stripes() {
    let make = || {
        let members = vec![
            Member { device: stripe(4096, 2, |options| delay(ram(options))), start_bytes: 4096 },
            Member { device: stripe(65536, 2, ram), start_bytes: 0 },
        ];
        Arc::new(StripeDevice::new(8192, members).unwrap()) as Arc<dyn BlockDevice>
    };
    pass(make, Options { rounds: 40, ..Options::default() }, &["read_only_refuses_writes"]);
}

#[test]
fn fault_device_without_faults() {
    for delayed in [false, true] {
        let make = || {
            let inner = ram(RamOptions::default());
            let inner = if delayed { delay(inner) } else { inner };
            Arc::new(FaultDevice::new(inner, FaultOptions::default()).unwrap())
                as Arc<dyn BlockDevice>
        };
        let report = run(make, Options { rounds: 40, ..Options::default() });
        println!("{report}");
        report.assert_passed();
    }
}

/// A suite that finds no fault in a faulty device would prove nothing.
#[test]
fn the_suite_sees_faults() {
    let failures = |breakage: fn(&FaultDevice)| {
        let make = || {
            let device =
                FaultDevice::new(ram(RamOptions::default()), FaultOptions::default()).unwrap();
            breakage(&device);
            Arc::new(device) as Arc<dyn BlockDevice>
        };
        let report = run(make, Options { rounds: 40, ..Options::default() });
        report.failed().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert!(failures(|d| d.control().fail_flushes(true)).contains(&"flush"));
    assert!(failures(|d| d.control().corrupt_nth_read(1)).contains(&"last_block"));
    assert!(failures(|d| d.control().fail_grow(true)).contains(&"grow"));
    let wrong_answer = failures(|d| {
        d.control().set_error(IoError::IO);
        d.control().set_error_rate(Op::Read, 1.0);
    });
    assert!(wrong_answer.contains(&"invalid_requests"));
}

#[test]
fn limit_device() {
    for (delayed, limited) in [(false, false), (true, false), (false, true), (true, true)] {
        let make = || {
            let inner = ram(RamOptions::default());
            let device = LimitDevice::new(if delayed { delay(inner) } else { inner });
            if limited {
                let bytes_per_s = 2 << 30;
                device.set(Limits { ios_per_s: 50_000, bytes_per_s, ..Limits::default() });
            }
            Arc::new(device) as Arc<dyn BlockDevice>
        };
        let skips = ["read_only_refuses_writes", "completion_fd"];
        let skips = if delayed || limited { &skips[..1] } else { &skips[..] };
        pass(make, Options { rounds: 80, ..Options::default() }, skips);
    }
}

fn slice(of: &Arc<dyn BlockDevice>, start_bytes: u64, size_bytes: u64) -> Arc<dyn BlockDevice> {
    Arc::new(SliceDevice::new(of.clone(), start_bytes, size_bytes).unwrap())
}

#[test]
fn slices() {
    for block in [512, 4096] {
        let whole = ram(RamOptions { logical_block_bytes: block, ..RamOptions::default() });
        // The bytes around a slice belong to others.
        let around =
            [(0, 1 << 20), (5 << 20, 1 << 20)].map(|(start, len)| slice(&whole, start, len));
        let stamp = |slice: &Arc<dyn BlockDevice>| {
            let arena = Arena::new(4096, 1, ArenaOptions::ordinary_pages()).unwrap();
            let mut channel = slice.open_channel(&ChannelOptions::default()).unwrap();
            for at in [0, slice.size_bytes() - 4096] {
                let mut buffer = arena.lease().unwrap();
                buffer.copy_from(0, &[0x5A; 4096]);
                channel.submit(Request::write(at, 4096, buffer, 0)).unwrap();
                let mut done = Vec::new();
                channel.poll(&mut done);
                done.pop().unwrap().result.unwrap();
            }
        };
        around.iter().for_each(stamp);
        run(|| slice(&whole, 1 << 20, 4 << 20), Options::default()).assert_passed();
        for other in &around {
            let arena = Arena::new(4096, 1, ArenaOptions::ordinary_pages()).unwrap();
            let mut channel = other.open_channel(&ChannelOptions::default()).unwrap();
            for at in [0, other.size_bytes() - 4096] {
                channel.submit(Request::read(at, 4096, arena.lease().unwrap(), 0)).unwrap();
                let mut done = Vec::new();
                channel.poll(&mut done);
                assert_eq!(done[0].buffer.as_ref().unwrap().as_slice(), [0x5A; 4096]);
            }
        }
        let size = whole.size_bytes();
        for (start, len) in
            [(1, 512), (0, 0), (0, 100), (size, 4096), (u64::MAX - 4095, 8192), (0, size + 4096)]
        {
            assert!(SliceDevice::new(whole.clone(), start, len).is_err(), "{start} {len}");
        }
    }
}

/// An atomic write that is aligned on a stripe or a slice is also aligned on the device below, and
/// stays within one member.
#[test]
fn atomic_writes_keep_their_alignment_on_the_way_down() {
    let null = || -> Arc<dyn BlockDevice> {
        Arc::new(NullDevice::new(NullOptions { size_bytes: 1 << 20 }).unwrap())
    };
    let lengths = |device: &dyn BlockDevice| {
        (device.info().atomic_write_bytes_min, device.info().atomic_write_bytes)
    };
    assert_eq!(lengths(null().as_ref()), (512, 1 << 30));
    let members = || (0..2).map(|_| Member { device: null(), start_bytes: 0 }).collect();
    let stripe = |unit_bytes| StripeDevice::new(unit_bytes, members()).unwrap();
    assert_eq!(lengths(&stripe(64 << 10)), (512, 64 << 10));
    assert_eq!(lengths(&stripe(24 << 10)), (512, 8 << 10));
    let part = |start_bytes| SliceDevice::new(null(), start_bytes, 64 << 10).unwrap();
    assert_eq!(lengths(&part(0)), (512, 1 << 30));
    assert_eq!(lengths(&part(12 << 10)), (512, 4 << 10));
}
