//! Mode parameters: the header, and pages. A disk needs only the caching page.

use crate::command::Width;
use qpair_wire::be::u16_at;
use qpair_wire::{put, u8_at};

/// Page codes.
pub mod page {
    pub const ERROR_RECOVERY: u8 = 0x01;
    pub const CACHING: u8 = 0x08;
    pub const CONTROL: u8 = 0x0A;
    pub const INFORMATIONAL_EXCEPTIONS: u8 = 0x1C;
    pub const ALL: u8 = 0x3F;
}

/// The size of the caching page, in bytes.
pub const CACHING_BYTES: usize = 20;
/// The bit in byte 2 of the caching page that says the write cache is enabled.
pub const WRITE_CACHE: u8 = 1 << 2;

/// The header before the pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Whether the unit is write-protected (WP).
    pub write_protected: bool,
    /// Whether DPO and FUA are supported.
    pub force_unit_access: bool,
    /// The offset of the first page.
    pub pages_at: usize,
}

impl Head {
    /// Decodes the header of a disk's MODE SENSE data.
    #[must_use]
    pub fn decode(data: &[u8], width: Width) -> Option<Self> {
        let (specific, blocks, head) = match width {
            Width::Six => (u8_at(data, 2), usize::from(u8_at(data, 3)), 4),
            _ => (u8_at(data, 3), usize::from(u16_at(data, 6)), 8),
        };
        (data.len() >= head).then_some(Self {
            write_protected: specific & 0x80 != 0,
            force_unit_access: specific & 0x10 != 0,
            pages_at: head + blocks,
        })
    }

    /// Encodes MODE SENSE data: this header, the given block descriptors, and pages.
    #[must_use]
    pub fn encode(&self, width: Width, blocks: &[u8], pages: &[u8]) -> Vec<u8> {
        let specific = u8::from(self.write_protected) << 7 | u8::from(self.force_unit_access) << 4;
        let mut data = match width {
            Width::Six => vec![0, 0, specific, blocks.len() as u8],
            _ => {
                let mut data = vec![0, 0, 0, specific, 0, 0, 0, 0];
                put(&mut data, 6, &(blocks.len() as u16).to_be_bytes());
                data
            }
        };
        data.extend(blocks);
        data.extend(pages);
        match width {
            Width::Six => data[0] = (data.len() - 1).min(255) as u8,
            _ => {
                let len = (data.len() - 2) as u16;
                put(&mut data, 0, &len.to_be_bytes());
            }
        }
        data
    }
}

/// Returns the pages of mode parameters: number, subpage, and the whole page.
pub fn pages(mut rest: &[u8]) -> impl Iterator<Item = (u8, u8, &[u8])> {
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let (subpage, len) = match first & 0x40 {
            0 => (0, 2 + usize::from(*rest.get(1)?)),
            _ => (*rest.get(1)?, 4 + usize::from(u16_at(rest, 2))),
        };
        let page = rest.get(..len)?;
        rest = &rest[len..];
        Some((first & 0x3F, subpage, page))
    })
}

/// Encodes the caching page.
#[must_use]
pub fn encode_caching(write_cache: bool) -> [u8; CACHING_BYTES] {
    let mut page = [0; CACHING_BYTES];
    page[0] = page::CACHING;
    page[1] = (CACHING_BYTES - 2) as u8;
    page[2] = if write_cache { WRITE_CACHE } else { 0 };
    page
}

/// Whether the caching page says that a write cache is in use; `None` if there is no caching page.
#[must_use]
pub fn decode_caching(rest: &[u8]) -> Option<bool> {
    pages(rest)
        .find(|(number, subpage, page)| {
            (*number, *subpage) == (page::CACHING, 0) && page.len() >= 3
        })
        .map(|(_, _, page)| page[2] & WRITE_CACHE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_its_bytes() {
        for width in [Width::Six, Width::Ten] {
            for is_on in [false, true] {
                let head = Head { write_protected: is_on, force_unit_access: !is_on, pages_at: 0 };
                let mut all = vec![page::CONTROL, 10];
                all.resize(12, 0);
                all.extend(encode_caching(is_on));
                let data = head.encode(width, &[0; 8], &all);
                let read = Head::decode(&data, width).unwrap();
                assert_eq!(read.write_protected, is_on);
                assert_eq!(read.force_unit_access, !is_on);
                assert_eq!(decode_caching(&data[read.pages_at..]), Some(is_on));
            }
        }
        assert_eq!(Head::decode(&[0; 3], Width::Six), None);
        assert_eq!(decode_caching(&[]), None);
        assert_eq!(decode_caching(&[page::CACHING, 200, 4]), None, "cut short");
        assert_eq!(pages(&[0x48, 1, 0, 2, 9, 9, 0x08, 0]).count(), 2);
    }
}
