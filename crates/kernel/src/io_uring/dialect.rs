//! What the entries of a ring say, and to what.

use std::sync::Arc;
use std::time::Duration;

use io_uring::{cqueue, squeue};
use qpair_block::{
    Arena, ArenaOptions, ChannelOptions, DeviceInfo, Error, ErrorKind, IoChannel, IoError, Request,
    Result, WaitOptions,
};

use super::poll_queues::Reach;
use super::ring::Ring;
use crate::in_flight::Transfer;
use crate::mode::Mode;

/// Waits without a time-out that may end with nothing before the ring is taken for broken.
const EMPTY_WAITS_MAX: u32 = 100;

/// The language of a ring: the kernel's own operations on a file, or a drive's commands.
///
/// It makes the entries of one ring, and keeps what they name besides the transfer's memory.
pub(crate) trait Dialect: Sized + 'static {
    /// What requests go to.
    type Target: 'static;
    /// The kind of entries.
    type Submission: squeue::EntryMarker + From<squeue::Entry> + 'static;
    /// The kind of completions.
    type Completion: cqueue::EntryMarker + 'static;
    /// Only a first request tells whether the kernel speaks it.
    const UNPROVEN: bool;
    /// It takes transfers of several pieces.
    const TAKES_VECTORS: bool;

    /// Registers target and memory with `ring` as `mode` asks.
    fn new(
        ring: &Ring<Self::Submission, Self::Completion>,
        target: &Self::Target,
        mode: &Mode,
        options: &ChannelOptions,
    ) -> Result<Self>;

    /// What is registered, in words for reports.
    fn words(&self) -> &str;

    /// What the target can do.
    fn limits(target: &Self::Target) -> &DeviceInfo;

    /// The target's size now.
    fn size_bytes(target: &Self::Target) -> u64;

    /// The result of a request that the target need not see: it is wrong, or there is nothing to do.
    fn answer(target: &Self::Target, request: &Request)
    -> Option<std::result::Result<(), IoError>>;

    /// To be called before a transfer's first entry is made: its memory may have to be registered.
    fn prepare(&mut self, ring: &Ring<Self::Submission, Self::Completion>, transfer: &Transfer);

    /// The entry for (a first part of the rest of) a transfer. It names memory of the transfer's, and of `self` that stays as
    /// it is until the slot's next entry.
    fn encode(&mut self, transfer: Transfer, slot: u64) -> Self::Submission;

    /// What a completion's result says: bytes moved, or a negative errno.
    fn result(&self, result: i32) -> i64;

    /// Which reads and writes of the target can be polled for.
    ///
    /// # Errors
    /// Why none can, and the way out.
    fn reach(target: &Self::Target) -> Result<Reach>;

    /// Why a first read was refused.
    fn refused(target: &Self::Target, mode: &Mode, cause: IoError) -> Error;

    /// Gives up on what entries name without freeing it.
    fn leak(&mut self) {}
}

/// Reads the first block of a device into registered memory, if there is some; what came of it. Some file systems and drivers
/// say only then what they cannot do.
pub(super) fn read_once(
    channel: &mut dyn IoChannel,
    limits: &DeviceInfo,
    size_bytes: u64,
    registered: Option<&Arc<Arena>>,
) -> Result<std::result::Result<(), IoError>> {
    let block_bytes = limits.logical_block_bytes;
    if size_bytes < u64::from(block_bytes) {
        return Ok(Ok(()));
    }
    let arena = match registered {
        Some(arena) => arena.clone(),
        None => Arena::new((block_bytes as usize).max(4096), 1, ArenaOptions::ordinary_pages())
            .map_err(|cause| Error::os(cause, "memory for a first read"))?,
    };
    let Some(buffer) = arena.lease() else { return Ok(Ok(())) };
    if channel.submit(Request::read(0, block_bytes, buffer, 0)).is_err() {
        return Err(Error::new(ErrorKind::Busy, "a new channel that takes no request"));
    }
    let mut completions = Vec::with_capacity(1);
    let options = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
    let mut empty_handed = 0;
    while channel.in_flight() > 0 {
        if channel.wait(&mut completions, options) == 0 {
            empty_handed += 1;
            if empty_handed > EMPTY_WAITS_MAX {
                return Err(Error::new(ErrorKind::Io, "the kernel does not wait for completions"));
            }
        }
    }
    Ok(completions.pop().map_or(Ok(()), |completion| completion.result))
}
