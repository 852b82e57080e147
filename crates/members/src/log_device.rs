//! Attaches a log device to a store: checks that it fits and has room for the logs of all workers,
//! and creates its superblock.

use std::sync::Arc;

use qpair_block::BlockDevice;
use qpair_format::superblock::{LogReference, SUPERBLOCK_BYTES, Superblock};
use qpair_format::{Error, ErrorKind, Result};

use crate::log_superblock::LogSuperblock;
use crate::refusal::other_moment;

/// The number of segments that each worker's log needs to continue until a checkpoint frees some:
/// the current one, two to continue in, and a spare one.
pub const SEGMENTS_PER_WORKER: u64 = 4;

/// A log device that fits the store, before the store is open.
#[derive(Debug)]
pub struct Attached {
    pub device: Arc<dyn BlockDevice>,
    /// The superblock that is on the device, or that [`Attached::write_new_superblock`] will write.
    pub superblock: LogSuperblock,
}

impl Attached {
    /// Writes the superblock of a device that has become a log device.
    pub fn write_new_superblock(&self) -> Result<()> {
        self.superblock.write_new(self.device.as_ref())
    }

    /// Checks that the device can hold the logs of a store that was not closed. It must have been
    /// attached when each log's incarnation began, and must not have been used in a later one.
    ///
    /// # Errors
    /// `Member`.
    pub fn fits(&self, store_name: &str, superblock: &Superblock, logs: &[Vec<u8>]) -> Result<()> {
        match self.superblock.generation <= superblock.generation
            && self.superblock.is_as_new_as(logs)
        {
            true => Ok(()),
            false => Err(other_moment(store_name, &self.device.info().name)),
        }
    }
}

pub(crate) fn refuse_read_only(device: &dyn BlockDevice) -> Result<()> {
    match device.info().read_only {
        false => Ok(()),
        true => Err(Error::new(
            ErrorKind::ReadOnly,
            format!("the log device {} cannot be written", device.info().name),
        )),
    }
}

/// Makes room for the logs of all workers.
///
/// # Errors
/// `NoSpace` if there is too little.
pub fn make_room(device: &dyn BlockDevice, segment_bytes: u64, workers: u64) -> Result<()> {
    let least_bytes = SUPERBLOCK_BYTES + workers * SEGMENTS_PER_WORKER * segment_bytes;
    if device.size_bytes() >= least_bytes {
        return Ok(());
    }
    device.grow(least_bytes).map_err(|error| {
        let (name, size_bytes) = (&device.info().name, device.size_bytes());
        Error::with_hint(
            ErrorKind::NoSpace,
            format!(
                "the log device {name} has {size_bytes} bytes, too few for the logs of {workers} workers, and cannot grow: {error}"
            ),
            format!("it needs at least {least_bytes} bytes; fewer workers need less"),
        )
    })
}

/// Refuses a device that has no room for a superblock.
pub(crate) fn refuse_too_small(device: &dyn BlockDevice) -> Result<()> {
    if device.size_bytes() < SUPERBLOCK_BYTES
        && let Err(error) = device.grow(SUPERBLOCK_BYTES)
    {
        return Err(Error::block(error, "reserving space for the superblock of a log device"));
    }
    Ok(())
}

/// Makes the superblock name a log device.
pub(crate) fn attach(
    device: &Arc<dyn BlockDevice>,
    own: LogSuperblock,
    superblock: &mut Superblock,
) -> Result<Attached> {
    if own.generation > superblock.generation {
        // The store is older than its log device, and was closed. A new incarnation must not have
        // the number of one that wrote to the device, because the old chunks would count. Nor may
        // the next superblock overwrite the one that counts.
        let same_slot = own.generation.is_multiple_of(2) == superblock.generation.is_multiple_of(2);
        superblock.generation = own.generation + u64::from(!same_slot);
    }
    superblock.log = Some(LogReference { id: own.id, name: device.info().name.clone() });
    Ok(Attached { device: device.clone(), superblock: own })
}

pub(crate) fn attach_new(
    device: &Arc<dyn BlockDevice>,
    superblock: &mut Superblock,
) -> Result<Attached> {
    let attached = appoint(device, superblock)?;
    attached.write_new_superblock()?;
    Ok(attached)
}

/// Makes the superblock name a new log device, whose own superblock is not written yet.
pub(crate) fn appoint(
    device: &Arc<dyn BlockDevice>,
    superblock: &mut Superblock,
) -> Result<Attached> {
    let mut id = [0; 16];
    fastrand::fill(&mut id);
    let own = LogSuperblock {
        store_id: superblock.store_id,
        id,
        generation: superblock.generation,
        created_s: superblock.created_s,
        unfinished: superblock.unfinished,
    };
    attach(device, own, superblock)
}
