//! `io_uring`: the channel, its ring, and the memory registered with it.

mod buffers;
mod channel;
mod ring;

use std::sync::Arc;

use qpair_block::{ChannelOptions, IoChannel, Result};

use crate::file::File;

/// Sets up a ring and takes it down: what it can do, in words for reports.
pub(crate) fn check() -> Result<String> {
    ring::Ring::new(8).map(|ring| ring.mode().to_owned())
}

/// Opens a channel.
pub(crate) fn open(file: Arc<File>, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
    Ok(Box::new(channel::Channel::open(file, options)?))
}
