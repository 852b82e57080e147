//! The kind of entries that a ring carries: file operations or NVMe commands.

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

/// The number of consecutive waits without a time-out that may return nothing before the ring is
/// considered broken.
const EMPTY_WAITS_MAX: u32 = 100;

/// The language of a ring: the kernel's own operations on a file, or a drive's commands.
///
/// A dialect makes the entries of one ring, and keeps the memory that they name in addition to the
/// transfer's.
pub(crate) trait Dialect: Sized + 'static {
    type Target: 'static;
    type Submission: squeue::EntryMarker + From<squeue::Entry> + 'static;
    type Completion: cqueue::EntryMarker + 'static;
    /// Whether only a first request can show that the kernel supports the dialect.
    const UNPROVEN: bool;
    const TAKES_VECTORS: bool;

    /// Registers the target and memory with `ring`, as `mode` says.
    fn new(
        ring: &Ring<Self::Submission, Self::Completion>,
        target: &Self::Target,
        mode: &Mode,
        options: &ChannelOptions,
    ) -> Result<Self>;

    fn words(&self) -> &str;

    fn limits(target: &Self::Target) -> &DeviceInfo;

    fn size_bytes(target: &Self::Target) -> u64;

    /// Returns the result of a request that need not reach the target, because it is invalid or has
    /// no effect.
    fn answer(target: &Self::Target, request: &Request)
    -> Option<std::result::Result<(), IoError>>;

    /// Prepares a transfer before its first entry is made: its memory may have to be registered.
    fn prepare(&mut self, ring: &Ring<Self::Submission, Self::Completion>, transfer: &Transfer);

    /// Returns the entry for the first part of (the rest of) a transfer. The entry names memory of
    /// the transfer, and memory of `self` that stays unchanged until the slot's next entry.
    fn encode(&mut self, transfer: Transfer, slot: u64) -> Self::Submission;

    /// Converts a completion's result to bytes moved, or a negative errno.
    fn result(&self, result: i32) -> i64;

    /// Returns the reads and writes of the target that can be polled.
    ///
    /// # Errors
    /// The reason why none can be polled, with a hint.
    fn reach(target: &Self::Target) -> Result<Reach>;

    fn refused(target: &Self::Target, mode: &Mode, cause: IoError) -> Error;

    /// Leaks the memory that entries name instead of freeing it.
    fn leak(&mut self) {}
}

/// Reads the first block of a device, into registered memory if possible, and returns the result.
/// Some file systems and drivers report a missing feature only at this point.
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
            .map_err(|cause| Error::os(cause, "allocating memory for a first read"))?,
    };
    let Some(buffer) = arena.lease() else { return Ok(Ok(())) };
    if channel.submit(Request::read(0, block_bytes, buffer, 0)).is_err() {
        return Err(Error::new(ErrorKind::Busy, "a new channel refused a request"));
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
