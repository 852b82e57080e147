//! READ CAPACITY: the number of blocks and their size.

use qpair_wire::be::{u16_at, u32_at, u64_at};
use qpair_wire::{put, u8_at};

/// The data of READ CAPACITY (16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub last_block: u64,
    pub block_bytes: u32,
    /// The type of protection information, 1 to 3; 0 for none.
    pub protection: u8,
    /// The number of logical blocks in a physical block, as a power of two.
    pub physical_exponent: u8,
    /// The first logical block that is at the start of a physical block.
    pub aligned_block: u16,
    /// Whether blocks can be unmapped (LBPME).
    pub provisioned: bool,
    /// Whether unmapped blocks read as zeroes (LBPRZ).
    pub reads_zeroes: bool,
}

impl Capacity {
    /// Decodes the data of READ CAPACITY (16).
    #[must_use]
    pub fn decode16(data: &[u8]) -> Option<Self> {
        if data.len() < 12 {
            return None;
        }
        let protect = u8_at(data, 12);
        Some(Self {
            last_block: u64_at(data, 0),
            block_bytes: u32_at(data, 8),
            protection: if protect & 1 != 0 { (protect >> 1 & 7) + 1 } else { 0 },
            physical_exponent: u8_at(data, 13) & 15,
            aligned_block: u16_at(data, 14) & 0x3FFF,
            provisioned: u8_at(data, 14) & 0x80 != 0,
            reads_zeroes: u8_at(data, 14) & 0x40 != 0,
        })
    }

    /// Encodes the data of READ CAPACITY (16).
    #[must_use]
    pub fn encode16(&self) -> [u8; 32] {
        let mut data = [0; 32];
        put(&mut data, 0, &self.last_block.to_be_bytes());
        put(&mut data, 8, &self.block_bytes.to_be_bytes());
        if let Some(kind) = self.protection.checked_sub(1) {
            data[12] = (kind & 7) << 1 | 1;
        }
        data[13] = self.physical_exponent & 15;
        put(&mut data, 14, &(self.aligned_block & 0x3FFF).to_be_bytes());
        data[14] |= u8::from(self.provisioned) << 7 | u8::from(self.reads_zeroes) << 6;
        data
    }

    /// Decodes the data of READ CAPACITY (10). A last block of FFFFFFFFh means that the longer
    /// command has to be used.
    #[must_use]
    pub fn decode10(data: &[u8]) -> Option<Self> {
        (data.len() >= 8).then(|| Self {
            last_block: u32_at(data, 0).into(),
            block_bytes: u32_at(data, 4),
            ..Self::default()
        })
    }

    /// Encodes the data of READ CAPACITY (10).
    #[must_use]
    pub fn encode10(&self) -> [u8; 8] {
        let mut data = [0; 8];
        let last = u32::try_from(self.last_block).unwrap_or(u32::MAX);
        put(&mut data, 0, &last.to_be_bytes());
        put(&mut data, 4, &self.block_bytes.to_be_bytes());
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_bytes() {
        for protection in 0..=3 {
            let capacity = Capacity {
                last_block: (1 << 40) - 1,
                block_bytes: 512,
                protection,
                physical_exponent: 3,
                aligned_block: 7,
                provisioned: true,
                reads_zeroes: true,
            };
            assert_eq!(Capacity::decode16(&capacity.encode16()), Some(capacity));
            assert_eq!(Capacity::decode10(&capacity.encode10()).unwrap().last_block, 0xFFFF_FFFF);
        }
        assert_eq!(Capacity::decode16(&[0; 11]), None);
        assert_eq!(Capacity::decode10(&[0; 7]), None);
    }
}
