//! `libaio`, Linux asynchronous I/O: the channel and the kernel's context under it.

mod channel;
mod context;

use std::sync::Arc;

use qpair_block::{ChannelOptions, IoChannel, Result};

use crate::file::File;
use crate::mode::Mode;

/// Sets up a context and destroys it, to find out whether libaio works.
pub(crate) fn check() -> Result<()> {
    context::Context::new(1).map(drop)
}

/// Opens a channel and drops it. Returns its mode in words, for reports.
pub(crate) fn try_open(file: Arc<File>, mode: &Mode, options: &ChannelOptions) -> Result<String> {
    Ok(channel::Channel::open(file, mode, options)?.mode())
}

/// Opens a channel.
pub(crate) fn open(
    file: Arc<File>,
    mode: &Mode,
    options: &ChannelOptions,
) -> Result<Box<dyn IoChannel>> {
    Ok(Box::new(channel::Channel::open(file, mode, options)?))
}
