//! What a wait costs: the reason to linger.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::path::PathBuf;
use std::time::Duration;

use qpair_block::{Arena, ArenaOptions, BlockDevice, ChannelOptions, Request, WaitOptions};
use qpair_kernel::{FileOptions, Interface, open};

const DEPTH: u32 = 32;

/// System calls for a batch of [`DEPTH`] reads, submitted and awaited.
fn calls_for_a_batch(interface: Interface) -> u64 {
    let name = format!("waiting-{interface}-{}", std::process::id());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let options = FileOptions { create: Some(1 << 20), ..FileOptions::new(&path) };
    let device = open(&options, interface).unwrap();
    std::fs::remove_file(&path).unwrap();
    let arena = Arena::new(4096, DEPTH, ArenaOptions::default()).unwrap();
    let options =
        ChannelOptions { depth: DEPTH, arenas: vec![arena.clone()], ..Default::default() };
    let mut channel = device.open_channel(&options).unwrap();
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
    assert_eq!(calls_for_a_batch(Interface::IoUring), 1);
}

#[test]
fn libaio_submits_in_one_call_and_waits_in_another() {
    // The second is spared if all is there already.
    assert!(calls_for_a_batch(Interface::Libaio) <= 2);
}
