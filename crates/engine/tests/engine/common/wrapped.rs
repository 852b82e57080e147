//! A wrapper around a device, whose channels a test defines.

use std::fmt;

use qpair_block::{BlockDevice, ChannelOptions, DeviceInfo, IoChannel};

use super::Device;

/// Makes a channel from one of the wrapped device.
type Wrap = Box<dyn Fn(Box<dyn IoChannel>, &ChannelOptions) -> Box<dyn IoChannel> + Send + Sync>;

pub(crate) struct Wrapped {
    pub(crate) below: Device,
    pub(crate) wrap: Wrap,
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.below.fmt(f)
    }
}

impl BlockDevice for Wrapped {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn grow(&self, size_bytes: u64) -> qpair_block::Result<()> {
        self.below.grow(size_bytes)
    }

    fn open_channel(&self, options: &ChannelOptions) -> qpair_block::Result<Box<dyn IoChannel>> {
        Ok((self.wrap)(self.below.open_channel(options)?, options))
    }
}
