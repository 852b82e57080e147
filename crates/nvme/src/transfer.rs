//! Turns requests into commands: chooses the part of a request for the next command, and finds the
//! address of its data.
//!
//! The memory behind the rings holds a list of PRP entries for each slot, and bounce buffers. These
//! are for data that the controller cannot access, or that does not lie page by page.

use qpair_memory::SharedBytes;
use qpair_nvme_wire::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;
pub(crate) const BOUNCES: u16 = 8;
/// The maximum number of bytes of a bounce buffer.
const BOUNCE_BYTES_MAX: u32 = 128 << 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    lists_at: usize,
    list_bytes: usize,
    bounces_at: usize,
    pub(crate) bounce_bytes: u32,
    pub(crate) len: usize,
}

impl Layout {
    /// Lays out the memory behind `rings_bytes` of rings, for `slots` slots with commands of at
    /// most `piece_bytes_max` (a power of two).
    pub(crate) fn new(rings_bytes: usize, slots: u16, piece_bytes_max: u32) -> Self {
        // One entry for each page. The first page is not in the list, but the data may extend into
        // one more page at the end. A list never has more than a page of entries.
        let entries = (piece_bytes_max as usize).div_ceil(PAGE_BYTES);
        // At least the size of a deallocation's range. A power of two, so that no list crosses a
        // page.
        let list_bytes = (entries * 8).next_power_of_two().clamp(16, PAGE_BYTES);
        let lists = (usize::from(slots) * list_bytes).next_multiple_of(PAGE_BYTES);
        let bounces_at = rings_bytes + lists;
        let bounce_bytes = piece_bytes_max.min(BOUNCE_BYTES_MAX);
        let bounces = usize::from(BOUNCES) * (bounce_bytes as usize).next_multiple_of(PAGE_BYTES);
        Self {
            lists_at: rings_bytes,
            list_bytes,
            bounces_at,
            bounce_bytes,
            len: bounces_at + bounces,
        }
    }

    #[inline]
    pub(crate) fn list(&self, slot: u16) -> usize {
        self.lists_at + usize::from(slot) * self.list_bytes
    }

    /// Returns the offset of a slot's list, and its bytes.
    pub(crate) fn list_place(&self, slot: u16) -> (usize, usize) {
        (self.list(slot), self.list_bytes)
    }

    pub(crate) fn bounce(&self, number: u16) -> usize {
        let bytes = (self.bounce_bytes as usize).next_multiple_of(PAGE_BYTES);
        self.bounces_at + usize::from(number) * bytes
    }
}

/// Returns the second PRP entry of a transfer of `len_bytes` from `address` on (Base §4.1.1); the
/// first entry is the address. `None` if the transfer needs a list.
#[inline(always)]
pub(crate) fn second_prp(address: u64, len_bytes: u32) -> Option<u64> {
    let in_first = PAGE - (address & (PAGE - 1));
    let len = u64::from(len_bytes);
    if len <= in_first {
        return Some(0);
    }
    (len <= in_first + PAGE).then_some(address + in_first)
}

/// Writes the PRP list of a transfer that needs one to `list_at` in `memory`.
pub(crate) fn write_list(memory: SharedBytes<'_>, list_at: usize, address: u64, len_bytes: u32) {
    let in_first = PAGE - (address & (PAGE - 1));
    let pages = (u64::from(len_bytes) - in_first).div_ceil(PAGE);
    for page in 0..pages {
        memory.store_u64(list_at + 8 * page as usize, address + in_first + page * PAGE);
    }
}

/// Returns the two PRP entries of a transfer of several pieces, each given by its address for the
/// controller and its bytes. Entries behind the first are written to the `list_bytes` at `list_at`
/// in `memory`.
///
/// `None` for pieces that do not lie page by page: only the first may begin inside a page, and only
/// the last may end inside one (Base §4.1.1). A piece that begins where the one before ended is
/// always allowed.
pub(crate) fn prps_of(
    memory: SharedBytes<'_>,
    iova: u64,
    (list_at, list_bytes): (usize, usize),
    pieces: impl Iterator<Item = Option<(u64, u64)>>,
) -> Option<(u64, u64)> {
    let (mut first, mut entries, mut end) = (None, 0, 0);
    for piece in pieces {
        let (address, len) = piece?;
        let mut page = match first {
            None => {
                first = Some(address);
                (address | (PAGE - 1)) + 1
            }
            Some(_) if address == end => address.next_multiple_of(PAGE),
            Some(_) if (address | end) & (PAGE - 1) == 0 => address,
            Some(_) => return None,
        };
        end = address + len;
        while page < end {
            if 8 * entries >= list_bytes {
                return None;
            }
            memory.store_u64(list_at + 8 * entries, page);
            entries += 1;
            page += PAGE;
        }
    }
    let second = match entries {
        0 => 0,
        1 => memory.load_u64(list_at),
        _ => iova + list_at as u64,
    };
    Some((first?, second))
}

#[cfg(test)]
mod tests {
    use qpair_block::Mapping;

    use super::*;

    #[test]
    fn pieces_that_lie_page_by_page_take_no_copy() {
        const IOVA: u64 = 1 << 40;
        let memory = Mapping::new_anonymous(PAGE_BYTES).unwrap();
        let of = |pieces: &[(u64, u64)]| {
            prps_of(memory.bytes(), IOVA, (64, 32), pieces.iter().map(|piece| Some(*piece)))
        };
        let list = Some(IOVA + 64);
        for (pieces, first, second, entries) in [
            (&[(0x1000, 512)][..], 0x1000, Some(0), &[][..]),
            (&[(0x1200, 0xE00), (0x9000, 512)], 0x1200, Some(0x9000), &[0x9000]),
            (&[(0x1000, 0x1000), (0x9000, 0x2000)], 0x1000, list, &[0x9000, 0xA000]),
            (&[(0x1E00, 0x1200), (0x9000, 4)], 0x1E00, list, &[0x2000, 0x9000]),
            // The second piece begins where the first one ended.
            (&[(0x1000, 512), (0x1200, 512)], 0x1000, Some(0), &[]),
            (&[(0x1E00, 0x400), (0x2200, 0x1000)], 0x1E00, list, &[0x2000, 0x3000]),
            (&[(0x1000, 0x5000)], 0x1000, list, &[0x2000, 0x3000, 0x4000, 0x5000]),
        ] {
            assert_eq!(of(pieces), second.map(|second| (first, second)), "{pieces:x?}");
            for (at, entry) in entries.iter().enumerate() {
                assert_eq!(memory.bytes().load_u64(64 + 8 * at), *entry, "{pieces:x?}");
            }
        }
        for pieces in [
            &[][..],
            // The first piece ends inside a page, or the second begins there.
            &[(0x1000, 512), (0x9000, 512)],
            &[(0x1200, 0xE00), (0x9200, 512)],
            &[(0x1000, 0x1000), (0x9000, 512), (0xB000, 512)],
            // The pieces need more entries than the list holds.
            &[(0x1000, 0x6000)],
        ] {
            assert_eq!(of(pieces), None, "{pieces:x?}");
        }
        let unreached = [Some((0x1000, 0x1000)), None].into_iter();
        assert_eq!(prps_of(memory.bytes(), IOVA, (64, 32), unreached), None);
    }

    #[test]
    fn lists_fit_their_place() {
        for shift in 12..=21 {
            let piece = 1u32 << shift;
            let layout = Layout::new(8192, 3, piece);
            // The worst alignment: the first page holds one dword.
            let entries = (u64::from(piece) - 4).div_ceil(PAGE);
            assert!(entries as usize * 8 <= layout.list_bytes, "{piece}");
            for slot in 0..3 {
                let (first, last) = (layout.list(slot), layout.list(slot) + layout.list_bytes - 1);
                assert_eq!(first / PAGE_BYTES, last / PAGE_BYTES, "in one page");
                assert!(last < layout.bounce(0));
            }
            assert!(layout.bounce(BOUNCES - 1) + layout.bounce_bytes as usize <= layout.len);
        }
    }

    #[test]
    fn entries_of_every_alignment() {
        for (address, len, second) in [
            (0x1000, 4096, Some(0)),
            (0x1004, 4092, Some(0)),
            (0x1004, 4096, Some(0x2000)),
            (0x1000, 8192, Some(0x2000)),
            (0x1FFC, 4100, Some(0x2000)),
            (0x1FFC, 4104, None),
            (0x1200, 8192, None),
        ] {
            assert_eq!(second_prp(address, len), second, "{address:#x} {len}");
        }
    }
}
