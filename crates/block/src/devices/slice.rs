//! A part of a device, as a separate device.
//!
//! A request is moved by the start of the slice on its way down, and comes back unchanged. The
//! device below checks it. A request past the end of the slice is sent to an offset that no device
//! has, so that the device below rejects it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::seam::byte_locks::ByteLocks;
use crate::seam::device::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, DeviceInfo, Extent, IoChannel,
    WaitOptions, atomic_write_bytes_on,
};
use crate::seam::error::{Error, ErrorKind, Result};
use crate::seam::request::{Completion, Op, Request};

/// An offset past the end of every device, aligned to every block size.
const NOWHERE: u64 = 1 << 63;

/// A range of a device. A flush applies to the whole device. Errors and resets are those of the
/// device.
#[derive(Debug)]
pub struct SliceDevice {
    info: DeviceInfo,
    inner: Arc<dyn BlockDevice>,
    start_bytes: u64,
    size_bytes: u64,
}

impl SliceDevice {
    /// Creates a device of the `size_bytes` of `inner` that begin at `start_bytes`.
    ///
    /// # Errors
    /// `Invalid` if the range is empty or not made of whole logical blocks; `NoSpace` if it does
    /// not lie inside `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>, start_bytes: u64, size_bytes: u64) -> Result<Self> {
        let info = inner.info().clone();
        let block = u64::from(info.logical_block_bytes);
        let context = format!(
            "a slice of {size_bytes} bytes from byte {start_bytes} on does not fit {}",
            info.name
        );
        if size_bytes == 0 || (start_bytes | size_bytes) & (block - 1) != 0 {
            return Err(Error::new(ErrorKind::Invalid, context)
                .hint(format!("both are multiples of its logical block, {block} bytes")));
        }
        let end = start_bytes.checked_add(size_bytes);
        if end.is_none_or(|end| end > inner.size_bytes()) {
            let bytes = inner.size_bytes();
            return Err(
                Error::new(ErrorKind::NoSpace, context).hint(format!("it has {bytes} bytes"))
            );
        }
        let (min, max) = (info.atomic_write_bytes_min, info.atomic_write_bytes);
        let info = DeviceInfo {
            name: format!("{}@{start_bytes}+{size_bytes}", info.name),
            growable: false,
            atomic_write_bytes: atomic_write_bytes_on(start_bytes, min, max),
            ..info
        };
        Ok(Self { info, inner, start_bytes, size_bytes })
    }

    /// Gives the slice another name.
    pub(crate) fn called(mut self, name: String) -> Self {
        self.info.name = name;
        self
    }
}

impl BlockDevice for SliceDevice {
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
        let context = format!("{} cannot grow to {size_bytes} bytes", self.info.name);
        Err(Error::new(ErrorKind::NoSpace, context).hint("its size is fixed"))
    }

    fn byte_locks(&self) -> Option<Arc<dyn ByteLocks>> {
        self.inner.byte_locks()
    }

    fn extent(&self, offset_bytes: u64, len_bytes: u64) -> Extent {
        self.inner.extent(self.start_bytes + offset_bytes, len_bytes)
    }

    fn removed(&self) -> Option<String> {
        self.inner.removed()
    }

    fn resets(&self) -> u64 {
        self.inner.resets()
    }

    fn open_channel(&self, options: &ChannelOptions) -> Result<Box<dyn IoChannel>> {
        Ok(Box::new(SliceChannel {
            inner: self.inner.open_channel(options)?,
            start_bytes: self.start_bytes,
            size_bytes: self.size_bytes,
        }))
    }
}

struct SliceChannel {
    inner: Box<dyn IoChannel>,
    start_bytes: u64,
    size_bytes: u64,
}

impl IoChannel for SliceChannel {
    #[inline]
    fn submit(&mut self, mut request: Request) -> std::result::Result<(), Request> {
        if request.op == Op::Flush {
            return self.inner.submit(request);
        }
        let asked = request.offset_bytes;
        let len_bytes = u64::from(request.len_bytes);
        let is_inside = len_bytes <= self.size_bytes && asked <= self.size_bytes - len_bytes;
        request.offset_bytes = if is_inside { asked + self.start_bytes } else { NOWHERE };
        self.inner.submit(request).map_err(|request| Request { offset_bytes: asked, ..request })
    }

    #[inline]
    fn kick(&mut self) {
        self.inner.kick();
    }

    #[inline]
    fn poll(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.inner.poll(completions)
    }

    #[inline]
    fn look(&mut self, completions: &mut Vec<Completion>) -> usize {
        self.inner.look(completions)
    }

    fn arrival(&self) -> Arrival {
        self.inner.arrival()
    }

    #[inline]
    fn wait(&mut self, completions: &mut Vec<Completion>, options: WaitOptions) -> usize {
        self.inner.wait(completions, options)
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight()
    }

    fn statistics(&self) -> ChannelStatistics {
        self.inner.statistics()
    }

    fn completion_fd(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        self.inner.completion_fd()
    }
}
