//! Large memory is registered piece by piece as it is used, and occupies no pages before.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]
#![allow(clippy::print_stdout, reason = "skips are reported")]

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, Buffer, ChannelOptions, Completion, ErrorKind, IoChannel,
    Request, WaitOptions,
};
use qpair_kernel::{FileOptions, Mode, open};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

const WAIT: WaitOptions = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS: u32 = 2048;

/// Returns the memory of the process that is pinned for devices, in KiB.
fn pinned_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmPin")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Whether the process may lock any amount of memory: only then is memory registered on first use.
fn is_unbounded() -> bool {
    let is_exempt = || capabilities(None).unwrap().effective.contains(CapabilitySet::IPC_LOCK);
    getrlimit(Resource::Memlock).current.is_none() || is_exempt()
}

fn present(arena: &Arena) -> usize {
    let mut words = vec![0; arena.mapped_bytes() / 4096 * 8];
    let first = arena.region().0 as u64 / 4096 * 8;
    std::fs::File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut words, first).unwrap();
    words.iter().skip(7).step_by(8).filter(|byte| *byte & 0x80 != 0).count()
}

fn done(channel: &mut dyn IoChannel, request: Request) -> Buffer {
    channel.submit(request).unwrap();
    let mut completions: Vec<Completion> = Vec::new();
    while completions.is_empty() {
        channel.wait(&mut completions, WAIT);
    }
    let completion = completions.pop().unwrap();
    completion.result.unwrap();
    completion.buffer.unwrap()
}

#[test]
fn memory_is_registered_as_it_is_used() {
    if !is_unbounded() {
        println!("skipped: there is a bound on locked memory");
        return;
    }
    for mode in ["io_uring", "io_uring+k", "io_uring:segments=2", "io_uring:buffers=off"] {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("memory-{}", std::process::id()));
        let mode: Mode = mode.parse().unwrap();
        let options = FileOptions { create: Some(16 << 20), ..FileOptions::new(&path) };
        let device = open(&options, mode).unwrap();
        std::fs::remove_file(&path).unwrap();
        let arena = Arena::new(BLOCK_BYTES, BLOCKS, ArenaOptions::ordinary_pages()).unwrap();
        let before = pinned_kib();
        let mut channel = match device.open_channel(&ChannelOptions {
            arenas: vec![arena.clone()],
            ..ChannelOptions::default()
        }) {
            Ok(channel) => channel,
            Err(error) if [ErrorKind::Limit, ErrorKind::Denied].contains(&error.kind()) => {
                println!("skipped {mode}: {error}");
                continue;
            }
            Err(error) => panic!("{mode}: {error}"),
        };
        let at_first = pinned_kib().saturating_sub(before);
        assert!(at_first <= 8 << 10, "{mode}: {at_first} KiB are pinned before any request");
        assert!(present(&arena) <= (8 << 20) / 4096, "{mode}");

        let mut leases: Vec<_> = std::iter::from_fn(|| arena.lease()).collect();
        let mut chosen = Vec::new();
        for block in [2047, 1500, 64, 63, 0] {
            chosen.push(leases.swap_remove(block));
        }
        for (n, mut buffer) in chosen.into_iter().enumerate() {
            let at = (n * BLOCK_BYTES) as u64;
            let pattern: Vec<u8> = (0..BLOCK_BYTES).map(|byte| (byte * 31 + n) as u8).collect();
            buffer.copy_from(0, &pattern);
            let request = Request::write(at, BLOCK_BYTES as u32, buffer, n as u64);
            let mut buffer = done(channel.as_mut(), request);
            buffer.copy_from(0, &vec![0; BLOCK_BYTES]);
            let read = Request::read(at, BLOCK_BYTES as u32, buffer, n as u64);
            let buffer = done(channel.as_mut(), read);
            assert_eq!(buffer.as_slice(), pattern, "{mode}: block {n}");
            leases.push(buffer);
        }
        let used = pinned_kib().saturating_sub(before);
        let most = if mode.registered_buffers { 24 << 10 } else { 0 };
        assert!(used <= most, "{mode}: {used} KiB are pinned for five blocks");
        assert!(!mode.registered_buffers || used >= 12 << 10, "{mode}: {used} KiB are pinned");
        drop(channel);
        // The kernel destroys a ring some time after it was closed, but releases registered memory
        // at once.
        assert!(pinned_kib() <= before + 64, "{mode}: {} KiB stay pinned", pinned_kib());
    }
}
