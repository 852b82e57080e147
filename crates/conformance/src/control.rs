//! The control plane: limits, depths, growing.

use std::sync::Arc;

use qpair_block::{ChannelOptions, ErrorKind};

use crate::rig::{Rig, ensure};
use crate::{CheckResult, Pass};

pub(crate) fn limits_are_sane(rig: &mut Rig) -> CheckResult {
    let info = rig.device.info();
    let block = info.logical_block_bytes;
    ensure(block.is_power_of_two() && block >= 512, || format!("logical block of {block} bytes"))?;
    let alignment = info.memory_alignment_bytes;
    ensure(alignment.is_power_of_two(), || format!("memory alignment of {alignment} bytes"))?;
    let transfer = info.transfer_bytes_max;
    ensure(transfer >= block, || format!("transfers of {transfer} bytes, blocks of {block}"))?;
    ensure(info.depth_max >= 1, || "no depth".into())?;
    let size = rig.device.size_bytes();
    ensure(size > 0 && size.is_multiple_of(u64::from(block)), || format!("size of {size} bytes"))?;
    ensure(!info.name.is_empty() && !info.interface.is_empty(), || "no name".into())?;
    Ok(Pass::Passed)
}

pub(crate) fn depth_limits_are_kept(rig: &mut Rig) -> CheckResult {
    let open = |depth| rig.device.open_channel(&ChannelOptions { depth, ..Default::default() });
    ensure(open(0).is_err(), || "opened a channel of depth 0".into())?;
    open(1).map_err(|e| format!("depth 1: {e}"))?;
    let Some(over) = rig.device.info().depth_max.checked_add(1) else {
        return Ok(Pass::Skipped("no depth is over the limit".into()));
    };
    match open(over) {
        Ok(_) => Err(format!("opened a channel of depth {over}, one over the limit")),
        Err(error) if error.kind() == ErrorKind::Limit => Ok(Pass::Passed),
        Err(error) => Err(format!("depth over the limit is {:?}, not Limit", error.kind())),
    }
}

pub(crate) fn grow(rig: &mut Rig) -> CheckResult {
    let device = Arc::clone(&rig.device);
    let old = device.size_bytes();
    device.grow(old).map_err(|e| format!("growing to the size it has: {e}"))?;
    if !device.info().growable {
        return match device.grow(u64::MAX) {
            Ok(()) => Err("grew though it says it cannot".into()),
            Err(_) if device.size_bytes() != old => Err("failed to grow and changed size".into()),
            Err(_) => Ok(Pass::Skipped("the device has a fixed size".into())),
        };
    }
    if let Some(skip) = rig.unwritable() {
        return Ok(skip);
    }
    let grow_bytes = rig.options.grow_bytes;
    if grow_bytes == 0 {
        return Ok(Pass::Skipped("the options grow by nothing".into()));
    }
    // The channel is opened before the device grows, so the channel must notice.
    let mut line = rig.open(1, None)?;
    let bytes = rig.bytes(rig.block());
    line.write(0, &bytes)?;
    device.grow(old + grow_bytes).map_err(|e| format!("grow: {e}"))?;
    let new = device.size_bytes();
    ensure(new >= old + grow_bytes, || format!("{old} grew to {new}"))?;
    let last = rig.bytes(rig.block());
    line.write(old, &bytes)?;
    line.write(new - u64::from(rig.block()), &last)?;
    if rig.options.keeps_content {
        for offset in [0, old] {
            line.expect(offset, &bytes)?;
        }
        line.expect(new - u64::from(rig.block()), &last)?;
    }
    device.grow(old).map_err(|e| format!("growing to less: {e}"))?;
    ensure(device.size_bytes() == new, || "grow made it smaller".into())?;
    Ok(Pass::Passed)
}
