//! The part of a segment that a reader has in memory, and the reads that it asks for.
//!
//! Reads are multiples of the block, lie within one segment, and never exceed the agreed length.
//! The tags at the ends of blocks are left out of the bytes; places in the segment count them.

use std::ops::Range;

use super::position::LogGeometry;

pub(super) enum Fetched {
    /// The bytes are in [`Window::bytes`].
    Ready(Range<usize>),
    /// The caller must first read these bytes from the device and give them.
    Ask { offset_bytes: u64, len_bytes: u32 },
    /// The device does not have the bytes.
    Missing,
}

/// The bytes of one segment that were read.
#[derive(Clone, Debug)]
pub(super) struct Window {
    geometry: LogGeometry,
    /// The number of bytes to ask for at once.
    read_bytes: u32,
    segment_offset_bytes: u64,
    /// The offset of the window in the segment.
    start: u32,
    bytes: Vec<u8>,
    /// The number of bytes that were asked for and not given yet.
    asked: Option<u32>,
    /// Whether the device gave less than was asked for, so that there is no more of this segment.
    short: bool,
}

impl Window {
    pub(super) fn new(geometry: LogGeometry, segment_offset_bytes: u64, read_bytes: u32) -> Self {
        let block = geometry.block_bytes.max(1);
        Self {
            geometry,
            read_bytes: (read_bytes / block).max(1) * block,
            segment_offset_bytes,
            start: 0,
            bytes: Vec::new(),
            asked: None,
            short: false,
        }
    }

    /// Returns the bytes that the ranges of the last [`fetch`](Self::fetch) refer to.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Moves the window to the segment at `segment_offset_bytes`.
    pub(super) fn turn_to(&mut self, segment_offset_bytes: u64) {
        if self.segment_offset_bytes != segment_offset_bytes {
            self.segment_offset_bytes = segment_offset_bytes;
            self.bytes.clear();
            self.start = 0;
            self.short = false;
        }
    }

    /// Returns `len` bytes of content from the block at `from` on, which must lie within the
    /// segment, or asks for them. `ahead` says that the following bytes are wanted too.
    pub(super) fn fetch(&mut self, from: u32, len: u32, ahead: bool) -> Fetched {
        let begin = self.geometry.content_of(from);
        let start = self.geometry.content_of(self.start);
        let (to, end) = (begin + len, start + self.bytes.len() as u32);
        if begin >= start && to <= end {
            let at = (begin - start) as usize;
            return Fetched::Ready(at..at + len as usize);
        }
        if let Some(asked) = self.asked {
            return self.ask(self.end(), asked);
        }
        if self.short {
            return Fetched::Missing;
        }
        if begin < start || begin >= end {
            self.bytes.clear();
        } else {
            self.bytes.drain(..(begin - start) as usize);
        }
        self.start = from;
        let at = self.end();
        let needed = self.geometry.blocks_of((to - self.geometry.content_of(at)).into()) as u32;
        let wanted = if ahead { self.read_bytes } else { needed.min(self.read_bytes) };
        self.ask(at, wanted.min(self.geometry.segment_bytes - at))
    }

    /// Returns the end of the window in the segment. All reads end with whole blocks, except for
    /// the last one of a device that is too short.
    fn end(&self) -> u32 {
        self.start + self.geometry.blocks_of(self.bytes.len() as u64) as u32
    }

    fn ask(&mut self, at: u32, len_bytes: u32) -> Fetched {
        self.asked = Some(len_bytes);
        Fetched::Ask { offset_bytes: self.segment_offset_bytes + u64::from(at), len_bytes }
    }

    /// Takes the bytes that were asked for, or fewer if there are no more.
    pub(super) fn give(&mut self, bytes: &[u8]) {
        let Some(asked) = self.asked.take() else { return };
        let len = bytes.len().min(asked as usize);
        match self.geometry.tag_bytes {
            0 => self.bytes.extend_from_slice(&bytes[..len]),
            _ => {
                let content = self.geometry.content_bytes() as usize;
                let blocks = bytes[..len].chunks(self.geometry.block_bytes as usize);
                blocks.for_each(|block| {
                    self.bytes.extend_from_slice(&block[..block.len().min(content)]);
                });
            }
        }
        self.short |= len < asked as usize;
    }
}
