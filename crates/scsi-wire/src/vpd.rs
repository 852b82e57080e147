//! Vital product data: names, limits, provisioning.

use qpair_wire::be::{u16_at, u32_at, u64_at};
use qpair_wire::{put, text, u8_at};

/// Page codes.
pub mod page {
    pub const SUPPORTED: u8 = 0x00;
    pub const UNIT_SERIAL_NUMBER: u8 = 0x80;
    pub const DEVICE_IDENTIFICATION: u8 = 0x83;
    pub const BLOCK_LIMITS: u8 = 0xB0;
    pub const BLOCK_DEVICE_CHARACTERISTICS: u8 = 0xB1;
    pub const LOGICAL_BLOCK_PROVISIONING: u8 = 0xB2;
}

/// Returns the body of a page, after checking its header.
fn body(data: &[u8], page: u8) -> Option<&[u8]> {
    if data.len() < 4 || data[1] != page {
        return None;
    }
    let end = (4 + usize::from(u16_at(data, 2))).min(data.len());
    data.get(4..end)
}

/// Encodes a page of a disk with this body.
#[must_use]
pub fn encode(page: u8, body: &[u8]) -> Vec<u8> {
    let mut data = vec![0, page];
    data.extend(u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
    data.extend(body);
    data
}

/// Decodes the list of supported pages.
#[must_use]
pub fn decode_supported(data: &[u8]) -> Option<&[u8]> {
    body(data, page::SUPPORTED)
}

#[must_use]
pub fn decode_serial(data: &[u8]) -> Option<String> {
    body(data, page::UNIT_SERIAL_NUMBER).map(text)
}

/// A unique name of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnitName {
    /// NAA: 8 or 16 bytes.
    Naa(Vec<u8>),
    /// EUI-64: 8, 12 or 16 bytes.
    Eui(Vec<u8>),
    /// Vendor, product and serial number, from other pages.
    Serial(String),
}

impl std::fmt::Display for UnitName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hex = |f: &mut std::fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        match self {
            Self::Naa(bytes) => {
                f.write_str("naa.")?;
                hex(f, bytes)
            }
            Self::Eui(bytes) => {
                f.write_str("eui.")?;
                hex(f, bytes)
            }
            Self::Serial(serial) => write!(f, "t10.{serial}"),
        }
    }
}

/// One designator of page 83h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Designator<'a> {
    /// The owner of the designator: unit 0, port 1, target 2.
    pub association: u8,
    /// The type: T10 vendor 1, EUI-64 2, NAA 3, relative port 4, SCSI name 8.
    pub kind: u8,
    /// The code set: binary 1, ASCII 2, UTF-8 3.
    pub code_set: u8,
    /// The protocol, if the designator names a port or target (6: SAS).
    pub protocol: Option<u8>,
    /// The identifier itself.
    pub bytes: &'a [u8],
}

/// Returns the designators of page 83h.
pub fn designators(data: &[u8]) -> impl Iterator<Item = Designator<'_>> {
    let mut rest = body(data, page::DEVICE_IDENTIFICATION).unwrap_or(&[]);
    std::iter::from_fn(move || {
        let head = rest.get(..4)?;
        let len = usize::from(head[3]);
        let bytes = rest.get(4..4 + len)?;
        rest = &rest[4 + len..];
        Some(Designator {
            association: head[1] >> 4 & 3,
            kind: head[1] & 15,
            code_set: head[0] & 15,
            protocol: (head[1] & 0x80 != 0).then_some(head[0] >> 4),
            bytes,
        })
    })
}

/// Returns the unit's name in page 83h: NAA before EUI-64, the longest of each.
#[must_use]
pub fn unit_name(data: &[u8]) -> Option<UnitName> {
    let longest = |kind: u8, lens: &[usize]| {
        designators(data)
            .filter(|it| it.association == 0 && it.kind == kind && it.code_set == 1)
            .filter(|it| lens.contains(&it.bytes.len()) && it.bytes.iter().any(|byte| *byte != 0))
            .max_by_key(|it| it.bytes.len())
            .map(|it| it.bytes.to_vec())
    };
    longest(3, &[8, 16]).map(UnitName::Naa).or_else(|| longest(2, &[8, 12, 16]).map(UnitName::Eui))
}

/// Encodes the body of page 83h of a disk: its NAA name, and for a SAS disk the SAS address and the
/// number of its port.
#[must_use]
pub fn encode_identification(naa: u64, port: Option<u64>) -> Vec<u8> {
    let mut body = vec![0x01, 0x03, 0, 8];
    body.extend(naa.to_be_bytes());
    let Some(port) = port else { return body };
    // The NAA designator of the target port, with the protocol.
    body.extend([0x61, 0x93, 0, 8]);
    body.extend(port.to_be_bytes());
    // The designator of the relative port.
    body.extend([0x61, 0x94, 0, 4, 0, 0, 0, 1]);
    body
}

/// Page B0h: the limits of commands; 0 where no limit is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// The number of blocks that a transfer should be a multiple of.
    pub granularity_blocks: u16,
    /// The maximum number of blocks of a transfer.
    pub transfer_blocks_max: u32,
    /// The number of blocks that a transfer should not exceed.
    pub transfer_blocks_best: u32,
    /// The maximum number of blocks of an UNMAP.
    pub unmap_blocks_max: u32,
    /// The maximum number of ranges of an UNMAP.
    pub unmap_ranges_max: u32,
    /// The number of blocks that are unmapped together.
    pub unmap_granularity_blocks: u32,
    /// The maximum number of blocks of a WRITE SAME.
    pub write_same_blocks_max: u64,
    /// Whether a WRITE SAME of 0 blocks is refused (WSNZ).
    pub write_same_needs_blocks: bool,
}

impl BlockLimits {
    /// Decodes the page.
    #[must_use]
    pub fn decode(data: &[u8]) -> Option<Self> {
        let body = body(data, page::BLOCK_LIMITS)?;
        Some(Self {
            write_same_needs_blocks: u8_at(body, 0) & 1 != 0,
            granularity_blocks: u16_at(body, 2),
            transfer_blocks_max: u32_at(body, 4),
            transfer_blocks_best: u32_at(body, 8),
            unmap_blocks_max: u32_at(body, 16),
            unmap_ranges_max: u32_at(body, 20),
            unmap_granularity_blocks: u32_at(body, 24),
            write_same_blocks_max: u64_at(body, 32),
        })
    }

    /// Encodes the page.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = [0; 60];
        body[0] = self.write_same_needs_blocks.into();
        put(&mut body, 2, &self.granularity_blocks.to_be_bytes());
        put(&mut body, 4, &self.transfer_blocks_max.to_be_bytes());
        put(&mut body, 8, &self.transfer_blocks_best.to_be_bytes());
        put(&mut body, 16, &self.unmap_blocks_max.to_be_bytes());
        put(&mut body, 20, &self.unmap_ranges_max.to_be_bytes());
        put(&mut body, 24, &self.unmap_granularity_blocks.to_be_bytes());
        put(&mut body, 32, &self.write_same_blocks_max.to_be_bytes());
        encode(page::BLOCK_LIMITS, &body)
    }
}

/// Page B1h: the characteristics of a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Characteristics {
    /// Revolutions a minute, from 0401h on; 1 if the medium does not rotate; 0 if not reported.
    pub rotation: u16,
    /// The kind of zoned disk: 1 host-aware, 2 device-managed.
    pub zoned: u8,
}

impl Characteristics {
    /// Decodes the page.
    #[must_use]
    pub fn decode(data: &[u8]) -> Option<Self> {
        let body = body(data, page::BLOCK_DEVICE_CHARACTERISTICS)?;
        Some(Self { rotation: u16_at(body, 0), zoned: u8_at(body, 4) >> 4 & 3 })
    }

    /// Encodes the page.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = [0; 60];
        put(&mut body, 0, &self.rotation.to_be_bytes());
        body[4] = (self.zoned & 3) << 4;
        encode(page::BLOCK_DEVICE_CHARACTERISTICS, &body)
    }
}

/// Page B2h: logical block provisioning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provisioning {
    /// Whether UNMAP is supported (LBPU).
    pub unmap: bool,
    /// Whether WRITE SAME (16) with UNMAP is supported (LBPWS).
    pub write_same: bool,
    /// Whether unmapped blocks read as zeroes (LBPRZ is 1).
    pub reads_zeroes: bool,
    /// The kind of provisioning: 1 for resource, 2 for thin.
    pub kind: u8,
}

impl Provisioning {
    /// Decodes the page.
    #[must_use]
    pub fn decode(data: &[u8]) -> Option<Self> {
        let body = body(data, page::LOGICAL_BLOCK_PROVISIONING)?;
        let flags = u8_at(body, 1);
        Some(Self {
            unmap: flags & 0x80 != 0,
            write_same: flags & 0x40 != 0,
            reads_zeroes: flags >> 2 & 7 == 1,
            kind: u8_at(body, 2) & 7,
        })
    }

    /// Encodes the page.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let flags = u8::from(self.unmap) << 7
            | u8::from(self.write_same) << 6
            | u8::from(self.reads_zeroes) << 2;
        encode(page::LOGICAL_BLOCK_PROVISIONING, &[0, flags, self.kind & 7, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_survive_their_bytes() {
        let limits = BlockLimits {
            granularity_blocks: 8,
            transfer_blocks_max: 8192,
            transfer_blocks_best: 2048,
            unmap_blocks_max: 1 << 20,
            unmap_ranges_max: 1,
            unmap_granularity_blocks: 8,
            write_same_blocks_max: 1 << 40,
            write_same_needs_blocks: true,
        };
        assert_eq!(BlockLimits::decode(&limits.encode()), Some(limits));
        assert_eq!(limits.encode().len(), 64);
        let characteristics = Characteristics { rotation: 7200, zoned: 2 };
        assert_eq!(Characteristics::decode(&characteristics.encode()), Some(characteristics));
        let thin = Provisioning { unmap: true, write_same: true, reads_zeroes: true, kind: 2 };
        assert_eq!(Provisioning::decode(&thin.encode()), Some(thin));
        assert_eq!(Provisioning::decode(&limits.encode()), None, "another page");
        assert_eq!(BlockLimits::decode(&[0, 0xB0, 0xFF, 0xFF]), Some(BlockLimits::default()));
        let serial = encode(page::UNIT_SERIAL_NUMBER, b"  ABC123 ");
        assert_eq!(decode_serial(&serial).as_deref(), Some("ABC123"));
    }

    #[test]
    fn a_unit_is_known_by_its_naa_name() {
        let naa = 0x5000_c500_1234_5678;
        let body = encode_identification(naa, Some(naa + 1));
        let data = encode(page::DEVICE_IDENTIFICATION, &body);
        let name = unit_name(&data).unwrap();
        assert_eq!(name, UnitName::Naa(naa.to_be_bytes().to_vec()));
        assert_eq!(name.to_string(), "naa.5000c50012345678");
        assert_eq!(designators(&data).count(), 3);
        // A descriptor that runs past the end of the data is ignored.
        let cut = &data[..data.len() - 1];
        assert_eq!(designators(cut).count(), 2);
        // A name of zeroes is not a name.
        let body = encode_identification(0, Some(5));
        assert_eq!(unit_name(&encode(page::DEVICE_IDENTIFICATION, &body)), None);
        assert_eq!(unit_name(&[]), None);
    }
}
