//! The memory of a hall for the data of requests.

use std::sync::Arc;

use qpair_block::{Arena, Buffer, Error, Result};

/// The size in bytes of a small block, and the number of them in a hall.
pub(crate) const SMALL_BYTES: u32 = 16 << 10;
const SMALLS: u32 = 512;
/// The same for large blocks. A longer request is carried out in parts of this size.
pub(crate) const LARGE_BYTES: u32 = 256 << 10;
const LARGES: u32 = 64;

/// Blocks of two sizes. The system gives memory to those that were in use.
#[derive(Debug)]
pub(crate) struct Pool {
    small: Arc<Arena>,
    large: Arc<Arena>,
}

impl Pool {
    pub(crate) fn new(shared: bool) -> Result<Self> {
        let options =
            qpair_block::ArenaOptions { shared, ..qpair_block::ArenaOptions::ordinary_pages() };
        let arena = |bytes: u32, count| {
            Arena::new(bytes as usize, count, options)
                .map_err(|cause| Error::os(cause, "allocating memory for clients"))
        };
        Ok(Self { small: arena(SMALL_BYTES, SMALLS)?, large: arena(LARGE_BYTES, LARGES)? })
    }

    pub(crate) fn arenas(&self) -> [Arc<Arena>; 2] {
        [self.small.clone(), self.large.clone()]
    }

    /// Returns a block for a part of `len_bytes`, at most [`LARGE_BYTES`]; `None` if none is free.
    pub(crate) fn lease(&self, len_bytes: u32) -> Option<Buffer> {
        let small = if len_bytes <= SMALL_BYTES { self.small.lease() } else { None };
        small.or_else(|| self.large.lease())
    }
}
