//! A device that reports other limits than the device below it.

use std::sync::Arc;

use qpair_block::{BlockDevice, ChannelOptions, DeviceInfo, IoChannel, Result};

/// A device like the one below it, with other reported properties: it takes less at once, wants
/// memory aligned, or supports fewer operations.
#[derive(Debug)]
pub(crate) struct Narrow {
    pub(crate) info: DeviceInfo,
    pub(crate) inner: Arc<dyn BlockDevice>,
}

impl BlockDevice for Narrow {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.inner.grow(size_bytes)
    }

    /// A counter that the layers above must not invent.
    fn resets(&self) -> u64 {
        3
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        self.inner.open_channel(options)
    }
}
