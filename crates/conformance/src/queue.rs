//! Checks the queue: its depth, its tags, its counters, and how it is closed.

use std::collections::HashSet;

use qpair_block::{ChannelStatistics, Request};

use crate::rig::{Rig, ensure, free_blocks};
use crate::{CheckResult, Pass};

/// Checks that the queue accepts requests up to its depth, and does not lose those beyond it.
pub(crate) fn busy_gives_the_request_back(rig: &mut Rig) -> CheckResult {
    let depth = rig.depth();
    let mut line = rig.open(depth + 1, None)?;
    let block = rig.block();
    for tag in 0..u64::from(depth) {
        let buffer = line.lease()?;
        line.submit(Request::read(0, block, buffer, tag))?;
    }
    let in_flight = line.channel.in_flight();
    ensure(in_flight == depth, || format!("{in_flight} in flight at depth {depth}"))?;
    let mut buffer = line.lease()?;
    buffer.copy_from(0, b"mine");
    let number = buffer.block();
    let mut request = Request::read(u64::from(block), block, buffer, 99);
    request.buffer_offset_bytes = 0;
    let Err(request) = line.channel.submit(request) else {
        return Err(format!("took request {} at depth {depth}", depth + 1));
    };
    let intact = (request.tag, request.offset_bytes, request.len_bytes)
        == (99, u64::from(block), block)
        && request
            .buffer
            .as_ref()
            .is_some_and(|b| b.block() == number && b.as_slice().starts_with(b"mine"));
    ensure(intact, || format!("gave back a changed request: {request:?}"))?;
    line.drain()?;
    let count = line.completions.drain(..).count();
    ensure(count == depth as usize, || format!("{count} completions of {depth}"))?;
    line.succeed(request)?;
    Ok(Pass::Passed)
}

/// Checks a mix of valid and invalid requests: each tag must come back once, with the buffer of its
/// request.
pub(crate) fn every_tag_once(rig: &mut Rig) -> CheckResult {
    let depth = rig.depth();
    let mut line = rig.open(depth, None)?;
    let total = u64::from(rig.options.rounds.max(4 * depth));
    let size = rig.device.size_bytes();
    let (mut next, mut awaited) = (0, HashSet::new());
    // The tags belong to the caller: all bits must survive.
    let tag_of = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut blocks = std::collections::HashMap::new();
    while next < total || !awaited.is_empty() {
        while next < total && line.channel.in_flight() < depth {
            let tag = tag_of(next);
            let (offset, len) = rig.range();
            let request = match rig.rng.u32(0..8) {
                0 => Request::flush(tag),
                1 => Request::read(size, len, line.lease()?, tag),
                2 => Request::read(offset + 1, len, line.lease()?, tag),
                _ => Request::read(offset, len, line.lease()?, tag),
            };
            blocks.insert(tag, request.buffer.as_ref().map(|b| b.block()));
            line.submit(request)?;
            awaited.insert(tag);
            next += 1;
        }
        line.channel.kick();
        if line.channel.poll(&mut line.completions) == 0 || next >= total {
            line.drain()?;
        }
        for completion in line.completions.drain(..) {
            let tag = completion.tag;
            ensure(awaited.remove(&tag), || {
                format!("tag {tag} came back without a request, or twice")
            })?;
            let block = completion.buffer.as_ref().map(|b| b.block());
            ensure(blocks.get(&tag) == Some(&block), || format!("tag {tag} has a wrong buffer"))?;
        }
    }
    let free = free_blocks(&line.arena);
    ensure(free == depth, || format!("{free} of {depth} buffers came back"))?;
    Ok(Pass::Passed)
}

pub(crate) fn statistics_add_up(rig: &mut Rig) -> CheckResult {
    let mut line = rig.open(1, None)?;
    let start = line.channel.statistics();
    let fresh = ChannelStatistics { system_calls: start.system_calls, ..Default::default() };
    ensure(start == fresh, || format!("a fresh channel starts at {start:?}"))?;
    let (block, mut wanted) = (rig.block(), ChannelStatistics::default());
    let size = rig.device.size_bytes();
    for round in 0..rig.options.rounds / 8 {
        let (offset, len) = rig.range();
        let buffer = line.lease()?;
        match round % 4 {
            0 => {
                line.succeed(Request::read(offset, len, buffer, 1))?;
                wanted.reads += 1;
                wanted.read_bytes += u64::from(len);
            }
            1 if !rig.device.info().read_only => {
                line.succeed(Request::write(offset, len, buffer, 1))?;
                wanted.writes += 1;
                wanted.written_bytes += u64::from(len);
            }
            2 => {
                line.succeed(Request::flush(1))?;
                wanted.flushes += 1;
            }
            _ => {
                line.run(Request::read(size, block, buffer, 1))?;
                wanted.errors += 1;
            }
        }
    }
    let found = line.channel.statistics();
    (wanted.system_calls, wanted.copied) = (found.system_calls, found.copied);
    ensure(found == wanted, || format!("{found:?} instead of {wanted:?}"))?;
    Ok(Pass::Passed)
}

/// Checks that a channel that is dropped with requests in flight gives every buffer back first.
pub(crate) fn drop_in_flight(rig: &mut Rig) -> CheckResult {
    let depth = rig.depth();
    for kicked in [true, false] {
        let mut line = rig.open(depth, None)?;
        for tag in 0..u64::from(depth) {
            let (offset, len) = rig.range();
            let buffer = line.lease()?;
            line.submit(Request::read(offset, len, buffer, tag))?;
            if kicked && tag % 2 == 0 {
                line.channel.kick();
            }
        }
        let arena = line.arena.clone();
        drop(line);
        let free = free_blocks(&arena);
        ensure(free == depth, || format!("{free} of {depth} buffers came back"))?;
    }
    Ok(Pass::Passed)
}
