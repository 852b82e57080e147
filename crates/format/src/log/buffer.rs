//! The memory of a planned write, and the places in it that content may take.

use qpair_memory::Buffer;

use super::position::LogGeometry;

/// Memory that takes the bytes of a planned write.
pub trait WriteBuffer {
    fn capacity_bytes(&self) -> usize;
    /// Puts `bytes` at `at`; both lie within the capacity.
    fn put(&mut self, at: usize, bytes: &[u8]);
}

impl WriteBuffer for [u8] {
    fn capacity_bytes(&self) -> usize {
        self.len()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl WriteBuffer for Buffer {
    fn capacity_bytes(&self) -> usize {
        self.len()
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.copy_from(at, bytes);
    }
}

/// A buffer in which content skips the tags at the ends of blocks. Places in it count content.
pub(super) struct Blocks<'a, B: WriteBuffer + ?Sized> {
    buffer: &'a mut B,
    geometry: LogGeometry,
}

impl<'a, B: WriteBuffer + ?Sized> Blocks<'a, B> {
    pub(super) fn new(buffer: &'a mut B, geometry: LogGeometry) -> Self {
        Self { buffer, geometry }
    }

    #[inline]
    pub(super) fn put(&mut self, mut at: usize, mut bytes: &[u8]) {
        if self.geometry.tag_bytes == 0 {
            return self.buffer.put(at, bytes);
        }
        let content = self.geometry.content_bytes() as usize;
        let block = self.geometry.block_bytes as usize;
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(content - at % content));
            self.buffer.put(at / content * block + at % content, part);
            (at, bytes) = (at + part.len(), rest);
        }
    }

    pub(super) fn put_zeroes(&mut self, from: usize, to: usize) {
        const ZEROES: [u8; 4096] = [0; 4096];
        let mut at = from;
        while at < to {
            let len = (to - at).min(ZEROES.len());
            self.put(at, &ZEROES[..len]);
            at += len;
        }
    }
}
