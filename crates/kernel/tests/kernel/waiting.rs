//! The number of system calls of a wait, which is the reason to linger and to have a submission
//! thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, IoChannel, Member, PAIR_SECOND_BYTES,
    Request, Result, StripeDevice, WaitOptions, open_pair,
};
use qpair_kernel::{FileOptions, KernelDevice, Mode, open};

const DEPTH: u32 = 32;

fn scratch(mode: &str) -> Result<KernelDevice> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("waiting-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let options = FileOptions { create: Some(1 << 20), ..FileOptions::new(&path) };
    let device = open(&options, mode.parse::<Mode>().unwrap())?;
    std::fs::remove_file(&path).unwrap();
    Ok(device)
}

/// Returns the number of system calls of a channel in a period without events.
fn calls_of_a_sleep(channel: &mut dyn IoChannel) -> u64 {
    let before = channel.statistics().system_calls;
    let timeout = Some(Duration::from_millis(20));
    let found =
        channel.wait(&mut Vec::new(), WaitOptions { want: 1, linger: Duration::ZERO, timeout });
    assert_eq!(found, 0);
    channel.statistics().system_calls - before
}

/// A channel over several members sleeps once it has taken all completions. It does not keep
/// polling even though each member has signalled some.
#[test]
fn channels_of_several_sleep() {
    for mode in ["io_uring", "io_uring+k", "libaio", "posix:threads=2"] {
        let arena = Arena::new(4096, DEPTH, ArenaOptions::default()).unwrap();
        let options =
            ChannelOptions { depth: DEPTH, arenas: vec![arena.clone()], ..Default::default() };
        let Ok(devices) = (0..3).map(|_| scratch(mode)).collect::<Result<Vec<_>>>() else {
            println!("skipped {mode}");
            continue;
        };
        let devices: Vec<_> = devices.into_iter().map(Arc::new).collect();
        let members = devices[..2]
            .iter()
            .map(|device| Member { device: device.clone(), start_bytes: 0 })
            .collect();
        let stripe = StripeDevice::new(4096, members).unwrap();
        let mut of_two = stripe.open_channel(&options).unwrap();
        let mut of_three = open_pair((&stripe, &options), (devices[2].as_ref(), &options)).unwrap();
        for round in 0..50 {
            // Use each member in turn, so that the others have nothing in flight.
            for (channel, offset_bytes) in [
                (&mut of_two, round % 2 * 4096),
                (&mut of_three, [0, 4096, PAIR_SECOND_BYTES][round as usize % 3]),
            ] {
                let request = Request::read(offset_bytes, 4096, arena.lease().unwrap(), 0);
                channel.submit(request).unwrap();
                let mut completions = Vec::new();
                let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
                assert_eq!(channel.wait(&mut completions, one), 1, "{mode}");
            }
            if round % 10 == 9 {
                for channel in [&mut of_two, &mut of_three] {
                    let calls = calls_of_a_sleep(channel.as_mut());
                    assert!(calls < 50, "{mode}: {calls} system calls in a sleep");
                }
            }
        }
    }
}

fn line(device: &KernelDevice) -> (Box<dyn IoChannel>, std::sync::Arc<Arena>) {
    let arena = Arena::new(4096, DEPTH, ArenaOptions::default()).unwrap();
    let options =
        ChannelOptions { depth: DEPTH, arenas: vec![arena.clone()], ..Default::default() };
    (device.open_channel(&options).unwrap(), arena)
}

/// Returns the number of system calls for a batch of [`DEPTH`] reads, submitted and awaited.
fn calls_for_a_batch(channel: &mut dyn IoChannel, arena: &std::sync::Arc<Arena>) -> u64 {
    let before = channel.statistics().system_calls;
    for number in 0..DEPTH {
        let buffer = arena.lease().unwrap();
        channel.submit(Request::read(u64::from(number) * 4096, 4096, buffer, 0)).unwrap();
    }
    let mut completions = Vec::new();
    let long = WaitOptions { want: DEPTH, linger: Duration::from_secs(3600), timeout: None };
    assert_eq!(channel.wait(&mut completions, long), DEPTH as usize);
    channel.statistics().system_calls - before
}

#[test]
fn io_uring_submits_and_waits_in_one_call() {
    for mode in ["io_uring", "io_uring:buffers=off,file=off,ring=off", "io_uring:segments=4"] {
        let (mut channel, arena) = line(&scratch(mode).unwrap());
        assert_eq!(calls_for_a_batch(channel.as_mut(), &arena), 1, "{mode}");
    }
}

#[test]
fn libaio_submits_in_one_call_and_waits_in_another() {
    let (mut channel, arena) = line(&scratch("libaio").unwrap());
    // The second call is not needed if all completions are there already.
    assert!(calls_for_a_batch(channel.as_mut(), &arena) <= 2);
    let (mut channel, arena) = line(&scratch("libaio:mapped=off").unwrap());
    assert_eq!(calls_for_a_batch(channel.as_mut(), &arena), 2);
}

#[test]
fn the_submitter_makes_one_call_for_each() {
    for mode in ["posix:threads=0", "posix:threads=0,segments=8"] {
        let (mut channel, arena) = line(&scratch(mode).unwrap());
        assert_eq!(calls_for_a_batch(channel.as_mut(), &arena), u64::from(DEPTH), "{mode}");
    }
}

/// With a submission thread that stays awake, a batch needs no system call. If the thread gets no
/// processor for long, a wait stops polling, which costs calls. The test therefore requires only
/// that some of many batches need none.
#[test]
fn beside_a_thread_there_are_no_calls() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return println!("skipped: one processor, which this thread and the kernel's would share");
    }
    let device = match scratch("io_uring+k:idle_ms=3600000") {
        Ok(device) => device,
        Err(error) => return println!("skipped: {error}"),
    };
    let (mut channel, arena) = line(&device);
    let free = (0..100).filter(|_| calls_for_a_batch(channel.as_mut(), &arena) == 0).count();
    println!("{free} of 100 batches without a system call");
    assert!(free > 0);
}

/// Waking a sleeping thread costs one call, and loses no request.
#[test]
fn a_thread_that_sleeps_is_woken() {
    let device = match scratch("io_uring+k:idle_ms=1") {
        Ok(device) => device,
        Err(error) => return println!("skipped: {error}"),
    };
    let (mut channel, arena) = line(&device);
    let mut woken = 0;
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(20));
        woken += calls_for_a_batch(channel.as_mut(), &arena);
    }
    assert!(woken > 0, "the thread never slept");
}
