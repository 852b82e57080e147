//! Requests, which go down to a device, and completions, which come back.

use qpair_memory::Buffer;

use crate::seam::error::IoError;

/// The verb of a request.
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
    /// The verb.
    pub op: Op,
    /// Write only: on completion the data survives power loss.
    pub force_unit_access: bool,
    /// Write only: power loss leaves all of the range old or all of it new.
    /// [`DeviceInfo::check`](crate::DeviceInfo::check) says which atomic writes a device takes; it
    /// refuses all others.
    pub atomic: bool,
    /// First byte on the device; a multiple of the logical block. 0 for a flush.
    pub offset_bytes: u64,
    /// Bytes to move; a multiple of the logical block. 0 for a flush.
    pub len_bytes: u32,
    /// First byte in the buffer; a multiple of the device's memory alignment.
    pub buffer_offset_bytes: u32,
    /// The memory; none for flush, discard and write-zeroes.
    pub buffer: Option<Buffer>,
    /// A mark of the submitter, returned with the completion.
    pub tag: u64,
}

impl Request {
    /// A read of `len_bytes` into the start of `buffer`.
    #[must_use]
    pub fn read(offset_bytes: u64, len_bytes: u32, buffer: Buffer, tag: u64) -> Self {
        Self::new(Op::Read, offset_bytes, len_bytes, Some(buffer), tag)
    }

    /// A write of `len_bytes` from the start of `buffer`.
    #[must_use]
    pub fn write(offset_bytes: u64, len_bytes: u32, buffer: Buffer, tag: u64) -> Self {
        Self::new(Op::Write, offset_bytes, len_bytes, Some(buffer), tag)
    }

    /// A flush of the whole device.
    #[must_use]
    pub fn flush(tag: u64) -> Self {
        Self::new(Op::Flush, 0, 0, None, tag)
    }

    /// A discard.
    #[must_use]
    pub fn discard(offset_bytes: u64, len_bytes: u32, tag: u64) -> Self {
        Self::new(Op::Discard, offset_bytes, len_bytes, None, tag)
    }

    /// A write of zeroes.
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

/// The end of a request: all bytes were moved, or an error says that the content of the range
/// (write) or of the buffer (read) is undefined. There are no short transfers: devices finish them.
#[derive(Debug)]
pub struct Completion {
    /// The submitter's mark.
    pub tag: u64,
    /// The verb.
    pub op: Op,
    /// The memory, back with its owner.
    pub buffer: Option<Buffer>,
    /// The result.
    pub result: Result<(), IoError>,
}
