//! Whether a device is blank, before a store or its log is made there.
//!
//! Labels and superblocks of others lie near the beginning (btrfs' at 64 KiB, a store's own pages behind its labels) or the end (ZFS, RAIDs,
//! the second GPT). What lies in between is not looked at: a device of terabytes would be read for hours.

use qpair_block::{BlockDevice, Request};

use super::labels::read_slots;
use super::log_device::LOG_LABEL_MAGIC;
use super::offline::{open_channel, transfer_arena, wait};
use super::superblock::{LABEL_BYTES, SLOT_OFFSETS, Superblock};
use crate::error::{Error, ErrorKind, Result};

/// Bytes at the beginning that are looked at, and as many at the end.
const EDGE_BYTES: u64 = 1 << 20;

/// Whether a device has the label of a store that never became one: what was making it, or a repair that was filling it, did not come to
/// its end. Nobody can open it, and nothing that was acknowledged is in it.
///
/// # Errors
/// What the device says, and `Version` for the label of a later version.
pub fn is_unfinished(device: &dyn BlockDevice) -> Result<bool> {
    if device.size_bytes() < LABEL_BYTES {
        return Ok(false);
    }
    let (slots, unread) = read_slots(device)?;
    let newest = Superblock::newest(&slots, &device.info().name)?;
    // The one that cannot be read may be newer.
    Ok(unread.is_none() && newest.is_some_and(|newest| newest.unfinished))
}

/// Where labels are in a member of a store, or in its log device, bytes from the beginning: there are two, and one may be damaged.
pub const LABEL_OFFSETS: [u64; 2] = SLOT_OFFSETS;

/// Whether bytes are the beginning of the label of a store, or of a store's log.
#[must_use]
pub fn is_label(bytes: &[u8]) -> bool {
    bytes.starts_with(&Superblock::MAGIC) || bytes.starts_with(&LOG_LABEL_MAGIC)
}

/// Where the first byte is that is not zero, in the first or the last MiB of a device; none: it is blank, as far as can be told.
///
/// # Errors
/// `NoMemory`, and what the device says.
pub fn find_content(device: &dyn BlockDevice) -> Result<Option<u64>> {
    let (info, size_bytes) = (device.info(), device.size_bytes());
    let block_bytes = u64::from(info.logical_block_bytes);
    let end_at = size_bytes.saturating_sub(EDGE_BYTES) / block_bytes * block_bytes;
    let reading = || format!("looking at what is on {}", info.name);
    let arena = transfer_arena(&[device])?;
    let mut channel = open_channel(device, &arena)?;
    let mut completions = Vec::new();
    let mut at = 0;
    while at < size_bytes {
        let len_bytes = (size_bytes - at).min(arena.block_size() as u64) as u32;
        let Some(buffer) = arena.lease() else {
            return Err(Error::new(ErrorKind::NoMemory, reading()));
        };
        if channel.submit(Request::read(at, len_bytes, buffer, 0)).is_err() {
            return Err(Error::new(ErrorKind::Io, reading()));
        }
        while channel.in_flight() > 0 {
            wait(channel.as_mut(), &mut completions);
        }
        for completion in completions.drain(..) {
            completion.result.map_err(|error| Error::io(error, reading()))?;
            let Some(buffer) = completion.buffer else { continue };
            let read = &buffer.as_slice()[..len_bytes as usize];
            if let Some(byte) = read.iter().position(|byte| *byte != 0) {
                return Ok(Some(at + byte as u64));
            }
        }
        at += u64::from(len_bytes);
        if at >= EDGE_BYTES {
            at = at.max(end_at);
        }
    }
    Ok(None)
}
