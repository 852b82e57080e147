//! The lease on a block of an arena, or on a list of segments.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::arena::{Arena, BlockIndex};
use crate::racy::{RacyBytes, RacyBytesMut};
use crate::scatter::{Parts, Pieces, Segment};
use crate::shared::SharedBytes;

/// The lease on one block: its holder has the bytes to itself.
///
/// A buffer goes down with a request and comes back with the completion, also after an error. When
/// it is dropped, the block returns to its arena.
///
/// A buffer of a foreign arena ([`Arena::foreign`]) is the lease on a list of segments, which its
/// holder fills. Other processes may write these bytes at any time, so such a buffer offers copies
/// and addresses, but no slices: [`Buffer::as_slice`], [`Buffer::bytes`], [`Buffer::bytes_mut`] and
/// [`Buffer::shared`] are empty.
pub struct Buffer {
    arena: Arc<Arena>,
    block: u32,
}

impl Buffer {
    /// Creates the lease on `block`. There must be no other one.
    pub(crate) fn new(arena: Arc<Arena>, block: u32) -> Self {
        Self { arena, block }
    }

    #[inline(always)]
    #[must_use]
    pub fn block(&self) -> BlockIndex {
        BlockIndex(self.block)
    }

    #[inline(always)]
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the length in bytes: the arena's block size, or the sum of the list's segments.
    #[inline(always)]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a block is never empty")]
    pub fn len(&self) -> usize {
        match self.arena.block_size() {
            0 => self.list_bytes(),
            block_size => block_size,
        }
    }

    #[cold]
    fn list_bytes(&self) -> usize {
        // SAFETY: this is the list's lease, and it is borrowed.
        self.arena.scatter().map_or(0, |scatter| unsafe { scatter.len_bytes(self.block) })
    }

    /// Whether the buffer is a list of segments.
    #[inline(always)]
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.arena.block_size() == 0
    }

    /// Fills the list with other segments.
    ///
    /// # Errors
    /// `InvalidInput` if a segment is empty or does not lie in its region, if there are more
    /// segments than the arena's lists take, or if the buffer is a block. The list is then empty.
    pub fn fill(&mut self, segments: impl IntoIterator<Item = Segment>) -> io::Result<()> {
        let Some(scatter) = self.arena.scatter() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // SAFETY: this is the list's lease, and it is borrowed mutably.
        unsafe { scatter.fill(self.block, segments) }
    }

    /// Returns a part of the buffer piece by piece, for system calls and DMA; cut off at the end.
    /// Code that writes to the addresses must own the buffer by value.
    #[inline]
    #[must_use]
    pub fn pieces(&self, offset: usize, len: usize) -> Pieces<'_> {
        if let Some(parts) = self.parts(offset, len) {
            return Pieces::of_list(parts);
        }
        let offset = offset.min(self.len());
        Pieces::of_block(self.as_ptr().wrapping_add(offset), len.min(self.len() - offset))
    }

    fn parts(&self, offset: usize, len: usize) -> Option<Parts<'_>> {
        // SAFETY: this is the list's lease, and it is borrowed.
        self.arena.scatter().map(|scatter| unsafe { scatter.parts(self.block, offset, len) })
    }

    fn holds(&self, offset: usize, len: usize) -> bool {
        offset <= self.len() && len <= self.len() - offset
    }

    /// Returns the address of a block's first byte, for system calls and DMA. The address is valid
    /// while the buffer lives. Code that writes through it must own the buffer by value.
    #[inline(always)]
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.arena.address(self.block)
    }

    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: in the mapping; the lease excludes other writers (points 2 and 4).
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.arena.block_size()) }
    }

    /// Returns the bytes for reading word by word.
    #[must_use]
    pub fn bytes(&self) -> RacyBytes<'_> {
        // SAFETY: in the mapping, aligned to at least 512.
        unsafe { RacyBytes::new(self.as_ptr(), self.arena.block_size()) }
    }

    /// Returns the bytes for writing.
    #[must_use]
    pub fn bytes_mut(&mut self) -> RacyBytesMut<'_> {
        // SAFETY: in the mapping, aligned to at least 512; `&mut self` is the block's only writer
        // (point 2).
        unsafe { RacyBytesMut::new(self.as_ptr(), self.arena.block_size()) }
    }

    /// Returns the bytes to be shared with a device that reads and writes them at any time, as in a
    /// queue.
    #[inline(always)]
    #[must_use]
    pub fn shared(&mut self) -> SharedBytes<'_> {
        // SAFETY: in the mapping, aligned to at least 512; `&mut self` keeps references away while
        // this lives.
        unsafe { SharedBytes::new(self.as_ptr(), self.arena.block_size(), true) }
    }

    /// Returns a part of the bytes of a block for writing; `offset` is a multiple of 8.
    ///
    /// # Panics
    /// Panics if the part does not lie inside the block.
    #[must_use]
    pub fn part_mut(&mut self, offset: usize, len: usize) -> RacyBytesMut<'_> {
        let block_size = self.arena.block_size();
        assert!((offset | len).is_multiple_of(8));
        assert!(offset <= block_size && len <= block_size - offset);
        // SAFETY: inside the mapping, and of whole words, by the assertions; `&mut self` is the
        // block's only writer.
        unsafe { RacyBytesMut::new(self.as_ptr().add(offset), len) }
    }

    /// Copies `source` to `offset` in bytes. Copies nothing if it does not fit.
    pub fn copy_from(&mut self, offset: usize, source: &[u8]) {
        if !self.is_list() {
            return self.bytes_mut().copy_from(offset, source);
        }
        if self.holds(offset, source.len()) {
            let mut rest = source;
            for (bytes, at, len) in self.parts(offset, source.len()).into_iter().flatten() {
                let (part, later) = rest.split_at(len);
                bytes.copy_from(at, part);
                rest = later;
            }
        }
    }

    /// Copies bytes from `offset` on into `target`. Zeroes `target` if they do not all lie inside.
    pub fn copy_to(&self, offset: usize, target: &mut [u8]) {
        if !self.is_list() {
            return self.bytes().copy_to(offset, target);
        }
        if !self.holds(offset, target.len()) {
            return target.fill(0);
        }
        let mut rest = target;
        for (bytes, at, len) in self.parts(offset, rest.len()).into_iter().flatten() {
            let (part, later) = rest.split_at_mut(len);
            bytes.copy_to(at, part);
            rest = later;
        }
    }

    /// Copies `len` bytes from `offset` on to memory shared with a device. Copies nothing if they
    /// do not lie inside both.
    pub fn copy_out(&mut self, offset: usize, target: SharedBytes<'_>, at: usize, len: usize) {
        if !self.is_list() {
            return SharedBytes::copy_between(self.shared(), offset, target, at, len);
        }
        let fits = self.holds(offset, len) && at <= target.len() && len <= target.len() - at;
        let mut to = at;
        for (bytes, from, len) in self.parts(offset, len).into_iter().flatten().filter(|_| fits) {
            SharedBytes::copy_between(bytes, from, target, to, len);
            to += len;
        }
    }

    /// Copies `len` bytes from memory shared with a device to `offset`. Copies nothing if they do
    /// not lie inside both.
    pub fn copy_in(&mut self, offset: usize, source: SharedBytes<'_>, at: usize, len: usize) {
        if !self.is_list() {
            return SharedBytes::copy_between(source, at, self.shared(), offset, len);
        }
        let fits = self.holds(offset, len) && at <= source.len() && len <= source.len() - at;
        let mut from = at;
        for (bytes, to, len) in self.parts(offset, len).into_iter().flatten().filter(|_| fits) {
            SharedBytes::copy_between(source, from, bytes, to, len);
            from += len;
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_list() { "List" } else { "Buffer" };
        write!(f, "{what} {} of arena #{}", self.block, self.arena.id())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.arena.put_back(self.block);
    }
}

/// A block that stays shared with a device, and may be used by any number of threads. No reference
/// to its bytes is formed any more.
#[derive(Debug)]
pub struct SharedBlock(Buffer);

impl SharedBlock {
    /// Shares a block of this process's own memory; a list of segments is not allowed.
    #[must_use]
    pub fn new(buffer: Buffer) -> Self {
        debug_assert!(!buffer.is_list());
        Self(buffer)
    }

    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: in the mapping, aligned to at least 512; the lease is `self.0`, which lends no
        // references.
        unsafe { SharedBytes::new(self.0.as_ptr(), self.0.arena.block_size(), true) }
    }

    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        self.0.arena()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    fn segment(region: u32, offset_bytes: u64, len_bytes: u32) -> Segment {
        Segment { region, offset_bytes, len_bytes }
    }

    fn two_regions() -> (Vec<Arc<Mapping>>, Arc<Arena>) {
        let regions: Vec<_> = (0..2).map(|_| Mapping::new_file(8192).unwrap().0).collect();
        let arena = Arena::foreign(regions.clone(), 2, 3);
        (regions, arena)
    }

    #[test]
    fn a_list_is_one_buffer_of_its_segments() {
        let (regions, arena) = two_regions();
        let mut list = arena.lease().unwrap();
        assert!(list.is_list() && list.len() == 0 && list.pieces(0, 10).next().is_none());
        // The third segment lies before the first, and neither begins on a word.
        list.fill([segment(0, 4099, 100), segment(1, 0, 1), segment(0, 5, 3000)]).unwrap();
        assert_eq!(list.len(), 3101);
        let data: Vec<u8> = (0..3101u32).map(|at| (at % 251) as u8).collect();
        list.copy_from(0, &data);
        let mut out = vec![0; 3101];
        list.copy_to(0, &mut out);
        assert_eq!(out, data);
        regions[0].bytes().copy_to(5, &mut out[..3000]);
        assert_eq!(out[..3000], data[101..]);
        assert_eq!(regions[1].bytes().load_u8(0), data[100]);
        // Ranges of the list, across segments.
        for (offset, len) in [(0, 0), (99, 3), (100, 1), (50, 2000), (3100, 1)] {
            list.copy_to(offset, &mut out[..len]);
            assert_eq!(out[..len], data[offset..offset + len]);
            let pieces: Vec<_> = list.pieces(offset, len).collect();
            assert_eq!(pieces.iter().map(|piece| piece.len_bytes).sum::<usize>(), len);
        }
        let places: Vec<_> = list.pieces(99, 3).map(|piece| piece.address as usize).collect();
        let start = |region: usize| regions[region].bytes().address(0) as usize;
        assert_eq!(places, [start(0) + 4099 + 99, start(1), start(0) + 5]);
    }

    #[test]
    fn a_list_and_device_memory() {
        let (_, arena) = two_regions();
        let mut list = arena.lease().unwrap();
        list.fill([segment(0, 3, 10), segment(1, 8182, 10)]).unwrap();
        let device = Mapping::new_anonymous(4096).unwrap();
        device.bytes().copy_from(7, b"abcdefghijklmnopqrst");
        list.copy_in(0, device.bytes(), 7, 20);
        list.copy_out(5, device.bytes(), 100, 15);
        let mut out = [0; 15];
        device.bytes().copy_to(100, &mut out);
        assert_eq!(&out, b"fghijklmnopqrst");
        list.copy_in(1, device.bytes(), 200, 20);
        list.copy_from(1, &[0; 20]);
        list.copy_to(0, &mut out);
        assert_eq!(&out, b"abcdefghijklmno", "what does not fit is dropped whole");
    }

    #[test]
    fn segments_that_are_none_are_refused() {
        let (_, arena) = two_regions();
        let mut list = arena.lease().unwrap();
        for wrong in [
            segment(2, 0, 1),
            segment(0, 0, 0),
            segment(0, 8192, 1),
            segment(1, 8191, 2),
            segment(1, u64::MAX, 2),
        ] {
            list.fill([segment(0, 0, 512), segment(0, 0, 512)]).unwrap();
            let error = list.fill([segment(0, 0, 512), wrong]).unwrap_err();
            assert_eq!((error.kind(), list.len()), (io::ErrorKind::InvalidInput, 0), "{wrong:?}");
        }
        assert!(list.fill([segment(0, 0, 1); 4]).is_err(), "more than a list takes");
        let block = Arena::new(512, 1, crate::ArenaOptions::ordinary_pages()).unwrap();
        assert!(block.lease().unwrap().fill([]).is_err());
    }

    #[test]
    fn a_list_keeps_its_memory_and_its_place() {
        let (regions, arena) = two_regions();
        let lists: Vec<_> = std::iter::from_fn(|| arena.lease()).collect();
        assert_eq!(lists.len(), 2);
        let weak = Arc::downgrade(&regions[0]);
        drop((regions, arena));
        assert!(weak.upgrade().is_some());
        drop(lists);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn memory_that_shrinks_is_seen() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = std::fs::File::from(rustix::fs::memfd_create("guest", flags).unwrap());
        file.set_len(8192).unwrap();
        let region = Mapping::of_file(std::os::fd::AsFd::as_fd(&file), 0, 8192, true).unwrap();
        let arena = Arena::foreign(vec![region], 1, 1);
        let mut list = arena.lease().unwrap();
        list.fill([segment(0, 4096, 4096)]).unwrap();
        list.copy_from(0, b"here");
        assert!(!arena.is_cut());
        file.set_len(0).unwrap();
        let mut out = [1; 4];
        list.copy_to(0, &mut out);
        assert_eq!((out, arena.is_cut()), ([0; 4], true));
    }
}
