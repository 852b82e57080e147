//! Whether a device is blank, before something is made there.
//!
//! Labels and superblocks of others lie near the beginning (btrfs' at 64 KiB, a store's own pages behind its superblocks) or the end (ZFS,
//! RAIDs, the second GPT). What lies in between is not looked at: a device of terabytes would be read for hours.

use std::ops::Range;

use crate::device::BlockDevice;
use crate::error::Result;
use crate::serial::SerialChannel;

/// Bytes at the beginning that are looked at, and as many at the end.
const EDGE_BYTES: u64 = 1 << 20;

/// Where the first byte is that is not zero, in the first or the last MiB of a device; none: it is blank, as far as can be told.
///
/// # Errors
/// What the device says.
pub fn find_content(device: &dyn BlockDevice) -> Result<Option<u64>> {
    let size_bytes = device.size_bytes();
    let block_bytes = u64::from(device.info().logical_block_bytes);
    let end_at = size_bytes.saturating_sub(EDGE_BYTES) / block_bytes * block_bytes;
    let head = 0..size_bytes.min(EDGE_BYTES);
    find_in(device, [head.clone(), end_at.max(head.end)..size_bytes])
}

/// Where the first byte is that is not zero, anywhere on a device, all of which is read; none: it is blank.
///
/// # Errors
/// What the device says.
pub fn find_content_anywhere(device: &dyn BlockDevice) -> Result<Option<u64>> {
    let size_bytes = device.size_bytes();
    let pieces = (0..size_bytes).step_by(EDGE_BYTES as usize);
    find_in(device, pieces.map(|start| start..size_bytes.min(start + EDGE_BYTES)))
}

fn find_in(
    device: &dyn BlockDevice,
    ranges: impl IntoIterator<Item = Range<u64>>,
) -> Result<Option<u64>> {
    let mut channel = SerialChannel::open(device)?;
    let mut bytes = Vec::new();
    for range in ranges {
        bytes.resize((range.end - range.start) as usize, 0);
        channel.read(range.start, &mut bytes)?;
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some(range.start + at as u64));
        }
    }
    Ok(None)
}
