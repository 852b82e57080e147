//! Requests, which go down to a device, and completions, which come back.

use qpair_memory::Buffer;

use crate::seam::error::IoError;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Fill the buffer from the device.
    Read,
    /// Write the buffer to the device.
    Write,
    /// Make every write that completed before this flush was submitted survive power loss.
    Flush,
    /// Tell the device that a range is no longer needed; its content is undefined afterwards.
    Discard,
    /// Make a range read as zeroes.
    WriteZeroes,
}

/// A request, which goes down once, by value.
#[derive(Debug)]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// Whether the data of a write survives power loss when the write completes (FUA). For writes
    /// only.
    pub force_unit_access: bool,
    /// Whether a power loss must leave all of the range old or all of it new. For writes only.
    /// [`DeviceInfo::check`](crate::DeviceInfo::check) refuses atomic writes that the device does
    /// not support.
    pub atomic: bool,
    /// The first byte on the device, a multiple of the logical block; 0 for a flush.
    pub offset_bytes: u64,
    /// The number of bytes to move, a multiple of the logical block; 0 for a flush.
    pub len_bytes: u32,
    /// The first byte in the buffer, a multiple of the device's memory alignment.
    pub buffer_offset_bytes: u32,
    /// The memory; `None` for flush, discard and write-zeroes.
    pub buffer: Option<Buffer>,
    /// A value of the submitter, returned with the completion.
    pub tag: u64,
}

impl Request {
    /// Returns a read of `len_bytes` into the start of `buffer`.
    #[must_use]
    pub fn read(offset_bytes: u64, len_bytes: u32, buffer: Buffer, tag: u64) -> Self {
        Self::new(Op::Read, offset_bytes, len_bytes, Some(buffer), tag)
    }

    /// Returns a write of `len_bytes` from the start of `buffer`.
    #[must_use]
    pub fn write(offset_bytes: u64, len_bytes: u32, buffer: Buffer, tag: u64) -> Self {
        Self::new(Op::Write, offset_bytes, len_bytes, Some(buffer), tag)
    }

    /// Returns a flush of the whole device.
    #[must_use]
    pub fn flush(tag: u64) -> Self {
        Self::new(Op::Flush, 0, 0, None, tag)
    }

    /// Returns a discard.
    #[must_use]
    pub fn discard(offset_bytes: u64, len_bytes: u32, tag: u64) -> Self {
        Self::new(Op::Discard, offset_bytes, len_bytes, None, tag)
    }

    /// Returns a write-zeroes request.
    #[must_use]
    pub fn write_zeroes(offset_bytes: u64, len_bytes: u32, tag: u64) -> Self {
        Self::new(Op::WriteZeroes, offset_bytes, len_bytes, None, tag)
    }

    fn new(op: Op, offset_bytes: u64, len_bytes: u32, buffer: Option<Buffer>, tag: u64) -> Self {
        Self {
            op,
            force_unit_access: false,
            atomic: false,
            offset_bytes,
            len_bytes,
            buffer_offset_bytes: 0,
            buffer,
            tag,
        }
    }

    /// Turns the request into its completion.
    #[must_use]
    pub fn complete(self, result: Result<(), IoError>) -> Completion {
        Completion { tag: self.tag, op: self.op, buffer: self.buffer, result }
    }
}

/// The end of a request. Either all bytes were moved, or an error says that the content of the
/// range (write) or of the buffer (read) is undefined. There are no short transfers, because
/// devices complete them.
#[derive(Debug)]
pub struct Completion {
    /// The submitter's tag.
    pub tag: u64,
    /// The operation.
    pub op: Op,
    /// The memory, which is the owner's again.
    pub buffer: Option<Buffer>,
    /// The result.
    pub result: Result<(), IoError>,
}
