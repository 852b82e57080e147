//! Whether a device is blank, before a store or its log is made there.
//!
//! Labels and superblocks of others lie near the beginning (btrfs' at 64 KiB, a store's own pages behind its labels) or the end (ZFS, RAIDs,
//! the second GPT). What lies in between is not looked at: a device of terabytes would be read for hours.

use std::sync::Arc;

use qpair_block::{BlockDevice, Request};

use super::labels::read_slots;
use super::log_device::{LOG_LABEL_MAGIC, is_log_of};
use super::offline::{open_channel, transfer_arena, wait};
use super::superblock::{LABEL_BYTES, SLOT_OFFSETS, StoreState, Superblock};
use crate::error::{Error, ErrorKind, Result};

/// Bytes at the beginning that are looked at, and as many at the end.
const EDGE_BYTES: u64 = 1 << 20;

/// Looks for what may be of use to somebody on devices where a store is to be made: the first of them that has anything, and where. What the
/// making of a store has left that did not come to its end counts as nothing, since nobody can open it, and nothing that was acknowledged is
/// in it.
///
/// # Errors
/// What the device says, and `Version` for the label of a later version.
pub fn find_foreign<'a>(
    members: &'a [Arc<dyn BlockDevice>],
    log_device: Option<&'a Arc<dyn BlockDevice>>,
) -> Result<Option<(&'a Arc<dyn BlockDevice>, u64)>> {
    let mut first = None;
    for (index, member) in members.iter().enumerate() {
        let label = label_of(member.as_ref())?;
        if index == 0 {
            first = label.clone().filter(|label| label.unfinished);
        }
        // The first member's label is the last to say that the store is whole.
        let is_left = label.is_some_and(|label| {
            let closes = first.as_ref().is_some_and(|first| {
                label.store_id == first.store_id
                    && label.state == StoreState::Clean
                    && label.generation == first.generation + 1
            });
            label.unfinished || closes
        });
        if !is_left && let Some(at_bytes) = find_content(member.as_ref())? {
            return Ok(Some((member, at_bytes)));
        }
    }
    // A log device is given its label after the members.
    if let Some(device) = log_device
        && let Some(at_bytes) = find_content(device.as_ref())?
        && !is_log_of(device.as_ref(), first.as_ref())?
    {
        return Ok(Some((device, at_bytes)));
    }
    Ok(None)
}

/// The newest label of a device; none if it has none, or one that cannot be read, which may be newer.
fn label_of(device: &dyn BlockDevice) -> Result<Option<Superblock>> {
    if device.size_bytes() < LABEL_BYTES {
        return Ok(None);
    }
    let (slots, unread) = read_slots(device)?;
    let newest = Superblock::newest(&slots, &device.info().name)?;
    Ok(newest.filter(|_| unread.is_none()))
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
