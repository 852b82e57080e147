//! Messages about regions: base address registers and the configuration space.

use qpair_socket::{Fields, Writer};

/// The numbers of regions; 0 to 5 are the base address registers.
pub mod region_index {
    pub const CONFIG: u32 = 7;
    /// The number of regions of a PCI function.
    pub const COUNT: u32 = 9;
}

const READ: u32 = 1;
const WRITE: u32 = 2;
const MMAP: u32 = 4;
const CAPS: u32 = 8;
const SPARSE_MMAP: u16 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The offset of the first byte in the region.
    pub offset_bytes: u64,
    /// The number of bytes.
    pub len: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionInfo {
    pub index: u32,
    /// The size in bytes; 0 if the device does not have the region.
    pub len: u64,
    /// The value to add to an area's offset to get its offset in the file. The sum may wrap.
    pub file_offset_bytes: u64,
    /// The areas that can be mapped, from a file that comes with the message. May be empty.
    pub areas: Vec<Area>,
}

impl RegionInfo {
    /// The bytes of a description without areas.
    pub const BYTES: u32 = 32;
    /// A limit on the number of areas that no region exceeds.
    const AREAS_MAX: usize = 64;

    /// Encodes the request for the description of region `index`, with room for `argsz` bytes of
    /// answer.
    #[must_use]
    pub fn request(index: u32, argsz: u32) -> Vec<u8> {
        Writer::default().u32(argsz).u32(0).u32(index).u32(0).u64(0).u64(0).done()
    }

    /// Decodes the room for the answer, and the region, of such a request.
    #[must_use]
    pub fn parse_request(bytes: &[u8]) -> Option<(u32, u32)> {
        let mut fields = Fields::of(bytes);
        let (argsz, _flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
        Some((argsz, index))
    }

    /// Encodes the answer for a client with room for `argsz` bytes. Returns it, and whether it is
    /// complete: if not, it says how much room is needed.
    #[must_use]
    pub fn payload(&self, argsz: u32) -> (Vec<u8>, bool) {
        let mapped = !self.areas.is_empty();
        let needed = match mapped {
            true => Self::BYTES + 16 + 16 * self.areas.len() as u32,
            false => Self::BYTES,
        };
        let access = if self.len > 0 { READ | WRITE } else { 0 };
        let flags = access | if mapped { MMAP | CAPS } else { 0 };
        let whole = argsz >= needed;
        // Set even if the areas are missing for want of room: QEMU treats 0 as an error whenever
        // there are areas.
        let capabilities_at = if mapped { Self::BYTES } else { 0 };
        let mut bytes = Writer::default()
            .u32(needed)
            .u32(flags)
            .u32(self.index)
            .u32(capabilities_at)
            .u64(self.len)
            .u64(self.file_offset_bytes);
        if mapped && whole {
            bytes = bytes.u16(SPARSE_MMAP).u16(1).u32(0).u32(self.areas.len() as u32).u32(0);
            for area in &self.areas {
                bytes = bytes.u64(area.offset_bytes).u64(area.len);
            }
        }
        (bytes.done(), whole)
    }

    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(bytes);
        let (_argsz, flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let capabilities_at = fields.u32()?;
        let (len, file_offset_bytes) = (fields.u64()?, fields.u64()?);
        let areas = match (flags & MMAP != 0, flags & CAPS != 0) {
            (false, _) => Vec::new(),
            (true, false) => vec![Area { offset_bytes: 0, len }],
            (true, true) => match Self::parse_areas(bytes, capabilities_at)? {
                Some(areas) => areas,
                None => vec![Area { offset_bytes: 0, len }],
            },
        };
        let inside =
            |area: &Area| area.offset_bytes.checked_add(area.len).is_some_and(|e| e <= len);
        areas.iter().all(inside).then_some(Self { index, len, file_offset_bytes, areas })
    }

    /// Follows the chain of capabilities. `Some(None)` if no capability is about areas.
    fn parse_areas(bytes: &[u8], first_at: u32) -> Option<Option<Vec<Area>>> {
        let mut at = first_at as usize;
        // A chain that leads back to itself ends as well.
        for _ in 0..16 {
            if at == 0 {
                return Some(None);
            }
            let mut fields = Fields::of(bytes.get(at..)?);
            let (id, _version, next) = (fields.u16()?, fields.u16()?, fields.u32()?);
            if id == SPARSE_MMAP {
                let (count, _reserved) = (fields.u32()? as usize, fields.u32()?);
                if count > Self::AREAS_MAX {
                    return None;
                }
                let area = |_| Some(Area { offset_bytes: fields.u64()?, len: fields.u64()? });
                return (0..count).map(area).collect::<Option<Vec<_>>>().map(Some);
            }
            at = next as usize;
        }
        None
    }
}

/// The bytes of a region to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess {
    /// The offset of the first byte in the region.
    pub offset_bytes: u64,
    /// The number of the region.
    pub region: u32,
    /// The number of bytes.
    pub len: u32,
}

impl RegionAccess {
    /// The bytes of the encoded access, before the data.
    pub const BYTES: usize = 16;

    /// Decodes an access. The rest of the bytes are the data.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = Fields::of(bytes);
        let access =
            Self { offset_bytes: fields.u64()?, region: fields.u32()?, len: fields.u32()? };
        Some((access, fields.rest()))
    }

    #[must_use]
    pub fn payload(&self, data: &[u8]) -> Vec<u8> {
        Writer::default().u64(self.offset_bytes).u32(self.region).u32(self.len).bytes(data).done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doorbells() -> RegionInfo {
        let areas = vec![Area { offset_bytes: 0x1000, len: 0x1000 }];
        RegionInfo { index: 0, len: 0x4000, file_offset_bytes: 0, areas }
    }

    #[test]
    fn there_and_back() {
        let (bytes, whole) = doorbells().payload(4064);
        assert!(whole && bytes.len() == 64);
        assert_eq!(bytes[..16], [64, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0]);
        assert_eq!(bytes[32..48], [1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(RegionInfo::parse(&bytes), Some(doorbells()));

        let absent = RegionInfo { index: 6, ..RegionInfo::default() };
        let (bytes, whole) = absent.payload(32);
        assert!(whole && bytes.len() == 32 && bytes[4] == 0);
        assert_eq!(RegionInfo::parse(&bytes), Some(absent));
    }

    #[test]
    fn too_little_room_says_how_much_it_takes() {
        let (bytes, whole) = doorbells().payload(32);
        assert!(!whole);
        assert_eq!((bytes.len(), bytes[0], bytes[12]), (32, 64, 32));
    }

    #[test]
    fn a_peer_may_send_its_whole_buffer() {
        let mut bytes = RegionInfo::request(3, 4064);
        bytes.resize(4064, 0xEE);
        assert_eq!(RegionInfo::parse_request(&bytes), Some((4064, 3)));
    }

    #[test]
    fn areas_that_lie() {
        let (bytes, _) = doorbells().payload(64);
        let change = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            RegionInfo::parse(&bytes)
        };
        assert_eq!(change(40, 2), None, "more areas than bytes");
        assert_eq!(change(43, 0xFF), None, "very many areas");
        assert_eq!(change(12, 0xF0), None, "capabilities past the end");
        assert_eq!(change(51, 1), None, "an area past the end of the region");
        assert_eq!(change(63, 0xFF), None, "an area past all ends");
        let mut looped = bytes.clone();
        looped[32] = 9;
        looped[36] = 32;
        assert_eq!(RegionInfo::parse(&looped), None);
        let all = change(12, 0).unwrap().areas;
        assert_eq!(all, [Area { offset_bytes: 0, len: 0x4000 }], "no word about areas: all of it");
    }

    #[test]
    fn accesses() {
        let access = RegionAccess { offset_bytes: 0x14, region: 0, len: 4 };
        let bytes = access.payload(&[1, 2, 3, 4]);
        assert_eq!(RegionAccess::parse(&bytes), Some((access, &[1, 2, 3, 4][..])));
        assert_eq!(RegionAccess::parse(&bytes[..15]), None);
    }
}
