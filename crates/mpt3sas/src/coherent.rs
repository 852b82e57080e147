//! Memory that the controller has for as long as it is driven: frames, sense buffers, reply queues,
//! reply frames.
//!
//! Invariant: the memory is open to the function from before the controller is initialised until
//! after it was reset for the last time. Each part of it belongs to the holder of its block's
//! lease.

use qpair_memory::locks::Mutex;
use std::sync::{Arc, MutexGuard};

use qpair_block::{Arena, ArenaOptions, Buffer, Error, ErrorKind, Result};
use qpair_mpi_wire::descriptor::DESCRIPTOR_BYTES;
use qpair_mpi_wire::init::{CAPABILITY_RDPQ, FLAG_RDPQ, Facts, RDPQ_ENTRY_BYTES};
use qpair_pci::{Maps, QueueMemory};

use crate::chains::Chains;
use crate::replies::ReplyPool;

/// The number of frames in a block, and of sense buffers.
pub(crate) const FRAMES: u16 = 32;
/// Bytes from one sense buffer to the next.
pub(crate) const SENSE_STRIDE: usize = 128;
/// The maximum number of entries of a reply queue. It bounds the commands of one channel in flight,
/// with room for late ones.
const REPLY_ENTRIES_MAX: u32 = 4096;
/// The maximum number of requests in flight that the driver uses.
const CREDIT_MAX: u16 = 8192;
/// The number of reply frames for events, in addition to those for requests.
const SPARE_FRAMES: u32 = 64;
/// The number of commands in flight whose lists can have segments.
const CHAINED: u32 = 32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) frame_bytes: u32,
    pub(crate) blocks: u32,
    pub(crate) queues: u8,
    pub(crate) reply_entries: u32,
    pub(crate) reply_bytes: u32,
    reply_frames: u32,
    pub(crate) chains: Chains,
    pub(crate) version: u16,
    /// Whether the controller takes the addresses of reply queues by a list.
    has_list: bool,
}

impl Sizes {
    pub(crate) fn new(facts: &Facts, queues_max: u8, name: &str) -> Result<Self> {
        let wrong = |what: String| Error::new(ErrorKind::Unsupported, format!("{name}: {what}"));
        let frame_bytes = facts.frame_bytes;
        if !frame_bytes.is_power_of_two() || !(128..=1024).contains(&frame_bytes) {
            return Err(wrong(format!("it has request frames of {frame_bytes} bytes")));
        }
        let blocks = u32::from(facts.credit.min(CREDIT_MAX) / FRAMES);
        if blocks < 2 {
            return Err(wrong(format!(
                "it grants a credit of {} requests, which is too little",
                facts.credit
            )));
        }
        let queues = facts.vectors.min(queues_max);
        if queues < 2 {
            let context = wrong(format!("{} reply queues are too few", facts.vectors));
            return Err(context.hint("the driver needs one for itself, and each channel one"));
        }
        let entries_max = u32::from(facts.reply_queue_entries_max).min(REPLY_ENTRIES_MAX);
        if entries_max < 64 {
            return Err(wrong(format!("it has reply queues of {entries_max} entries")));
        }
        let reply_bytes = facts.reply_bytes;
        if !(0x44..=1024).contains(&reply_bytes) {
            return Err(wrong(format!("it has reply frames of {reply_bytes} bytes")));
        }
        Ok(Self {
            frame_bytes,
            blocks,
            queues,
            // Use the largest power of two.
            reply_entries: 1 << entries_max.ilog2(),
            reply_bytes,
            reply_frames: blocks * u32::from(FRAMES) + SPARE_FRAMES,
            chains: Chains::new(facts),
            version: facts.version,
            has_list: facts.capabilities & CAPABILITY_RDPQ != 0,
        })
    }

    pub(crate) fn depth_max(&self) -> u32 {
        let frames = (self.blocks - 1) * u32::from(FRAMES);
        // One queue must not use all frames, so that others get some.
        (self.reply_entries / 2).min(frames / 2).max(1)
    }
}

pub(crate) struct Coherent {
    pub(crate) sizes: Sizes,
    pub(crate) frames: Arc<Arena>,
    pub(crate) frames_iova: u64,
    pub(crate) sense: Arc<Arena>,
    pub(crate) sense_iova: u64,
    pub(crate) replies: Arc<Arena>,
    replies_iova: u64,
    pub(crate) pool_iova: u64,
    /// The segments of lists: a block for each command that needs some.
    pub(crate) chains: Arc<Arena>,
    pub(crate) chains_iova: u64,
    /// The list of addresses of reply queues, for a controller that takes a list.
    reply_list: Option<QueueMemory>,
    pool_arena: Arc<Arena>,
    pool: Mutex<ReplyPool>,
    maps: Arc<Maps>,
}

impl Coherent {
    pub(crate) fn new(maps: &Arc<Maps>, sizes: Sizes) -> Result<Self> {
        let new = |block: usize, count: u32| {
            let shared = maps.needs_shared_memory();
            let options = ArenaOptions { shared, ..ArenaOptions::ordinary_pages() };
            Arena::new(block, count, options).map_err(|cause| {
                Error::os(
                    cause,
                    format!("allocating {count} x {block} bytes of memory for a controller"),
                )
            })
        };
        let frames = new(usize::from(FRAMES) * sizes.frame_bytes as usize, sizes.blocks)?;
        let sense = new(usize::from(FRAMES) * SENSE_STRIDE, sizes.blocks)?;
        let replies = new(sizes.reply_entries as usize * DESCRIPTOR_BYTES, sizes.queues.into())?;
        let pool_bytes = ReplyPool::bytes_of(sizes.reply_frames, sizes.reply_bytes);
        let pool_arena = new(pool_bytes.next_power_of_two(), 1)?;
        let chains = new(sizes.chains.block_bytes().next_power_of_two().max(512), CHAINED)?;
        let opened = Opened { maps, arenas: Vec::new() };
        let (opened, frames_iova) = opened.and(&frames)?;
        let (opened, sense_iova) = opened.and(&sense)?;
        let (opened, replies_iova) = opened.and(&replies)?;
        let (opened, pool_iova) = opened.and(&pool_arena)?;
        let (opened, chains_iova) = opened.and(&chains)?;
        // One upper half serves sixteen queues of a list; all of them lie together here.
        for (what, iova, arena) in [
            ("sense buffers", sense_iova, &sense),
            ("reply frames", pool_iova, &pool_arena),
            ("reply queues", replies_iova, &replies),
        ] {
            let last = iova + (arena.mapped_bytes() as u64 - 1);
            if iova >> 32 != last >> 32 {
                let context = format!("{what} at {iova:#x} cross a boundary of 4 GiB");
                return Err(Error::new(ErrorKind::Limit, context)
                    .hint("the controller takes one upper half of an address for all of them"));
            }
        }
        let reply_list = match sizes.has_list {
            true => Some(reply_list(maps, replies_iova, &sizes)?),
            false => None,
        };
        let memory = lease(&pool_arena)?;
        let pool = ReplyPool::new(memory, pool_iova as u32, sizes.reply_frames, sizes.reply_bytes);
        opened.keep();
        Ok(Self {
            sizes,
            frames,
            frames_iova,
            sense,
            sense_iova,
            replies,
            replies_iova,
            pool_iova,
            chains,
            chains_iova,
            reply_list,
            pool_arena,
            pool: Mutex::new(pool),
            maps: maps.clone(),
        })
    }

    /// Returns the address of the reply queues, and the flag that says whether it is that of a
    /// list.
    pub(crate) fn reply_queues(&self) -> (u64, u8) {
        match &self.reply_list {
            Some(list) => (list.iova(), FLAG_RDPQ),
            None => (self.replies_iova, 0),
        }
    }

    pub(crate) fn pool(&self) -> MutexGuard<'_, ReplyPool> {
        self.pool.lock()
    }
}

impl Drop for Coherent {
    fn drop(&mut self) {
        for arena in [&self.frames, &self.sense, &self.replies, &self.pool_arena, &self.chains] {
            self.maps.close(arena);
        }
    }
}

fn reply_list(maps: &Arc<Maps>, replies_iova: u64, sizes: &Sizes) -> Result<QueueMemory> {
    let queues = usize::from(sizes.queues);
    let mut list = QueueMemory::new(maps, queues * RDPQ_ENTRY_BYTES)?;
    let queue_bytes = u64::from(sizes.reply_entries) * DESCRIPTOR_BYTES as u64;
    for queue in 0..queues {
        let memory = list.bytes();
        memory.store_u64(queue * RDPQ_ENTRY_BYTES, replies_iova + queue as u64 * queue_bytes);
        memory.store_u64(queue * RDPQ_ENTRY_BYTES + 8, 0);
    }
    Ok(list)
}

/// Arenas opened for a value that is being made. They are closed again if that fails.
struct Opened<'a> {
    maps: &'a Maps,
    arenas: Vec<Arc<Arena>>,
}

impl Opened<'_> {
    fn and(mut self, arena: &Arc<Arena>) -> Result<(Self, u64)> {
        let iova = self.maps.open(arena)?;
        self.arenas.push(arena.clone());
        Ok((self, iova))
    }

    fn keep(mut self) {
        self.arenas.clear();
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        for arena in &self.arenas {
            self.maps.close(arena);
        }
    }
}

pub(crate) fn lease(arena: &Arc<Arena>) -> Result<Buffer> {
    arena
        .lease()
        .ok_or_else(|| Error::new(ErrorKind::Limit, "the memory for a controller is all in use"))
}
