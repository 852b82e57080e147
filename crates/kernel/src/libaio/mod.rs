//! `libaio`, Linux asynchronous I/O: the channel and the kernel's context under it.

mod channel;
mod context;

use std::sync::Arc;

use qpair_block::{ChannelOptions, IoChannel, Result};

use crate::file::File;

/// Sets up a context and takes it down.
pub(crate) fn check() -> Result<()> {
    context::Context::new(1).map(drop)
}

/// Opens a channel and drops it: its mode, in words for reports.
pub(crate) fn try_open(file: Arc<File>, options: &ChannelOptions) -> Result<String> {
    Ok(channel::Channel::open(file, options)?.mode())
}

/// Opens a channel.
pub(crate) fn open(file: Arc<File>, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
    Ok(Box::new(channel::Channel::open(file, options)?))
}

#[cfg(test)]
mod tests {
    use super::channel::Channel;
    use crate::device::tests::conform;

    #[test]
    fn conforms_without_the_mapped_ring() {
        conform(|file, options| {
            let mut channel = Channel::open(file, options)?;
            channel.ignore_ring();
            Ok(Box::new(channel))
        });
    }
}
