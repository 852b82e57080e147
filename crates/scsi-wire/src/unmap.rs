//! The parameter list of UNMAP.

use qpair_wire::be::{u16_at, u32_at, u64_at};
use qpair_wire::put;

/// The size of a list of one range, in bytes.
pub const ONE_RANGE_BYTES: usize = 24;

/// Encodes a list of one range.
#[must_use]
pub fn encode_one(block: u64, blocks: u32) -> [u8; ONE_RANGE_BYTES] {
    let mut data = [0; ONE_RANGE_BYTES];
    put(&mut data, 0, &22u16.to_be_bytes());
    put(&mut data, 2, &16u16.to_be_bytes());
    put(&mut data, 8, &block.to_be_bytes());
    put(&mut data, 16, &blocks.to_be_bytes());
    data
}

/// Decodes the ranges of a list, first block and number of blocks; `None` if its lengths do not
/// match the data.
#[must_use]
pub fn decode(data: &[u8]) -> Option<Vec<(u64, u32)>> {
    if data.is_empty() {
        return Some(Vec::new());
    }
    if data.len() < 8 {
        return None;
    }
    let (whole, ranges) = (usize::from(u16_at(data, 0)), usize::from(u16_at(data, 2)));
    if whole + 2 > data.len() || ranges + 8 > data.len() || ranges + 6 > whole {
        return None;
    }
    let (ranges, _) = data[8..8 + ranges].as_chunks::<16>();
    Some(ranges.iter().map(|range| (u64_at(range, 0), u32_at(range, 8))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_bytes() {
        assert_eq!(decode(&encode_one(1 << 40, 7)), Some(vec![(1 << 40, 7)]));
        assert_eq!(decode(&encode_one(1, 7)[..23]), None);
        assert_eq!(decode(&[]), Some(Vec::new()));
        assert_eq!(decode(&[0, 22, 0, 32, 0, 0, 0, 0]), None);
        assert_eq!(decode(&[0, 6, 0, 0, 0, 0, 0, 0]), Some(Vec::new()));
    }
}
