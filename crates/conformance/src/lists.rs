//! Checks lists of segments in foreign memory.

use std::os::fd::AsFd;
use std::sync::Arc;

use qpair_block::{Arena, BlockDevice, ChannelOptions, ErrorKind, Mapping, Request, Segment};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::rig::{BUFFER_BYTES, Line, Rig, ensure, open, same};
use crate::{CheckResult, Pass};

/// The number of regions of a list, and the bytes of each.
const REGIONS: u32 = 2;
const REGION_BYTES: usize = 1 << 20;
const PAGE_BYTES: u32 = 4096;
/// The maximum number of segments of a list.
const SEGMENTS_MAX: u32 = 9;

fn foreign_arena(lists: u32) -> Result<Arc<Arena>, String> {
    let region = |_| {
        let (_, file) = Mapping::new_file(REGION_BYTES)?;
        Mapping::of_lasting_file(file.as_fd(), 0, REGION_BYTES)
    };
    let regions: Result<Vec<_>, std::io::Error> = (0..REGIONS).map(region).collect();
    let regions = regions.map_err(|e| format!("memory of others: {e}"))?;
    Ok(Arena::foreign(regions, lists, SEGMENTS_MAX as usize))
}

/// Returns random segments of `len` bytes in all that do not overlap, aligned as the device
/// requires. Half of the lists consist of whole pages: only the first segment begins inside a page,
/// and only the last ends in one.
fn segments(rig: &mut Rig, len: u32) -> Vec<Segment> {
    let info = rig.device.info();
    let alignment = info.memory_alignment_bytes.max(1);
    let unit = info.logical_block_bytes.max(alignment);
    let in_pages = rig.rng.bool();
    let grain = match in_pages {
        true => unit.max(PAGE_BYTES),
        // A device without an alignment requirement accepts any segments.
        false if alignment == 1 => 1,
        false => info.logical_block_bytes,
    };
    // The offset of the first segment in its grain.
    let skip = if in_pages { rig.rng.u32(0..grain / unit) * unit } else { 0 };
    let end = skip + len;
    let cuts = (end - 1) / grain;
    let count = rig.rng.u32(0..SEGMENTS_MAX).min(cuts);
    let mut ends: Vec<u32> = (0..count).map(|_| rig.rng.u32(1..=cuts) * grain).collect();
    ends.push(end);
    ends.sort_unstable();
    ends.dedup();
    // Each segment has its own stripe of a region; the stripes are in random order.
    let stripe_bytes = (REGION_BYTES as u32 / SEGMENTS_MAX) & !4095;
    let mut stripes: Vec<u32> = (0..SEGMENTS_MAX).collect();
    rig.rng.shuffle(&mut stripes);
    let mut start = skip;
    ends.iter()
        .zip(stripes)
        .map(|(end, stripe)| {
            let len_bytes = end - start;
            let (step, inside) =
                if in_pages { (unit.max(PAGE_BYTES), start % grain) } else { (alignment, 0) };
            start = *end;
            let places = (stripe_bytes - inside - len_bytes) / step;
            let at = stripe * stripe_bytes + rig.rng.u32(0..=places) * step + inside;
            Segment { region: rig.rng.u32(0..REGIONS), offset_bytes: at.into(), len_bytes }
        })
        .collect()
}

/// Checks that data written from a list can be read into another list and into one block, and vice
/// versa.
pub(crate) fn lists_of_segments(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let lists = foreign_arena(2)?;
    // Once with the memory announced, once without.
    for announced in [true, false] {
        let mut line = open(&rig.device, rig.depth(), 1, None)?;
        if announced {
            announce(&rig.device, rig.depth(), &mut line, &lists)?;
        }
        for _ in 0..rig.options.rounds / 10 {
            one_round(rig, &mut line, &lists)?;
        }
    }
    Ok(Pass::Passed)
}

/// Opens the line's channel again, for lists as well.
fn announce(
    device: &Arc<dyn BlockDevice>,
    depth: u32,
    line: &mut Line,
    lists: &Arc<Arena>,
) -> Result<(), String> {
    let arenas = vec![line.arena.clone(), lists.clone()];
    let options = ChannelOptions { depth, arenas, wake: None };
    line.channel = device.open_channel(&options).map_err(|e| format!("open_channel: {e}"))?;
    Ok(())
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
    // Read a part of the data into the middle of a list: the bytes around it must not change. If
    // the part is not aligned as the device requires, it must be refused.
    let block = rig.block();
    let part = rig.rng.u32(1..=len / block) * block;
    let skip = rig.rng.u32(0..=(len - part) / block) * block;
    let mut list = lease()?;
    list.fill(segments(rig, len)).map_err(|e| format!("{e}"))?;
    list.copy_from(0, &vec![0x5A; len as usize]);
    let mut request = Request::read(offset + u64::from(skip), part, list, 2);
    request.buffer_offset_bytes = skip;
    if !request.buffer.as_ref().is_some_and(|list| rig.device.info().takes(list, skip, part)) {
        let kind = line.run(request)?.result.err().map(|error| error.kind);
        return ensure(kind == Some(ErrorKind::Invalid), || {
            format!("a part of a list at {skip}, off the alignment: {kind:?}")
        });
    }
    let list = line.succeed(request)?.buffer.ok_or("no buffer")?;
    let mut found = vec![0; len as usize];
    list.copy_to(0, &mut found);
    let (from, to) = (skip as usize, (skip + part) as usize);
    same(offset, &found[from..to], &bytes[from..to])?;
    let untouched = found[..from].iter().chain(&found[to..]).all(|byte| *byte == 0x5A);
    ensure(untouched, || format!("a read of {part} into a list at {skip} touched bytes around it"))
}

/// Checks that lists that are too short or wrongly aligned are refused and given back.
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

/// Takes memory away while requests are in flight. Each request must complete once, and the channel
/// must work on with other memory.
pub(crate) fn memory_that_shrinks(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let os = |what: &str, error: std::io::Error| format!("{what}: {error}");
    let flags = MemfdFlags::CLOEXEC;
    let file = memfd_create("guest", flags).map_err(|e| os("memfd_create", e.into()))?;
    ftruncate(&file, REGION_BYTES as u64).map_err(|e| os("ftruncate", e.into()))?;
    let region = Mapping::of_lasting_file(file.as_fd(), 0, REGION_BYTES)
        .map_err(|e| os("memory of others", e))?;
    let depth = rig.depth();
    let lists = Arena::foreign(vec![region.clone()], depth, SEGMENTS_MAX as usize);
    let mut line = rig.open(1, None)?;
    announce(&rig.device, rig.depth(), &mut line, &lists)?;
    let block = rig.block();
    let len = rig.len_max().min(block.max(PAGE_BYTES)) / block * block;
    // Half of the requests are submitted after the memory is gone.
    for number in 0..depth {
        if number == depth / 2 {
            line.channel.kick();
            ftruncate(&file, 0).map_err(|e| os("ftruncate", e.into()))?;
        }
        let mut list = lists.lease().ok_or("a list did not come back")?;
        let offset_bytes = u64::from(number % 4 * len);
        list.fill([Segment { region: 0, offset_bytes, len_bytes: len }])
            .map_err(|e| os("a list", e))?;
        line.submit(match number % 2 {
            0 => Request::read(0, len, list, number.into()),
            _ => Request::write(0, len, list, number.into()),
        })?;
    }
    line.drain()?;
    let mut tags: Vec<u64> = line.completions.drain(..).map(|it| it.tag).collect();
    tags.sort_unstable();
    ensure(tags.iter().copied().eq(0..depth.into()), || format!("ended: {tags:?}"))?;
    let mut byte = [0];
    region.bytes().copy_to(0, &mut byte);
    ensure(lists.is_cut(), || "nobody saw that the memory went".into())?;
    let bytes = rig.bytes(len);
    line.write(0, &bytes)?;
    line.expect(0, &bytes)?;
    Ok(Pass::Passed)
}

/// Writes from a list of these segments at the device's start, and reads into it. Returns how many
/// of the two requests a driver copied.
///
/// # Errors
/// Returns a description of the failure.
pub fn copied_lists(
    device: &Arc<dyn BlockDevice>,
    region: &Arc<Mapping>,
    segments: &[Segment],
    announced: bool,
) -> Result<u64, String> {
    let lists = Arena::foreign(vec![region.clone()], 1, segments.len());
    let mut line = open(device, 1, 1, None)?;
    if announced {
        announce(device, 1, &mut line, &lists)?;
    }
    let mut list = lists.lease().ok_or("no list")?;
    list.fill(segments.iter().copied()).map_err(|e| format!("{e}"))?;
    let len = list.len();
    let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    list.copy_from(0, &bytes);
    let mut list =
        line.succeed(Request::write(0, len as u32, list, 1))?.buffer.ok_or("no buffer")?;
    let before = line.channel.statistics().copied;
    // Read into memory that may have to be copied as well.
    for (number, part) in bytes.chunks(BUFFER_BYTES as usize).enumerate() {
        line.expect(number as u64 * u64::from(BUFFER_BYTES), part)?;
    }
    let between = line.channel.statistics().copied - before;
    list.copy_from(0, &vec![0xA5; len]);
    let list = line.succeed(Request::read(0, len as u32, list, 2))?.buffer.ok_or("no buffer")?;
    let mut found = vec![0; len];
    list.copy_to(0, &mut found);
    same(0, &found, &bytes)?;
    Ok(line.channel.statistics().copied - between)
}
