//! A device whose content is encrypted: the control plane.

use std::sync::Arc;

use qpair_block as block;
use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ByteLocks, ChannelOptions, DeviceInfo, IoChannel,
};
use qpair_format::page::TAG_BYTES;
use qpair_format::{Error, ErrorKind, Result};

use crate::channel::EncryptedChannel;
use crate::cipher::Cipher;

/// The largest request in bytes; a write is copied as a whole.
const TRANSFER_BYTES_MAX: u32 = 256 << 10;
/// The number of larger writes of a channel that are under way.
const LARGE_WRITES: u32 = 8;
/// The number of writes of one unit of a channel that are under way.
const SMALL_WRITES: u32 = 256;

/// A member of an encrypted store, or its log device.
///
/// Behind the superblocks the device consists of units, each with its tag in the last bytes.
/// Requests there are for whole units. Readers get zeroes in the place of the tag. A unit that only
/// has zeroes was never written and is read as such; any other unit that was not encrypted for its
/// place begins with [`NOT_AUTHENTIC`](qpair_format::page::NOT_AUTHENTIC), and has zeroes.
#[derive(Debug)]
pub(crate) struct EncryptedDevice {
    info: DeviceInfo,
    inner: Arc<dyn BlockDevice>,
    cipher: Arc<Cipher>,
    index: u32,
    unit_bytes: u32,
}

impl EncryptedDevice {
    pub(crate) fn new(
        inner: Arc<dyn BlockDevice>,
        cipher: Arc<Cipher>,
        index: u32,
        unit_bytes: u32,
    ) -> Result<Self> {
        let below = inner.info();
        let most = below.transfer_bytes_max.clamp(1, TRANSFER_BYTES_MAX);
        let transfer_bytes_max = 1 << most.ilog2();
        if unit_bytes > transfer_bytes_max || unit_bytes < below.logical_block_bytes {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "encrypted pages of {unit_bytes} bytes do not fit {}, whose blocks have {} bytes",
                    below.name, below.logical_block_bytes
                ),
            ));
        }
        debug_assert!(unit_bytes.is_power_of_two() && unit_bytes as usize > TAG_BYTES);
        let mode = format!("encrypted; {}", below.mode);
        let info = DeviceInfo { mode, transfer_bytes_max, ..below.clone() };
        Ok(Self { info, inner, cipher, index, unit_bytes })
    }

    /// Creates the memory that writes are encrypted into.
    fn arena(&self, block_bytes: u32, count: u32) -> block::Result<Arc<Arena>> {
        let shared = self.info.shared_memory;
        let options = ArenaOptions { shared, ..ArenaOptions::ordinary_pages() };
        Arena::new(block_bytes as usize, count, options).map_err(|cause| {
            let what = format!("allocating memory for encrypted writes to {}", self.info.name);
            block::Error::os(cause, what)
        })
    }
}

impl BlockDevice for EncryptedDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn grow(&self, size_bytes: u64) -> block::Result<()> {
        self.inner.grow(size_bytes)
    }

    fn shrinks(&self) -> bool {
        self.inner.shrinks()
    }

    fn shrink(&self, size_bytes: u64) -> block::Result<()> {
        self.inner.shrink(size_bytes)
    }

    fn removed(&self) -> Option<String> {
        self.inner.removed()
    }

    fn byte_locks(&self) -> Option<Arc<dyn ByteLocks>> {
        self.inner.byte_locks()
    }

    fn reset(&self) -> block::Result<()> {
        self.inner.reset()
    }

    fn resets(&self) -> u64 {
        self.inner.resets()
    }

    fn open_channel(&self, options: &ChannelOptions) -> block::Result<Box<dyn IoChannel>> {
        let small = self.arena(self.unit_bytes, options.depth.min(SMALL_WRITES))?;
        let large = self.arena(self.info.transfer_bytes_max, options.depth.min(LARGE_WRITES))?;
        let mut below = options.clone();
        below.arenas.extend([small.clone(), large.clone()]);
        Ok(Box::new(EncryptedChannel::new(
            self.inner.open_channel(&below)?,
            (self.cipher.clone(), self.index, self.unit_bytes),
            (small, large),
            options.depth,
        )))
    }
}
