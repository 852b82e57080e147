//! `io_uring`: the channel, its ring, and the memory registered with it.

mod buffers;
mod channel;
mod ring;

use std::sync::Arc;

use qpair_block::{ChannelOptions, IoChannel, Result};

use crate::file::File;

/// Sets up a ring and takes it down.
pub(crate) fn check() -> Result<()> {
    ring::Ring::new(8).map(drop)
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
    use super::ring::{Ring, SetUp};
    use crate::device::tests::conform;

    #[test]
    fn every_set_up_conforms() {
        for set_up in SetUp::ALL {
            for min_wait in [true, false] {
                conform(move |file, options| {
                    let ring = Ring::with(Channel::entries(options), &[*set_up], min_wait)?;
                    Ok(Box::new(Channel::on(ring, file, options)?))
                });
            }
        }
    }
}
