//! Finds out whether a device is blank before something is created there.
//!
//! Foreign labels and superblocks lie near the beginning (btrfs at 64 KiB, the pages of a store
//! behind its superblocks) or near the end (ZFS, RAID, the second GPT). The middle is not read,
//! because that would take hours on a device of terabytes.

use std::ops::Range;

use crate::channel::serial::SerialChannel;
use crate::seam::device::BlockDevice;
use crate::seam::error::Result;

/// The number of bytes that are read at the beginning, and at the end.
const EDGE_BYTES: u64 = 1 << 20;

/// Returns the offset of the first byte that is not zero in the first and the last MiB of a device.
/// Returns `None` if there is no such byte: the device is then taken to be blank.
///
/// # Errors
/// Returns the device's error if a read fails.
pub fn find_content(device: &dyn BlockDevice) -> Result<Option<u64>> {
    let size_bytes = device.size_bytes();
    let block_bytes = u64::from(device.info().logical_block_bytes);
    let end_at = size_bytes.saturating_sub(EDGE_BYTES) / block_bytes * block_bytes;
    let head = 0..size_bytes.min(EDGE_BYTES);
    find_in(device, [head.clone(), end_at.max(head.end)..size_bytes])
}

/// Reads all of a device and returns the offset of the first byte that is not zero, or `None` if
/// the device is blank.
///
/// # Errors
/// Returns the device's error if a read fails.
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
