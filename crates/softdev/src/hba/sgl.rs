//! Translates a list of scatter-gather elements into memory. Each address is looked up, and each
//! element is read only once.
//!
//! Every walk ends: it looks at a bounded number of elements, however they are chained.

use qpair_mpi_wire::sgl::{ADDRESS_MASK, CHAIN, ELEMENT_BYTES, END_OF_LIST, Element};

use qpair_pci::model::{DmaTable, Extent, LastHit};

/// The maximum number of elements of a list.
const ELEMENTS_MAX: usize = 4096;
/// The memory of one element may lie in several ranges, which begin and end at multiples of this
/// size.
const PAGE: u64 = 4096;

/// The list is invalid, or names memory that is not open to the controller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bad;

pub(crate) struct Walk<'a> {
    pub(crate) table: &'a DmaTable,
    pub(crate) last: &'a mut LastHit,
    /// The extents of the list; cleared before each walk.
    pub(crate) extents: &'a mut Vec<Extent>,
    /// Whether the device writes to the memory.
    pub(crate) is_written: bool,
}

impl Walk<'_> {
    /// Finds the memory of `len` bytes that the list beginning with `first` names.
    pub(crate) fn list(&mut self, first: &[u8], len: u32) -> Result<(), Bad> {
        self.extents.clear();
        let mut segment = first.to_vec();
        let (mut at, mut rest) = (0, len);
        for _ in 0..ELEMENTS_MAX {
            if rest == 0 {
                return Ok(());
            }
            let bytes = segment.get(at..at + ELEMENT_BYTES).ok_or(Bad)?;
            let element = Element::decode(bytes);
            if element.flags & ADDRESS_MASK != 0 {
                return Err(Bad);
            }
            if element.flags & CHAIN != 0 {
                let bytes = element.len as usize;
                if !bytes.is_multiple_of(ELEMENT_BYTES) || bytes > ELEMENTS_MAX * ELEMENT_BYTES {
                    return Err(Bad);
                }
                segment.resize(bytes, 0);
                let mut near = LastHit::default();
                let found = self.table.find(element.address, element.len, &mut near).ok_or(Bad)?;
                let (memory, offset) = self.table.bytes(found).ok_or(Bad)?;
                memory.copy_to(offset, &mut segment);
                at = 0;
                continue;
            }
            let now = element.len.min(rest);
            self.push(element.address, now)?;
            rest -= now;
            if element.flags & END_OF_LIST != 0 && rest > 0 {
                return Err(Bad);
            }
            at += ELEMENT_BYTES;
        }
        Err(Bad)
    }

    /// Finds the memory of one element.
    pub(crate) fn push(&mut self, address: u64, len: u32) -> Result<(), Bad> {
        if self.push_whole(address, len).is_ok() {
            return Ok(());
        }
        let (mut at, mut rest) = (address, len);
        while rest > 0 {
            let now = rest.min((PAGE - at % PAGE) as u32);
            self.push_whole(at, now)?;
            at = at.checked_add(now.into()).ok_or(Bad)?;
            rest -= now;
        }
        Ok(())
    }

    fn push_whole(&mut self, address: u64, len: u32) -> Result<(), Bad> {
        let found = self.table.find(address, len, self.last).ok_or(Bad)?;
        if self.is_written && !self.table.is_writable(found) {
            return Err(Bad);
        }
        DmaTable::append(self.extents, found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use qpair_memory::{DmaMemory, Mapping};

    use super::*;

    #[test]
    fn lists_and_chains() {
        let memory = DmaMemory::of_mapping(Mapping::new_file(64 << 10).unwrap().0);
        let table = DmaTable::default().with(0x10000, memory.clone()).unwrap();
        let simple = |address, len, flags| Element { address, len, flags, next_chain: 0 };
        let chained =
            [simple(0x12000, 512, 0).encode(), simple(0x14000, 512, END_OF_LIST).encode()];
        memory.bytes().copy_from(0x8000, chained.as_flattened());
        let walk = |first: &[Element], len: u32| {
            let bytes: Vec<u8> = first.iter().flat_map(|element| element.encode()).collect();
            let (mut last, mut extents) = (LastHit::default(), Vec::new());
            let mut walk =
                Walk { table: &table, last: &mut last, extents: &mut extents, is_written: true };
            let done = walk.list(&bytes, len);
            done.map(|()| extents.iter().map(|extent| extent.len_bytes()).collect::<Vec<_>>())
        };
        let chain = simple(0x18000, 32, CHAIN);
        assert_eq!(walk(&[simple(0x10000, 512, 0), chain], 1536), Ok(vec![512, 512, 512]));
        assert_eq!(walk(&[simple(0x10000, 512, END_OF_LIST)], 512), Ok(vec![512]));
        assert_eq!(walk(&[], 0), Ok(vec![]));
        assert_eq!(walk(&[simple(0x10000, 512, END_OF_LIST)], 513), Err(Bad), "too short");
        assert_eq!(walk(&[simple(0xF000, 512, END_OF_LIST)], 512), Err(Bad), "not open");
        assert_eq!(walk(&[simple(0x1FFFF, 2, END_OF_LIST)], 2), Err(Bad), "over the end");
        assert_eq!(walk(&[simple(0x10000, 512, 1)], 512), Err(Bad), "the controller's own memory");
        assert_eq!(walk(&[simple(0x10000, 512, 0)], 1024), Err(Bad), "no end");
        // A segment leads to itself.
        memory.bytes().copy_from(0xA000, &simple(0x1A000, 16, CHAIN).encode());
        assert_eq!(walk(&[simple(0x1A000, 16, CHAIN)], 512), Err(Bad));
        // The elements have no bytes.
        let nothing = simple(0x10000, 0, 0);
        memory.bytes().copy_from(
            0xC000,
            [nothing.encode(), simple(0x1C000, 32, CHAIN).encode()].as_flattened(),
        );
        assert_eq!(walk(&[simple(0x1C000, 32, CHAIN)], 512), Err(Bad));
    }
}
