//! One region of reserved huge pages for a back end, in place of the arenas of callers.
//!
//! Each channel has a huge page of it: one block for its ring, the others as bounce buffers for
//! requests.

use std::sync::Arc;

use qpair_block::{Arena, ArenaOptions, Buffer, Error, ErrorKind, Result};

/// The bytes of a block: a ring of the greatest depth and its slots fit into one.
pub(super) const BLOCK_BYTES: u32 = 64 << 10;
/// The number of blocks of a channel: those of a huge page of 2 MiB.
const BLOCKS: u32 = 32;
/// The maximum number of channels that there is memory for.
const CHANNELS_MAX: u16 = 8;

/// The region, and the number of channels that it has memory for.
pub(super) struct Region {
    pub(super) arena: Arc<Arena>,
    channels: u16,
}

impl Region {
    pub(super) fn new(name: &str, queues: u16) -> Result<Self> {
        let channels = queues.clamp(1, CHANNELS_MAX);
        let count = BLOCKS * u32::from(channels);
        let options = ArenaOptions::shared_huge_pages();
        let arena = Arena::new(BLOCK_BYTES as usize, count, options)
            .map_err(|cause| Error::os(cause, format!("{name}: mapping memory for memory=huge")))?;
        Ok(Self { arena, channels })
    }

    /// Takes the block for a channel's ring, which must be the first that the channel takes.
    pub(super) fn ring(&self, name: &str) -> Result<Buffer> {
        let block = self.arena.lease();
        block.ok_or_else(|| {
            let channels = self.channels;
            let context = format!("{name}: memory=huge has memory for {channels} channels");
            Error::new(ErrorKind::Limit, context)
                .hint(format!("use at most {channels} workers or jobs"))
        })
    }

    /// Takes a channel's bounce buffers, at most `depth`.
    pub(super) fn bounces(&self, depth: u16) -> Vec<Buffer> {
        let most = (BLOCKS - 1).min(depth.into());
        (0..most).map_while(|_| self.arena.lease()).collect()
    }
}
