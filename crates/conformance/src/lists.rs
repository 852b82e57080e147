//! Lists of segments in memory that others gave.

use std::sync::Arc;

use qpair_block::{Arena, ChannelOptions, ErrorKind, Mapping, Request, Segment};

use crate::rig::{Line, Rig, ensure, open, same};
use crate::{CheckResult, Pass};

/// Regions that a list is in, and bytes of each.
const REGIONS: u32 = 2;
const REGION_BYTES: usize = 1 << 20;
/// Most segments of a list.
const SEGMENTS_MAX: u32 = 9;

fn foreign_arena(lists: u32) -> Result<Arc<Arena>, String> {
    let regions: Result<Vec<_>, _> =
        (0..REGIONS).map(|_| Mapping::new_file(REGION_BYTES).map(|(region, _)| region)).collect();
    let regions = regions.map_err(|e| format!("memory of others: {e}"))?;
    Ok(Arena::foreign(regions, lists, SEGMENTS_MAX as usize))
}

/// Segments of `len` bytes in all, at random places that lie apart, as the device wants them.
fn segments(rig: &mut Rig, len: u32) -> Vec<Segment> {
    let info = rig.device.info();
    let alignment = info.memory_alignment_bytes.max(1);
    // A device that asks for no alignment takes any segments.
    let grain = if alignment == 1 { 1 } else { info.logical_block_bytes };
    let count = rig.rng.u32(1..=SEGMENTS_MAX).min(len / grain);
    let mut ends: Vec<u32> = (1..count).map(|_| rig.rng.u32(1..len / grain) * grain).collect();
    ends.push(len);
    ends.sort_unstable();
    ends.dedup();
    // Each has a stripe of its own in some region, in any order.
    let stripe_bytes = (REGION_BYTES as u32 / SEGMENTS_MAX) & !4095;
    let mut stripes: Vec<u32> = (0..SEGMENTS_MAX).collect();
    rig.rng.shuffle(&mut stripes);
    let mut start = 0;
    ends.iter()
        .zip(stripes)
        .map(|(end, stripe)| {
            let len_bytes = end - start;
            start = *end;
            let places = (stripe_bytes - len_bytes) / alignment;
            let at = stripe * stripe_bytes + rig.rng.u32(0..=places) * alignment;
            Segment { region: rig.rng.u32(0..REGIONS), offset_bytes: at.into(), len_bytes }
        })
        .collect()
}

/// What is written from a list reads back into another and into a block, and the other way round.
pub(crate) fn lists_of_segments(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let lists = foreign_arena(2)?;
    // Once with the memory announced, once without.
    for announced in [true, false] {
        let mut line = open(&rig.device, rig.depth(), 1, None)?;
        if announced {
            let arenas = vec![line.arena.clone(), lists.clone()];
            let options = ChannelOptions { depth: rig.depth(), arenas, wake: None };
            line.channel =
                rig.device.open_channel(&options).map_err(|e| format!("open_channel: {e}"))?;
        }
        for _ in 0..rig.options.rounds / 10 {
            one_round(rig, &mut line, &lists)?;
        }
    }
    Ok(Pass::Passed)
}

fn one_round(rig: &mut Rig, line: &mut Line, lists: &Arc<Arena>) -> Result<(), String> {
    let (offset, len) = rig.range();
    let lease = || lists.lease().ok_or("a list did not come back");
    let bytes = rig.bytes(len);
    if rig.rng.bool() {
        line.write(offset, &bytes)?;
    } else {
        let mut list = lease()?;
        list.fill(segments(rig, len)).map_err(|e| format!("{e}"))?;
        list.copy_from(0, &bytes);
        line.succeed(Request::write(offset, len, list, 1))?;
    }
    line.expect(offset, &bytes)?;
    // A part of it, into the middle of a list: what lies around stays.
    let block = rig.block();
    let part = rig.rng.u32(1..=len / block) * block;
    let skip = rig.rng.u32(0..=(len - part) / block) * block;
    let mut list = lease()?;
    list.fill(segments(rig, len)).map_err(|e| format!("{e}"))?;
    list.copy_from(0, &vec![0x5A; len as usize]);
    let mut request = Request::read(offset + u64::from(skip), part, list, 2);
    request.buffer_offset_bytes = skip;
    let list = line.succeed(request)?.buffer.ok_or("no buffer")?;
    let mut found = vec![0; len as usize];
    list.copy_to(0, &mut found);
    let (from, to) = (skip as usize, (skip + part) as usize);
    same(offset, &found[from..to], &bytes[from..to])?;
    let untouched = found[..from].iter().chain(&found[to..]).all(|byte| *byte == 0x5A);
    ensure(untouched, || format!("a read of {part} into a list at {skip} touched bytes around it"))
}

/// Lists that are too short, or do not lie as the device wants, are refused, and come back.
pub(crate) fn lists_that_are_wrong(rig: &mut Rig) -> CheckResult {
    let block = rig.block();
    let alignment = rig.device.info().memory_alignment_bytes;
    let lists = foreign_arena(1)?;
    let mut line = rig.open(1, None)?;
    let segment = |offset_bytes, len_bytes| Segment { region: 0, offset_bytes, len_bytes };
    let mut wrong = vec![vec![], vec![segment(0, block - 1)], vec![segment(0, 1), segment(8, 2)]];
    if alignment > 1 {
        wrong.push(vec![segment(1, block)]);
        wrong.push(vec![segment(0, block / 2), segment(4096, block / 2)]);
    }
    for segments in wrong {
        let mut list = lists.lease().ok_or("a list did not come back")?;
        list.fill(segments.clone()).map_err(|e| format!("{e}"))?;
        let completion = line.run(Request::read(0, block, list, 3))?;
        let kind = completion.result.err().map(|error| error.kind);
        ensure(kind == Some(ErrorKind::Invalid), || format!("{segments:?}: {kind:?}"))?;
    }
    Ok(Pass::Passed)
}
