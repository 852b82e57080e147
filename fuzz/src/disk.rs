//! What is asked of a disk behind a hostile device.

use std::time::Duration;

use qpair_block::{Arena, ArenaOptions, BlockDevice, ChannelOptions, Op, Request, WaitOptions};

fn all_of(want: u32) -> WaitOptions {
    WaitOptions { want, linger: Duration::MAX, timeout: None }
}

/// Requests to a disk, whatever its driver and the device below it do: each completes once, and
/// every buffer comes back.
pub fn work(disk: &dyn BlockDevice) {
    let info = disk.info();
    let block = info.logical_block_bytes;
    assert!(block.is_power_of_two() && (512..=65536).contains(&block));
    let depth = info.depth_max.min(4);
    let arena = Arena::new(128 << 10, 4, ArenaOptions::ordinary_pages()).expect("memory");
    let options = ChannelOptions { depth, arenas: vec![arena.clone()], wake: None };
    let Ok(mut channel) = disk.open_channel(&options) else { return };
    let mut completions = Vec::new();
    let (mut submitted, mut ended) = (0, 0);
    for tag in 0..8u64 {
        let request = match arena.lease() {
            Some(buffer) if tag % 2 == 0 => Request::read(0, 128 << 10, buffer, tag),
            Some(buffer) => Request::write(u64::from(block), block, buffer, tag),
            None if tag % 2 == 0 => Request::write_zeroes(0, block, tag),
            None => Request::flush(tag),
        };
        submitted += usize::from(channel.submit(request).is_ok());
        channel.wait(&mut completions, all_of(1));
        ended += completions.len();
        for completion in completions.drain(..) {
            let moves = matches!(completion.op, Op::Read | Op::Write);
            assert_eq!(completion.buffer.is_some(), moves);
        }
    }
    while channel.in_flight() > 0 {
        channel.wait(&mut completions, all_of(u32::MAX));
        ended += completions.len();
        completions.clear();
    }
    assert_eq!(submitted, ended, "each request completes once");
    drop(channel);
    let free: Vec<_> = std::iter::from_fn(|| arena.lease()).collect();
    assert_eq!(free.len(), 4, "every buffer is back");
}
