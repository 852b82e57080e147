//! `libaio`, Linux asynchronous I/O: the channel and the kernel's context under it.

mod channel;
mod context;

use std::sync::Arc;

use qpair_block::{ChannelOptions, IoChannel, Result};

use crate::file::File;
use crate::mode::Mode;

pub(crate) fn check() -> Result<()> {
    context::Context::new(1).map(drop)
}

pub(crate) fn try_open(file: Arc<File>, mode: &Mode, options: &ChannelOptions) -> Result<String> {
    Ok(channel::Channel::open(file, mode, options)?.mode())
}

pub(crate) fn open(
    file: Arc<File>,
    mode: &Mode,
    options: &ChannelOptions,
) -> Result<Box<dyn IoChannel>> {
    Ok(Box::new(channel::Channel::open(file, mode, options)?))
}
