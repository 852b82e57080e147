//! The regions of a function's registers behind its descriptor, and the parts that can be mapped.

use super::ioctl::{u32_at, u64_at};

/// The number of BARs, which are regions 0 to 5. The ROM and the configuration space follow.
pub(super) const BARS: u32 = 6;
/// The index of the configuration space.
pub(super) const CONFIG_INDEX: u32 = 7;
/// The size of `struct vfio_region_info` without capabilities, in bytes.
pub(super) const INFO_BYTES: u32 = 32;

const FLAG_MMAP: u32 = 1 << 2;
const FLAG_CAPS: u32 = 1 << 3;
const CAP_SPARSE_MMAP: u16 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Region {
    /// The size in bytes; 0 if the function does not have the region.
    pub(super) len: u64,
    pub(super) offset: u64,
    /// The parts that may be mapped: the first byte and the end of each.
    pub(super) mappable: Vec<(u64, u64)>,
}

impl Region {
    /// Parses a `struct vfio_region_info` followed by its capabilities.
    pub(super) fn parse(info: &[u8]) -> Self {
        let flags = u32_at(info, 4);
        let (len, offset) = (u64_at(info, 16), u64_at(info, 24));
        let mut mappable = Vec::new();
        if flags & FLAG_MMAP != 0 {
            let sparse = (flags & FLAG_CAPS != 0)
                .then(|| capability(info, u32_at(info, 12), CAP_SPARSE_MMAP))
                .flatten();
            match sparse {
                Some(cap) => {
                    let count = u32_at(cap, 8) as usize;
                    let areas = cap.get(16..).unwrap_or_default().chunks_exact(16).take(count);
                    mappable = areas
                        .map(|area| (u64_at(area, 0), u64_at(area, 8)))
                        .filter_map(|(at, bytes)| Some((at, at.checked_add(bytes)?)))
                        .filter(|(_, end)| *end <= len)
                        .collect();
                }
                None => mappable.push((0, len)),
            }
        }
        Self { len, offset, mappable }
    }

    pub(super) fn exclude(&mut self, from: u64, to: u64) {
        let parts = std::mem::take(&mut self.mappable);
        self.mappable = parts
            .into_iter()
            .flat_map(|(start, end)| [(start, end.min(from)), (start.max(to), end)])
            .filter(|(start, end)| start < end)
            .collect();
    }

    pub(super) fn may_map(&self, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len) else { return false };
        len > 0 && self.mappable.iter().any(|(start, last)| offset >= *start && end <= *last)
    }

    /// Returns the offset of a range in the function's file, if the range lies inside the region.
    pub(super) fn at(&self, offset: u64, len: usize) -> Option<u64> {
        let end = offset.checked_add(len as u64)?;
        (end <= self.len).then_some(())?;
        self.offset.checked_add(offset)
    }
}

/// Returns the capability from its header to the end of all capabilities. Follows the chain that
/// begins at `first`, and stops if it is circular.
pub(super) fn capability(info: &[u8], first: u32, id: u16) -> Option<&[u8]> {
    let mut at = first as usize;
    for _ in 0..64 {
        let cap = info.get(at..).filter(|cap| at > 0 && cap.len() >= 8)?;
        // The id is the first half of the first word.
        if u16::from_ne_bytes([cap[0], cap[1]]) == id {
            return Some(cap);
        }
        at = u32_at(cap, 4) as usize;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(flags: u32, len: u64, caps: &[(u16, &[u64])]) -> Vec<u8> {
        let mut bytes = vec![0; 32];
        bytes[4..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[16..24].copy_from_slice(&len.to_ne_bytes());
        bytes[24..32].copy_from_slice(&(1u64 << 40).to_ne_bytes());
        if !caps.is_empty() {
            bytes[12..16].copy_from_slice(&32u32.to_ne_bytes());
        }
        for (number, (id, words)) in caps.iter().enumerate() {
            let next = bytes.len() + 8 + 8 * words.len();
            let next = if number + 1 < caps.len() { next as u32 } else { 0 };
            bytes.extend(id.to_ne_bytes());
            bytes.extend(1u16.to_ne_bytes());
            bytes.extend(next.to_ne_bytes());
            words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        }
        bytes
    }

    #[test]
    fn whole_sparse_and_not_at_all() {
        let region = Region::parse(&info(3, 0x4000, &[]));
        assert_eq!((region.len, region.offset), (0x4000, 1 << 40));
        assert!(!region.may_map(0, 0x1000), "not without the flag");
        let region = Region::parse(&info(7, 0x4000, &[]));
        assert!(region.may_map(0, 0x4000) && !region.may_map(0, 0x4001) && !region.may_map(0, 0));
        assert!(!region.may_map(u64::MAX, 2));
        // First another capability, then two areas.
        let caps: [(u16, &[u64]); 2] = [(3, &[]), (1, &[2, 0, 0x1000, 0x3000, 0x1000])];
        let region = Region::parse(&info(15, 0x4000, &caps));
        assert_eq!(region.mappable, [(0, 0x1000), (0x3000, 0x4000)]);
        assert!(region.may_map(0x3000, 0x1000) && !region.may_map(0x1000, 0x1000));
        assert_eq!(region.at(0x3ff8, 8), Some((1 << 40) + 0x3ff8));
        assert_eq!((region.at(0x3ffc, 8), region.at(u64::MAX, 8)), (None, None));
    }

    #[test]
    fn a_part_taken_out() {
        let mut region = Region::parse(&info(7, 0x4000, &[]));
        region.exclude(0x2000, 0x3000);
        assert_eq!(region.mappable, [(0, 0x2000), (0x3000, 0x4000)]);
        region.exclude(0, 0x2000);
        assert_eq!(region.mappable, [(0x3000, 0x4000)]);
        region.exclude(0x1000, 0x8000);
        assert_eq!(region.mappable, []);
    }

    #[test]
    fn nonsense_ends() {
        // A capability that leads to itself, areas past the end, and more areas stated than
        // present.
        let mut circle = info(15, 0x4000, &[(3, &[])]);
        circle[36..40].copy_from_slice(&32u32.to_ne_bytes());
        assert_eq!(Region::parse(&circle).mappable, [(0, 0x4000)]);
        let far = info(15, 0x4000, &[(1, &[u64::MAX, u64::MAX, 2, 0x4000, 1])]);
        assert_eq!(Region::parse(&far).mappable, []);
        assert_eq!(
            Region::parse(&[0xff; 8]),
            Region { mappable: vec![(0, 0)], ..Region::default() }
        );
    }
}
