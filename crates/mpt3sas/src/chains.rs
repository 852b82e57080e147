//! Lists of elements that do not fit into a request frame: their layout, and writing one.
//!
//! A frame has room for a few elements. If there are more, its last element is a chain element,
//! which names a segment of the list. The last element of a segment is a chain element too, as long
//! as more elements follow. All segments of a command are one block of an arena.

use qpair_memory::SharedBytes;
use qpair_mpi_wire::init::Facts;
use qpair_mpi_wire::scsi_io::SGL_AT;
use qpair_mpi_wire::sgl::{CHAIN, ELEMENT_BYTES, END_OF_LIST, Element};

/// The maximum number of useful elements of a list: 4 MiB in pages, at any alignment.
const ELEMENTS_MAX: u32 = 1025;
/// The number of elements of a segment, if the controller does not state one.
const SEGMENT_ELEMENTS: u16 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chains {
    /// The number of elements that a frame has room for.
    in_frame: u32,
    /// The number of elements of a segment, including the chain element.
    in_segment: u32,
    segments: u32,
}

impl Chains {
    pub(crate) fn new(facts: &Facts) -> Self {
        let in_frame = (facts.frame_bytes as usize - SGL_AT) / ELEMENT_BYTES;
        let in_segment = match facts.chain_elements {
            0 => SEGMENT_ELEMENTS,
            // The chain element's index is one byte, which limits the elements.
            elements => elements.clamp(2, u8::MAX.into()),
        };
        let wanted = ELEMENTS_MAX.div_ceil(u32::from(in_segment) - 1);
        Self {
            in_frame: in_frame as u32,
            in_segment: in_segment.into(),
            segments: wanted.min(facts.chain_depth_max.into()),
        }
    }

    pub(crate) fn elements_max(&self) -> u32 {
        match self.segments {
            0 => self.in_frame,
            segments => self.in_frame - 1 + segments * (self.in_segment - 1) + 1,
        }
    }

    pub(crate) fn needs_segments(&self, elements: u32) -> bool {
        elements > self.in_frame
    }

    /// Returns the bytes of the segments of one command.
    pub(crate) fn block_bytes(&self) -> usize {
        self.segments.max(1) as usize * self.in_segment as usize * ELEMENT_BYTES
    }

    /// Writes a list of `count` elements: to the frame, and the rest to a block of segments, which
    /// is at `block.1` for the controller.
    ///
    /// Returns the offset of the chain element in the frame, in units of its size; 0: there is
    /// none.
    pub(crate) fn write(
        &self,
        frame: SharedBytes<'_>,
        block: Option<(SharedBytes<'_>, u64)>,
        count: u32,
        elements: impl Iterator<Item = (u64, u32)>,
    ) -> u8 {
        let store = |memory: SharedBytes<'_>, at: usize, element: Element| {
            let [first, second] = element.words();
            memory.store_u64(at, first);
            memory.store_u64(at + ELEMENT_BYTES / 2, second);
        };
        let (mut memory, mut at, mut room) = (frame, SGL_AT, self.in_frame);
        let (mut left, mut segments, mut chain_offset) = (count, 0, 0);
        for (address, len) in elements.take(count as usize) {
            if let (1, 2.., Some((block, iova))) = (room, left, block) {
                if segments == 0 {
                    chain_offset = (at / ELEMENT_BYTES) as u8;
                }
                let segment_bytes = self.in_segment as usize * ELEMENT_BYTES;
                let start = segments * segment_bytes;
                room = left.min(self.in_segment);
                let next_chain = if left > room { (room - 1) as u8 } else { 0 };
                let address = iova + start as u64;
                let len = room * ELEMENT_BYTES as u32;
                store(memory, at, Element { address, len, next_chain, flags: CHAIN });
                (memory, at) = (block, start);
                segments += 1;
            }
            let flags = if left == 1 { END_OF_LIST } else { 0 };
            store(memory, at, Element { address, len, next_chain: 0, flags });
            (at, room, left) = (at + ELEMENT_BYTES, room - 1, left - 1);
        }
        chain_offset
    }
}

#[cfg(test)]
mod tests {
    use qpair_block::{Arena, ArenaOptions};

    use super::*;

    /// Reads a list as a controller does. Returns its elements, and the bytes of its segments.
    fn read(frame: &[u8], block: &[u8], iova: u64) -> (Vec<(u64, u32)>, Vec<u32>) {
        let (mut all, mut segments, mut memory, mut at) = (Vec::new(), Vec::new(), frame, SGL_AT);
        loop {
            let element = Element::decode(&memory[at..at + ELEMENT_BYTES]);
            if element.flags & CHAIN != 0 {
                let start = (element.address - iova) as usize;
                memory = &block[start..start + element.len as usize];
                // The last element is a chain element if the list has another segment.
                let last = Element::decode(&memory[memory.len() - ELEMENT_BYTES..]);
                let named = usize::from(element.next_chain) * ELEMENT_BYTES;
                let is_chain = last.flags & CHAIN != 0;
                assert_eq!(named, if is_chain { memory.len() - ELEMENT_BYTES } else { 0 });
                segments.push(element.len);
                at = 0;
                continue;
            }
            all.push((element.address, element.len));
            if element.flags & END_OF_LIST != 0 {
                return (all, segments);
            }
            at += ELEMENT_BYTES;
        }
    }

    #[test]
    fn lists_of_every_length() {
        for (frame_bytes, chain_elements, depth) in
            [(128, 8, 128), (128, 0, 3), (256, 2, 9), (112, 64, 2)]
        {
            let facts =
                Facts { frame_bytes, chain_elements, chain_depth_max: depth, ..Facts::default() };
            let chains = Chains::new(&facts);
            assert!(chains.segments <= u32::from(depth));
            let size = chains.block_bytes().next_power_of_two().max(512);
            let arena = Arena::new(size, 2, ArenaOptions::ordinary_pages()).unwrap();
            for count in 1..=chains.elements_max() {
                let (mut frame, mut block) = (arena.lease().unwrap(), arena.lease().unwrap());
                let elements = (0..count).map(|number| (u64::from(number) << 12, number + 1));
                let given = chains.needs_segments(count).then(|| (block.shared(), 1 << 32));
                let chain_offset = chains.write(frame.shared(), given, count, elements.clone());
                let (found, segments) = read(frame.as_slice(), block.as_slice(), 1 << 32);
                assert_eq!(found, elements.collect::<Vec<_>>(), "{count} elements");
                assert_eq!(chain_offset == 0, segments.is_empty());
                assert!(segments.len() <= usize::from(depth));
                assert!(segments.iter().all(|bytes| *bytes <= chains.in_segment * 16));
            }
        }
    }

    #[test]
    fn no_more_than_the_controller_takes() {
        let of = |chain_depth_max| {
            let facts =
                Facts { frame_bytes: 128, chain_elements: 8, chain_depth_max, ..Facts::default() };
            Chains::new(&facts).elements_max()
        };
        assert_eq!((of(0), of(1), of(2), of(128)), (2, 9, 16, 898));
        assert!(of(255) >= ELEMENTS_MAX);
    }
}
