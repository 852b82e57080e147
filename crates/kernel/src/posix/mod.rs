//! `posix`: synchronous calls, made by a few threads of each channel so that more than one can be under way.

mod channel;
mod pool;

use std::sync::Arc;

use qpair_block::{ChannelOptions, IoChannel, Result};

use crate::file::File;

/// Threads of one channel at most. A thread is worth about one request in flight; more of them cost more in
/// switches than drives give back.
const THREADS_MAX: u32 = 16;

/// Opens a channel.
pub(crate) fn open(file: Arc<File>, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
    Ok(Box::new(channel::Channel::open(file, options)?))
}

/// Opens a channel and drops it: its mode, in words for reports.
pub(crate) fn try_open(file: Arc<File>, options: &ChannelOptions) -> Result<String> {
    channel::Channel::open(file, options)?;
    Ok(format!("synchronous pread and pwrite on up to {THREADS_MAX} threads a channel"))
}
