//! Checks that errors of a request are reported in its completion.

use qpair_block::{ErrorKind, Op, Request};

use crate::rig::{BUFFER_BYTES, Rig, ensure};
use crate::{CheckResult, Pass};

pub(crate) fn invalid_requests(rig: &mut Rig) -> CheckResult {
    let mut line = rig.open(1, None)?;
    let (block, size) = (rig.block(), rig.device.size_bytes());
    let one = u64::from(block);
    let alignment = rig.device.info().memory_alignment_bytes;
    let mut cases = vec![
        ("at the end", size, block, 0),
        ("across the end", size - one, 2 * block, 0),
        ("far past the end", u64::MAX / one * one, block, 0),
        ("off the grid", 1, block, 0),
        ("off the grid at the end", size - one + 1, block, 0),
        ("odd length", 0, block + 1, 0),
        ("no length", 0, 0, 0),
        ("past the buffer", 0, block, BUFFER_BYTES),
        ("far past the buffer", 0, block, u32::MAX / alignment * alignment),
    ];
    if alignment > 1 {
        cases.push(("misaligned memory", 0, block, 1));
    }
    let ops: &[Op] = match rig.device.info().read_only {
        true => &[Op::Read],
        false => &[Op::Read, Op::Write],
    };
    for op in ops {
        for &(name, offset_bytes, len_bytes, buffer_offset_bytes) in &cases {
            let mut request = Request::read(offset_bytes, len_bytes, line.lease()?, 5);
            request.op = *op;
            request.buffer_offset_bytes = buffer_offset_bytes;
            let completion = line.run(request)?;
            let invalid = completion.result.is_err_and(|e| e.kind == ErrorKind::Invalid);
            ensure(invalid, || format!("{op:?} {name} is {:?}", completion.result))?;
        }
        let mut request = Request::flush(6);
        (request.op, request.len_bytes) = (*op, block);
        let result = line.run(request)?.result;
        let invalid = result.is_err_and(|e| e.kind == ErrorKind::Invalid);
        ensure(invalid, || format!("{op:?} without a buffer is {result:?}"))?;
    }
    Ok(Pass::Passed)
}

pub(crate) fn read_only_refuses_writes(rig: &mut Rig) -> CheckResult {
    if !rig.device.info().read_only {
        return Ok(Pass::Skipped("the device can be written".into()));
    }
    let mut line = rig.open(1, None)?;
    let block = rig.block();
    let before = line.read(0, block)?;
    let write = Request::write(0, block, line.lease()?, 1);
    let zeroes = Request::write_zeroes(0, block, 2);
    for request in [write, zeroes, Request::discard(0, block, 3)] {
        let op = request.op;
        let result = line.run(request)?.result;
        let refused = result.is_err_and(|e| {
            e.kind == ErrorKind::ReadOnly || (op != Op::Write && e.kind == ErrorKind::Unsupported)
        });
        ensure(refused, || format!("{op:?} on a read-only device is {result:?}"))?;
    }
    line.succeed(Request::flush(4))?;
    if rig.options.keeps_content {
        line.expect(0, &before)?;
    }
    Ok(Pass::Passed)
}
