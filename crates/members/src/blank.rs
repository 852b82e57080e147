//! Finds out whether a device holds data before a store or its log is created there.

use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_format::superblock::{SLOT_OFFSETS, SUPERBLOCK_BYTES, StoreState, Superblock};
use qpair_format::{Error, Result};

use crate::log_superblock::{LOG_SUPERBLOCK_MAGIC, is_left};
use crate::superblocks::read_slots;

/// Looks for useful content on devices where a store is to be created. Returns the first device
/// with such content, and the content's offset. The remains of an unfinished creation of a store do
/// not count: no process can open such a store, and nothing in it was acknowledged.
///
/// # Errors
/// Returns the device's error if a read fails, and `Version` for the superblock of a later version.
pub fn find_foreign<'a>(
    members: &'a [Arc<dyn BlockDevice>],
    log_device: Option<&'a Arc<dyn BlockDevice>>,
) -> Result<Option<(&'a Arc<dyn BlockDevice>, u64)>> {
    let mut first = None;
    for (index, member) in members.iter().enumerate() {
        let superblock = superblock_of(member.as_ref())?;
        if index == 0 {
            first = superblock.clone().filter(|superblock| superblock.unfinished);
        }
        // The first member's superblock is the last one that is written when the store is complete.
        let is_left_there = superblock.is_some_and(|superblock| {
            let closes = first.as_ref().is_some_and(|first| {
                superblock.store_id == first.store_id
                    && superblock.state == StoreState::Clean
                    && superblock.generation == first.generation + 1
            });
            superblock.unfinished || closes
        });
        if !is_left_there && let Some(at_bytes) = find_content(member.as_ref())? {
            return Ok(Some((member, at_bytes)));
        }
    }
    if let Some(device) = log_device
        && let Some(at_bytes) = find_content(device.as_ref())?
        && !is_left(device.as_ref(), first.as_ref())?
    {
        return Ok(Some((device, at_bytes)));
    }
    Ok(None)
}

/// Whether the superblock of a member or of the log device says that a store is still being created
/// there (`unfinished`).
///
/// # Errors
/// As [`find_foreign`].
pub fn is_being_made(
    members: &[Arc<dyn BlockDevice>],
    log_device: Option<&Arc<dyn BlockDevice>>,
) -> Result<bool> {
    for member in members {
        if superblock_of(member.as_ref())?.is_some_and(|superblock| superblock.unfinished) {
            return Ok(true);
        }
    }
    log_device.map_or(Ok(false), |device| is_left(device.as_ref(), None))
}

/// Returns the newest superblock of a device. Returns `None` if there is none, or if one that may
/// be newer cannot be read.
fn superblock_of(device: &dyn BlockDevice) -> Result<Option<Superblock>> {
    if device.size_bytes() < SUPERBLOCK_BYTES {
        return Ok(None);
    }
    let (slots, unread) = read_slots(device)?;
    let newest = Superblock::newest(&slots, &device.info().name)?;
    Ok(newest.filter(|_| unread.is_none()))
}

/// The offsets in bytes of the two superblocks of a member or of a log device. One of the two may
/// be damaged.
pub const SUPERBLOCK_OFFSETS: [u64; 2] = SLOT_OFFSETS;

/// Whether `bytes` begin with the superblock of a store or of a log device.
#[must_use]
pub fn is_superblock(bytes: &[u8]) -> bool {
    bytes.starts_with(&Superblock::MAGIC) || bytes.starts_with(&LOG_SUPERBLOCK_MAGIC)
}

/// Returns the offset of the first byte that is not zero in the first and the last MiB of a device.
/// Returns `None` if there is no such byte: the device is then taken to be blank.
///
/// # Errors
/// Returns the device's error if a read fails.
pub fn find_content(device: &dyn BlockDevice) -> Result<Option<u64>> {
    let looking = || format!("reading what is on {}", device.info().name);
    qpair_block::find_content(device).map_err(|error| Error::block(error, looking()))
}
