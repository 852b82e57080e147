//! A part of a device, as a device of its own.
//!
//! Requests go down moved by where the slice begins, and come up as they are. What is wrong with one is answered by the device below: a request
//! past the slice's end is sent where no device has an end.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::device::{
    Arrival, BlockDevice, ChannelOptions, ChannelStatistics, DeviceInfo, IoChannel, WaitOptions,
};
use crate::error::{Error, ErrorKind, Result};
use crate::request::{Completion, Op, Request};

/// Where no device reaches, on the grid of every block.
const NOWHERE: u64 = 1 << 63;

/// A range of a device. A flush is one of the whole device; its errors and resets are the device's.
#[derive(Debug)]
pub struct SliceDevice {
    info: DeviceInfo,
    inner: Arc<dyn BlockDevice>,
    start_bytes: u64,
    size_bytes: u64,
}

impl SliceDevice {
    /// The `size_bytes` from `start_bytes` on of `inner`.
    ///
    /// # Errors
    /// `Invalid` if they are not multiples of the logical block, or nothing; `NoSpace` if they are not all there.
    pub fn new(inner: Arc<dyn BlockDevice>, start_bytes: u64, size_bytes: u64) -> Result<Self> {
        let info = inner.info().clone();
        let block = u64::from(info.logical_block_bytes);
        let context = format!("{size_bytes} bytes from {start_bytes} on of {}", info.name);
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
        let info = DeviceInfo {
            name: format!("{}@{start_bytes}+{size_bytes}", info.name),
            growable: false,
            // What is aligned in the part is aligned on the device.
            atomic_write_bytes: match start_bytes.trailing_zeros() {
                power @ 0..31 => info.atomic_write_bytes.min(1 << power),
                _ => info.atomic_write_bytes,
            },
            ..info
        };
        Ok(Self { info, inner, start_bytes, size_bytes })
    }

    /// The same, under another name.
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
