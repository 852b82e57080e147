//! Blocks through which parts of requests are copied.
//!
//! A channel that splits requests makes parts that begin at any logical block. If the memory
//! alignment is larger than that, a part may lack the alignment that its device needs.

use std::collections::VecDeque;
use std::sync::Arc;

use qpair_memory::{Arena, Buffer};

use crate::seam::device::{ChannelOptions, DeviceInfo};
use crate::seam::error::{Error, Result};

/// The maximum size of a block in bytes.
const BLOCK_BYTES_MAX: u32 = 64 << 10;
/// The maximum number of blocks of a channel; further requests wait for a block.
const BLOCKS_MAX: u32 = 8;

/// The blocks of a channel, and the requests that wait for one.
pub(crate) struct Bounces {
    blocks: Arc<Arena>,
    waiting: VecDeque<u64>,
}

impl Bounces {
    /// Creates blocks for a channel over devices like this. Returns `None` if parts of its requests
    /// always have the alignment that the devices need.
    ///
    /// # Errors
    /// `Limit` if there is no memory.
    pub(crate) fn new(info: &DeviceInfo, options: &ChannelOptions) -> Result<Option<Self>> {
        let alignment = info.memory_alignment_bytes;
        if alignment <= info.logical_block_bytes {
            return Ok(None);
        }
        let bytes = 1 << info.transfer_bytes_max.min(BLOCK_BYTES_MAX).ilog2();
        // A block is aligned to its own size.
        let bytes = alignment.max(bytes) as usize;
        let blocks = Arena::new(bytes, options.depth.min(BLOCKS_MAX), info.arena_options())
            .map_err(|cause| {
                Error::os(cause, format!("allocating bounce buffers for {}", info.name))
            })?;
        Ok(Some(Self { blocks, waiting: VecDeque::with_capacity(options.depth as usize) }))
    }

    /// Returns the memory, to be registered with the devices.
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.blocks
    }

    /// Returns a block for a part of the request in `slot`. If all blocks are in use, the request
    /// waits for one.
    pub(crate) fn lease(&mut self, slot: u64) -> Option<Buffer> {
        let block = self.blocks.lease();
        if block.is_none() {
            self.waiting.push_back(slot);
        }
        block
    }

    /// Returns the request that has waited longest, once a block was returned.
    pub(crate) fn next(&mut self) -> Option<u64> {
        self.waiting.pop_front()
    }
}
