//! Messages about memory that a driver opens to the device.

use qpair_socket::{Fields, Writer};

const READ: u32 = 1;
const WRITE: u32 = 2;

/// A command that opens memory. The file behind it comes with the message, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    pub readable: bool,
    pub writable: bool,
    /// The offset of the memory in the file.
    pub file_offset_bytes: u64,
    pub iova: u64,
    /// The number of bytes.
    pub len: u64,
}

impl DmaMap {
    const BYTES: u32 = 32;

    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        let (_argsz, flags) = (fields.u32()?, fields.u32()?);
        Some(Self {
            readable: flags & READ != 0,
            writable: flags & WRITE != 0,
            file_offset_bytes: fields.u64()?,
            iova: fields.u64()?,
            len: fields.u64()?,
        })
    }

    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let readable = if self.readable { READ } else { 0 };
        let flags = readable | if self.writable { WRITE } else { 0 };
        Writer::default()
            .u32(Self::BYTES)
            .u32(flags)
            .u64(self.file_offset_bytes)
            .u64(self.iova)
            .u64(self.len)
            .done()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// Whether the client asks for a bitmap of written pages, which belongs to migration.
    pub wants_dirty_pages: bool,
    /// Whether all memory is closed, whatever the range.
    pub all: bool,
    pub iova: u64,
    /// The number of bytes.
    pub len: u64,
}

impl DmaUnmap {
    const BYTES: u32 = 24;
    const DIRTY: u32 = 1;
    const ALL: u32 = 2;

    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        let (_argsz, flags) = (fields.u32()?, fields.u32()?);
        Some(Self {
            wants_dirty_pages: flags & Self::DIRTY != 0,
            all: flags & Self::ALL != 0,
            iova: fields.u64()?,
            len: fields.u64()?,
        })
    }

    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let dirty = if self.wants_dirty_pages { Self::DIRTY } else { 0 };
        let all = if self.all { Self::ALL } else { 0 };
        Writer::default().u32(Self::BYTES).u32(dirty | all).u64(self.iova).u64(self.len).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let map = DmaMap {
            readable: true,
            writable: false,
            file_offset_bytes: 0x20_0000,
            iova: 1 << 40,
            len: 0x5000,
        };
        let bytes = map.payload();
        assert_eq!(bytes.len(), 32);
        assert_eq!(bytes[..8], [32, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(DmaMap::parse(&bytes), Some(map));
        assert_eq!(DmaMap::parse(&bytes[..31]), None);

        let unmap = DmaUnmap { wants_dirty_pages: false, all: true, iova: 1, len: 2 };
        let bytes = unmap.payload();
        assert_eq!((bytes.len(), bytes[4]), (24, 2));
        assert_eq!(DmaUnmap::parse(&bytes), Some(unmap));
        assert_eq!(DmaUnmap::parse(&bytes[..23]), None);
    }
}
