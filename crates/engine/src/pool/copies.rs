//! Memory beside the frames, in which checkpoints copy pages.

use std::sync::Arc;

use qpair_block::{Arena, DeviceInfo};
use qpair_format::{Error, ErrorKind, Result};

/// The maximum number of bytes written at once.
const EXTENT_BYTES: usize = 256 << 10;
/// The number of extents of one worker that are being filled or written.
const EXTENTS: u32 = 4;
/// The part of the frames that the extents of all workers may have beside them.
const FRAMES_PART: usize = 8;

/// Memory in which checkpoints copy pages. It is mapped when the store is opened, because a
/// checkpoint that found no memory would make the store read-only.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// The memory of each worker, for its stage.
    stages: Vec<Arc<Arena>>,
    /// The memory for pages beside the trees, used by one checkpoint at a time.
    beside: Option<Arc<Arena>>,
}

impl Copies {
    /// # Errors
    /// `NoMemory`.
    pub(crate) fn new(
        device: &DeviceInfo,
        page_size: usize,
        frames: u32,
        workers: usize,
    ) -> Result<Self> {
        let most = (EXTENT_BYTES / page_size)
            .min(device.transfer_bytes_max as usize / page_size)
            .min(frames as usize / FRAMES_PART / EXTENTS as usize / workers)
            .max(1);
        let map = |bytes, blocks| {
            Arena::new(bytes, blocks, device.arena_options()).map_err(|error| {
                Error::new(ErrorKind::NoMemory, format!("mapping memory for checkpoints: {error}"))
            })
        };
        let extent_bytes = page_size << most.ilog2();
        Ok(Self {
            stages: (0..workers).map(|_| map(extent_bytes, EXTENTS)).collect::<Result<_>>()?,
            beside: Some(map(extent_bytes, EXTENTS)?),
        })
    }

    pub(crate) fn of_worker(&self, worker: usize) -> Result<&Arc<Arena>> {
        self.stages.get(worker).ok_or_else(none)
    }

    pub(crate) fn beside(&self) -> Result<&Arc<Arena>> {
        self.beside.as_ref().ok_or_else(none)
    }
}

/// Returns the error of a read-only store, which has no memory for checkpoints.
fn none() -> Error {
    Error::new(ErrorKind::ReadOnly, "the store was opened for reading only and takes no checkpoint")
}
