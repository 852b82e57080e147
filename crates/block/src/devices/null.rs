//! The null device: completes every request at once and moves no data.

use std::os::fd::BorrowedFd;

use crate::channel::ready::ReadyQueue;
use crate::seam::device::{
    BlockDevice, ChannelOptions, ChannelStatistics, DeviceInfo, IoChannel, WaitOptions,
};
use crate::seam::error::{Error, ErrorKind, Result};
use crate::seam::request::{Completion, Request};
use crate::seam::size::format_bytes;

/// The options of a [`NullDevice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NullOptions {
    /// The size that the device reports, in bytes.
    pub size_bytes: u64,
}

impl Default for NullOptions {
    fn default() -> Self {
        Self { size_bytes: 1 << 40 }
    }
}

/// A device without a medium, to measure the cost of everything except the device.
///
/// Writes are discarded, and reads leave the buffer unchanged: a store cannot use it.
#[derive(Debug)]
pub struct NullDevice {
    info: DeviceInfo,
    size_bytes: u64,
}

impl NullDevice {
    /// Creates the device.
    ///
    /// # Errors
    /// `Invalid` if the size is not a positive multiple of 512 bytes.
    pub fn new(options: NullOptions) -> Result<Self> {
        let NullOptions { size_bytes } = options;
        if size_bytes == 0 || !size_bytes.is_multiple_of(512) {
            let context = format!("a null device cannot have {size_bytes} bytes");
            return Err(Error::new(ErrorKind::Invalid, context)
                .hint("its size is a positive multiple of 512 bytes"));
        }
        let info = DeviceInfo {
            name: format!("null:size={}", format_bytes(size_bytes)),
            interface: "null".into(),
            mode: "completes on submission, moves no data".into(),
            logical_block_bytes: 512,
            memory_alignment_bytes: 1,
            transfer_bytes_max: 1 << 30,
            // No data is stored, so no write can be torn.
            atomic_write_bytes_min: 512,
            atomic_write_bytes: 1 << 30,
            volatile_write_cache: false,
            read_only: false,
            discards: true,
            writes_zeroes: true,
            growable: false,
            depth_max: 1 << 16,
            shared_memory: false,
        };
        Ok(Self { info, size_bytes })
    }
}

impl BlockDevice for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.size_bytes {
            return Ok(());
        }
        let context = format!("{} cannot grow to {}", self.info.name, format_bytes(size_bytes));
        Err(Error::new(ErrorKind::NoSpace, context).hint("open it with a larger size"))
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        self.info.check_channel(options)?;
        Ok(Box::new(NullChannel {
            info: self.info.clone(),
            size_bytes: self.size_bytes,
            ready: ReadyQueue::new(options),
        }))
    }
}

struct NullChannel {
    info: DeviceInfo,
    size_bytes: u64,
    ready: ReadyQueue,
}

impl IoChannel for NullChannel {
    #[inline]
    fn submit(&mut self, request: Request) -> std::result::Result<(), Request> {
        if self.ready.is_full() {
            return Err(request);
        }
        let result = self.info.check(&request, self.size_bytes);
        self.ready.push(request, result);
        Ok(())
    }

    fn kick(&mut self) {}

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.ready.poll(completions)
    }

    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.ready.wait(completions, options)
    }

    fn in_flight(&self) -> u32 {
        self.ready.in_flight()
    }

    fn statistics(&self) -> ChannelStatistics {
        self.ready.statistics()
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }
}
