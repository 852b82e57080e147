//! A device that is read and written one request after the other, for callers that need few blocks
//! and can wait.

use std::sync::Arc;
use std::time::Duration;

use qpair_memory::Arena;

use crate::seam::device::{BlockDevice, ChannelOptions, IoChannel, WaitOptions};
use crate::seam::error::{Error, ErrorKind, Result};
use crate::seam::request::{Completion, Op, Request};

/// The maximum number of bytes of one transfer.
const TRANSFER_BYTES_MAX: u32 = 256 << 10;

/// A private channel to a device, with memory for one request.
pub struct SerialChannel {
    name: String,
    arena: Arc<Arena>,
    channel: Box<dyn IoChannel>,
    completions: Vec<Completion>,
}

impl SerialChannel {
    /// Opens a channel. Call it on the thread that will use it.
    ///
    /// # Errors
    /// `Limit` if there is no memory, or the device's error.
    pub fn open(device: &dyn BlockDevice) -> Result<Self> {
        let info = device.info();
        let bytes = 1 << info.transfer_bytes_max.min(TRANSFER_BYTES_MAX).ilog2();
        let arena = Arena::new(bytes, 1, info.arena_options()).map_err(|cause| {
            Error::os(cause, format!("allocating memory for transfers of {}", info.name))
        })?;
        let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
        let channel = device.open_channel(&options)?;
        Ok(Self { name: info.name.clone(), arena, channel, completions: Vec::with_capacity(1) })
    }

    fn run(&mut self, request: Request) -> Result<Completion> {
        let (op, offset_bytes, len_bytes) = (request.op, request.offset_bytes, request.len_bytes);
        let failed = |name: &str| match op {
            Op::Flush => format!("flushing {name}"),
            _ => format!("doing a {op:?} of {len_bytes} bytes at {offset_bytes} of {name}"),
        };
        if self.channel.submit(request).is_err() {
            return Err(Error::new(ErrorKind::Io, failed(&self.name)).hint("its channel is full"));
        }
        let wait = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
        loop {
            self.channel.wait(&mut self.completions, wait);
            let Some(completion) = self.completions.pop() else { continue };
            return match completion.result {
                Ok(()) => Ok(completion),
                Err(error) => Err(Error::new(error.kind, failed(&self.name)).caused_by(error)),
            };
        }
    }

    fn buffer(&self) -> Result<qpair_memory::Buffer> {
        let lost = || {
            Error::new(
                ErrorKind::Io,
                format!("{} did not return the memory of its last transfer", self.name),
            )
        };
        self.arena.lease().ok_or_else(lost)
    }

    /// Fills `bytes` from the device. The offset and the length must be multiples of the logical
    /// block.
    ///
    /// # Errors
    /// Returns the device's error.
    pub fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<()> {
        let mut at = offset_bytes;
        for part in bytes.chunks_mut(self.arena.block_size()) {
            let request = Request::read(at, part.len() as u32, self.buffer()?, 0);
            if let Some(buffer) = self.run(request)?.buffer {
                buffer.copy_to(0, part);
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes `bytes` to the device. The offset and the length must be multiples of the logical
    /// block.
    ///
    /// # Errors
    /// Returns the device's error; the content of the range is then undefined.
    pub fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        let mut at = offset_bytes;
        for part in bytes.chunks(self.arena.block_size()) {
            let mut buffer = self.buffer()?;
            buffer.copy_from(0, part);
            self.run(Request::write(at, part.len() as u32, buffer, 0))?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Makes all earlier writes survive power loss.
    ///
    /// # Errors
    /// Returns the device's error.
    pub fn flush(&mut self) -> Result<()> {
        self.run(Request::flush(0)).map(drop)
    }
}
