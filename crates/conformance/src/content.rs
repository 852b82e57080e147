//! Checks that reads return the data that was written.

use std::collections::HashMap;

use qpair_block::{ChannelOptions, IoError, Request};

use crate::rig::{Line, Rig, arena, ensure, same};
use crate::{CheckResult, Pass};

/// Fills the region with known bytes, and returns them: the model.
fn fill(rig: &mut Rig, line: &mut Line) -> Result<Vec<u8>, String> {
    let model = rig.bytes(rig.region() as u32);
    let step = rig.len_max() as usize;
    for (number, chunk) in model.chunks(step).enumerate() {
        line.write((number * step) as u64, chunk)?;
    }
    Ok(model)
}

pub(crate) fn read_back_random(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let mut line = rig.open(1, None)?;
    let mut model = fill(rig, &mut line)?;
    for _ in 0..rig.options.rounds {
        let (offset, len) = rig.range();
        let range = offset as usize..offset as usize + len as usize;
        if rig.rng.bool() {
            let bytes = rig.bytes(len);
            line.write(offset, &bytes)?;
            model[range].copy_from_slice(&bytes);
        } else {
            line.expect(offset, &model[range])?;
        }
    }
    Ok(Pass::Passed)
}

/// Checks many requests in flight together, on ranges that do not overlap, that complete in any
/// order.
pub(crate) fn read_back_in_flight(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let depth = rig.depth();
    let mut line = rig.open(depth, None)?;
    let mut model = fill(rig, &mut line)?;
    // Each lane has its own slice of the region, so requests in flight do not overlap.
    let lane_bytes = (rig.region() / u64::from(depth)).min(u64::from(rig.len_max()));
    let lane_blocks = lane_bytes as u32 / rig.block();
    if lane_blocks == 0 {
        return Ok(Pass::Skipped("the region is smaller than one block per request".into()));
    }
    let mut reads = HashMap::new();
    for round in 0..u64::from(rig.options.rounds / 8) {
        for lane in 0..u64::from(depth) {
            let first = rig.rng.u32(0..lane_blocks);
            let len = rig.rng.u32(1..=lane_blocks - first) * rig.block();
            let offset = lane * u64::from(lane_blocks * rig.block())
                + u64::from(first) * u64::from(rig.block());
            let (start, tag) = (offset as usize, round << 32 | lane);
            let mut buffer = line.lease()?;
            if rig.rng.bool() {
                let bytes = rig.bytes(len);
                buffer.copy_from(0, &bytes);
                model[start..start + len as usize].copy_from_slice(&bytes);
                line.submit(Request::write(offset, len, buffer, tag))?;
            } else {
                buffer.bytes_mut().zero(0, len as usize);
                reads.insert(tag, (offset, len));
                line.submit(Request::read(offset, len, buffer, tag))?;
            }
        }
        line.drain()?;
        for completion in line.completions.drain(..) {
            completion.result.map_err(|e| format!("{:?}: {e}", completion.op))?;
            if let Some((offset, len)) = reads.remove(&completion.tag) {
                let buffer = completion.buffer.ok_or("a read without its buffer")?;
                let (start, len) = (offset as usize, len as usize);
                same(offset, &buffer.as_slice()[..len], &model[start..start + len])?;
            }
        }
        ensure(reads.is_empty(), || format!("{} reads never came back", reads.len()))?;
    }
    Ok(Pass::Passed)
}

pub(crate) fn largest_transfer(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let block = rig.block();
    let limit = rig.device.info().transfer_bytes_max;
    let len = limit.min(4 << 20).min(rig.region() as u32) / block * block;
    let arena = arena(len.next_power_of_two() as usize, 2)?;
    let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
    let channel = rig.device.open_channel(&options).map_err(|e| format!("open_channel: {e}"))?;
    let mut line = Line { channel, arena, completions: Vec::new() };
    let bytes = rig.bytes(len);
    line.write(0, &bytes)?;
    line.expect(0, &bytes)?;
    if limit < 4 << 20 {
        // A request that is one block longer must be refused, not truncated.
        let over = limit / block * block + block;
        let arena = crate::rig::arena(over.next_power_of_two() as usize, 1)?;
        let buffer = arena.lease().ok_or("no buffer")?;
        let completion = line.run(Request::read(0, over, buffer, 1))?;
        ensure(completion.result == Err(IoError::INVALID), || {
            format!("{over} bytes, over the limit of {limit}: {:?}", completion.result)
        })?;
    }
    Ok(Pass::Passed)
}

pub(crate) fn last_block(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let mut line = rig.open(1, None)?;
    let bytes = rig.bytes(rig.block());
    let offset = rig.device.size_bytes() - u64::from(rig.block());
    line.write(offset, &bytes)?;
    line.expect(offset, &bytes)?;
    Ok(Pass::Passed)
}

/// Checks that requests can use the middle of a buffer, and that the bytes around it do not change.
pub(crate) fn buffer_offset(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let mut line = rig.open(1, None)?;
    let alignment = rig.device.info().memory_alignment_bytes.max(1);
    let half = rig.len_max() / 2 / rig.block() * rig.block();
    if half == 0 {
        return Ok(Pass::Skipped("a buffer holds no two requests".into()));
    }
    for _ in 0..rig.options.rounds / 8 {
        let len = rig.rng.u32(1..=half / rig.block()) * rig.block();
        let places = (crate::rig::BUFFER_BYTES - len) / alignment;
        let at = rig.rng.u32(0..=places) * alignment;
        let (from, to) = (at as usize, (at + len) as usize);
        let bytes = rig.bytes(len);
        let mut buffer = line.lease()?;
        buffer.copy_from(from, &bytes);
        let mut request = Request::write(0, len, buffer, 1);
        request.buffer_offset_bytes = at;
        let mut buffer = line.succeed(request)?.buffer.ok_or("no buffer")?;
        let around = 0x5A;
        buffer.copy_from(0, &vec![around; crate::rig::BUFFER_BYTES as usize]);
        let mut request = Request::read(0, len, buffer, 2);
        request.buffer_offset_bytes = at;
        let buffer = line.succeed(request)?.buffer.ok_or("no buffer")?;
        let all = buffer.as_slice();
        same(0, &all[from..to], &bytes)?;
        let untouched = all[..from].iter().chain(&all[to..]).all(|byte| *byte == around);
        ensure(untouched, || format!("a read of {len} to {at} touched bytes around it"))?;
    }
    Ok(Pass::Passed)
}

pub(crate) fn unregistered_arena(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let mut line = rig.open(1, None)?;
    line.arena = arena(crate::rig::BUFFER_BYTES as usize, 1)?;
    let bytes = rig.bytes(rig.len_max());
    line.write(0, &bytes)?;
    line.expect(0, &bytes)?;
    Ok(Pass::Passed)
}

pub(crate) fn force_unit_access(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let mut line = rig.open(1, None)?;
    let bytes = rig.bytes(rig.block());
    let mut buffer = line.lease()?;
    buffer.copy_from(0, &bytes);
    let mut request = Request::write(0, rig.block(), buffer, 1);
    request.force_unit_access = true;
    drop(line.succeed(request)?);
    line.expect(0, &bytes)?;
    Ok(Pass::Passed)
}

/// Checks that a device with atomic writes executes them and refuses those that could be torn, and
/// that any other device refuses all of them.
pub(crate) fn atomic_write(rig: &mut Rig) -> CheckResult {
    if let Some(skip) = rig.unwritable() {
        return Ok(skip);
    }
    let mut line = rig.open(2, None)?;
    let info = rig.device.info();
    let (min, max) = (info.atomic_write_bytes_min, info.atomic_write_bytes);
    let (block, len_max, region) = (rig.block(), rig.len_max(), rig.region());
    let mut answer = |offset_bytes: u64, len_bytes: u32, bytes: &[u8]| {
        let mut buffer = line.lease()?;
        buffer.copy_from(0, bytes);
        let mut request = Request::write(offset_bytes, len_bytes, buffer, 1);
        request.atomic = true;
        let result = line.run(request)?.result;
        if result.is_ok() && rig.options.keeps_content {
            line.expect(offset_bytes, bytes)?;
        }
        Ok::<_, String>(result)
    };
    let mut expect = |offset_bytes: u64, len_bytes: u32, wanted: Result<(), IoError>| {
        let bytes = vec![len_bytes as u8 ^ 0x5A; len_bytes as usize];
        let found = answer(offset_bytes, len_bytes, &bytes)?;
        ensure(found == wanted, || {
            format!("an atomic write of {len_bytes} at {offset_bytes}: {found:?}, not {wanted:?}")
        })
    };
    if max == 0 {
        expect(0, block, Err(IoError::UNSUPPORTED))?;
        return Ok(Pass::Passed);
    }
    ensure(min.is_power_of_two() && min >= block && min <= max, || {
        format!("atomic writes of {min} to {max} bytes, in blocks of {block}")
    })?;
    let largest = 1 << max.min(len_max).ilog2();
    if min > len_max {
        return Ok(Pass::Skipped("the region is too small".into()));
    }
    expect(0, min, Ok(()))?;
    expect(0, largest, Ok(()))?;
    if u64::from(largest) * 2 <= region {
        expect(u64::from(largest), largest, Ok(()))?;
    }
    if 3 * block <= len_max {
        expect(0, 3 * block, Err(IoError::INVALID))?;
    }
    if largest > block && u64::from(largest + block) <= region {
        expect(block.into(), largest, Err(IoError::INVALID))?;
    }
    let over = 2 << max.ilog2();
    if over <= len_max {
        expect(0, over, Err(IoError::INVALID))?;
    }
    Ok(Pass::Passed)
}

pub(crate) fn flush(rig: &mut Rig) -> CheckResult {
    let mut line = rig.open(1, None)?;
    line.succeed(Request::flush(1))?;
    if !rig.device.info().read_only {
        let bytes = rig.bytes(rig.block());
        line.write(0, &bytes)?;
        line.succeed(Request::flush(2))?;
        if rig.options.keeps_content {
            line.expect(0, &bytes)?;
        }
    }
    Ok(Pass::Passed)
}

/// Discards or zeroes the middle third of a range, and checks the data around it.
fn punch(rig: &mut Rig, zeroes: bool) -> CheckResult {
    if let Some(skip) = rig.forgetful() {
        return Ok(skip);
    }
    let mut line = rig.open(1, None)?;
    let third = rig.len_max() / 3 / rig.block() * rig.block();
    if third == 0 {
        return Ok(Pass::Skipped("the region is too small".into()));
    }
    let bytes = rig.bytes(3 * third);
    line.write(0, &bytes)?;
    let request = match zeroes {
        true => Request::write_zeroes(u64::from(third), third, 1),
        false => Request::discard(u64::from(third), third, 1),
    };
    let op = request.op;
    let info = rig.device.info();
    let is_known = if zeroes { info.writes_zeroes } else { info.discards };
    let result = line.run(request)?.result;
    let third = third as usize;
    if result == Err(IoError::UNSUPPORTED) {
        line.expect(0, &bytes)?;
        return Ok(Pass::Skipped(format!("{op:?} is not supported")));
    }
    if !is_known {
        return Err(format!("{op:?}: {result:?} of a device that says that it does not know it"));
    }
    result.map_err(|e| format!("{op:?}: {e}"))?;
    line.expect(0, &bytes[..third])?;
    line.expect(2 * third as u64, &bytes[2 * third..])?;
    if zeroes {
        line.expect(third as u64, &vec![0; third])?;
    }
    line.write(third as u64, &bytes[..third])?;
    line.expect(third as u64, &bytes[..third])?;
    Ok(Pass::Passed)
}

pub(crate) fn discard(rig: &mut Rig) -> CheckResult {
    punch(rig, false)
}

pub(crate) fn write_zeroes(rig: &mut Rig) -> CheckResult {
    punch(rig, true)
}
