//! Foreign memory, and lists of segments in it.
//!
//! Invariants:
//! - a segment in a list lies in a region of the same [`Scatter`], which keeps the region mapped;
//! - list `n` is changed only while the one lease on it is mutably borrowed, and read only through
//!   that lease.

use std::cell::UnsafeCell;
use std::io;
use std::sync::Arc;

use crate::mapping::Mapping;
use crate::shared::SharedBytes;

/// A piece of a foreign arena's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub region: u32,
    /// The offset of the first byte in the region.
    pub offset_bytes: u64,
    /// The length in bytes; not 0.
    pub len_bytes: u32,
}

/// A contiguous part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The address of the first byte; valid as long as the buffer lives.
    pub address: *mut u8,
    /// The length in bytes; not 0.
    pub len_bytes: usize,
}

struct List {
    segments: Vec<Segment>,
    len_bytes: usize,
}

/// The mapped regions and the lists of segments that a foreign arena has in place of blocks.
pub(crate) struct Scatter {
    regions: Box<[Arc<Mapping>]>,
    lists: Box<[UnsafeCell<List>]>,
    pub(crate) segments_max: usize,
}

// SAFETY: a list is accessed only through the one lease on it (the second invariant), which one
// thread at a time borrows mutably.
unsafe impl Sync for Scatter {}

impl Scatter {
    pub(crate) fn new(regions: Vec<Arc<Mapping>>, lists: u32, segments_max: usize) -> Self {
        let list = || List { segments: Vec::with_capacity(segments_max), len_bytes: 0 };
        Self {
            regions: regions.into(),
            lists: (0..lists).map(|_| UnsafeCell::new(list())).collect(),
            segments_max,
        }
    }

    pub(crate) fn regions(&self) -> &[Arc<Mapping>] {
        &self.regions
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.regions.iter().any(|region| region.is_cut())
    }

    /// # Safety
    /// The caller must have the lease on list `number`, and borrow it for as long as the result
    /// lives.
    unsafe fn list(&self, number: u32) -> &List {
        // SAFETY: nothing changes the list while the lease is borrowed (the second invariant).
        unsafe { &*self.lists[number as usize].get() }
    }

    /// # Safety
    /// As [`Scatter::list`].
    pub(crate) unsafe fn len_bytes(&self, number: u32) -> usize {
        // SAFETY: as the caller promises.
        unsafe { self.list(number) }.len_bytes
    }

    /// Replaces the content of a list. The list is empty after an error.
    ///
    /// # Safety
    /// The caller must have the lease on list `number`, and borrow it mutably.
    pub(crate) unsafe fn fill(
        &self,
        number: u32,
        segments: impl IntoIterator<Item = Segment>,
    ) -> io::Result<()> {
        // SAFETY: nothing else reads or changes the list (the second invariant).
        let list = unsafe { &mut *self.lists[number as usize].get() };
        list.segments.clear();
        list.len_bytes = 0;
        for segment in segments {
            if list.segments.len() == self.segments_max || !self.is_inside(segment) {
                list.segments.clear();
                list.len_bytes = 0;
                return Err(io::ErrorKind::InvalidInput.into());
            }
            list.len_bytes += segment.len_bytes as usize;
            list.segments.push(segment);
        }
        Ok(())
    }

    fn is_inside(&self, segment: Segment) -> bool {
        let Segment { region, offset_bytes, len_bytes } = segment;
        let Some(region) = self.regions.get(region as usize) else { return false };
        let region_bytes = region.bytes().len() as u64;
        len_bytes > 0
            && offset_bytes <= region_bytes
            && u64::from(len_bytes) <= region_bytes - offset_bytes
    }

    /// Returns the parts of a range of a list, cut off at the list's end.
    ///
    /// # Safety
    /// As [`Scatter::list`].
    pub(crate) unsafe fn parts(&self, number: u32, offset: usize, len: usize) -> Parts<'_> {
        // SAFETY: as the caller promises.
        let segments = unsafe { self.list(number) }.segments.as_slice();
        Parts { regions: &self.regions, segments, skip: offset, left: len }
    }
}

/// The bytes of a region, an offset in them, and a length.
type Part<'a> = (SharedBytes<'a>, usize, usize);

/// An iterator over the parts of a range of a list.
#[derive(Clone)]
pub(crate) struct Parts<'a> {
    regions: &'a [Arc<Mapping>],
    segments: &'a [Segment],
    skip: usize,
    left: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    #[inline]
    fn next(&mut self) -> Option<Part<'a>> {
        while self.left > 0 {
            let (segment, rest) = self.segments.split_first()?;
            self.segments = rest;
            let len = segment.len_bytes as usize;
            if self.skip < len {
                let at = std::mem::take(&mut self.skip);
                let len = (len - at).min(self.left);
                self.left -= len;
                let bytes = self.regions.get(segment.region as usize)?.bytes();
                return Some((bytes, segment.offset_bytes as usize + at, len));
            }
            self.skip -= len;
        }
        None
    }
}

/// An iterator over the contiguous pieces of a part of a buffer: one piece of a block, several of a
/// list.
#[derive(Clone)]
pub struct Pieces<'a>(Source<'a>);

#[derive(Clone)]
enum Source<'a> {
    Block(Option<Piece>),
    List(Parts<'a>),
}

impl<'a> Pieces<'a> {
    pub(crate) fn of_block(address: *mut u8, len_bytes: usize) -> Self {
        Self(Source::Block((len_bytes > 0).then_some(Piece { address, len_bytes })))
    }

    pub(crate) fn of_list(parts: Parts<'a>) -> Self {
        Self(Source::List(parts))
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        match &mut self.0 {
            Source::Block(piece) => piece.take(),
            Source::List(parts) => parts.next().map(|(bytes, offset, len_bytes)| Piece {
                address: bytes.address(offset),
                len_bytes,
            }),
        }
    }
}
