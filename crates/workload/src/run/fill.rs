//! The content of written buffers that are not verified.
//!
//! Invariant: no byte of a buffer is accessed before a write needs it.

use std::hash::{BuildHasher, RandomState};

use qpair_block::Buffer;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::job::{Content, Shape};

/// The distance of the unique marks in a written block, in bytes. A drive that deduplicates does
/// not compare smaller blocks.
const MARK_BYTES: usize = 512;

pub(super) struct Fill {
    content: Content,
    random: SmallRng,
    /// Scratch memory, as large as the largest write so far.
    scratch: Vec<u8>,
    /// The seed that determines all bytes of the last write of a [`Shape`].
    last: Option<u64>,
}

impl Fill {
    /// Creates a `Fill`. Its bytes depend on `seed` alone, except for unique content, which also
    /// differs between runs.
    pub(super) fn new(content: &Content, seed: u64) -> Self {
        let own = match content {
            Content::Unique | Content::Shaped(_) => RandomState::new().hash_one(seed),
            _ => 0,
        };
        let random = SmallRng::seed_from_u64(seed ^ own);
        Self { content: content.clone(), random, scratch: Vec::new(), last: None }
    }

    /// Prepares the first `len_bytes` of a buffer for a write. `filled_bytes` of them still have
    /// the content of an earlier write.
    pub(super) fn fill(&mut self, buffer: &mut Buffer, filled_bytes: &mut u32, len_bytes: u32) {
        let is_new = matches!(self.content, Content::Refill | Content::Shaped(_));
        if *filled_bytes < len_bytes || is_new {
            *filled_bytes = len_bytes;
            let len = len_bytes as usize;
            self.scratch.resize(self.scratch.len().max(len), 0);
            let bytes = &mut self.scratch[..len];
            match &self.content {
                Content::Unique | Content::Random | Content::Refill => {
                    self.random.fill_bytes(bytes)
                }
                Content::Shaped(shape) => {
                    let repeats = self.random.random_range(0..100) < shape.dedupe_percent;
                    let seed = self.last.filter(|_| repeats);
                    let seed = seed.unwrap_or_else(|| self.random.next_u64());
                    self.last = Some(seed);
                    make(shape, seed, bytes);
                }
                Content::Zeroes => bytes.fill(0),
                Content::Pattern(pattern) => {
                    for (byte, wanted) in bytes.iter_mut().zip(pattern.iter().cycle()) {
                        *byte = *wanted;
                    }
                }
            }
            buffer.copy_from(0, bytes);
        }
        if self.content == Content::Unique {
            let first = self.random.next_u64();
            let whole = (len_bytes as usize) / size_of::<u64>() * size_of::<u64>();
            let mut bytes = buffer.bytes_mut();
            for (number, at) in (0..whole).step_by(MARK_BYTES).enumerate() {
                bytes.store_u64(at, first.wrapping_add(number as u64));
            }
        }
    }
}

/// Generates chunks of random bytes followed by a fixed part. The seed determines all bytes.
fn make(shape: &Shape, seed: u64, bytes: &mut [u8]) {
    let mut random = SmallRng::seed_from_u64(seed);
    let chunk = match shape.chunk_bytes {
        0 => bytes.len(),
        chunk => chunk as usize,
    };
    for chunk in bytes.chunks_mut(chunk.max(1)) {
        let len = chunk.len() * usize::from(100 - shape.compress_percent.min(100)) / 100;
        let (new, fixed) = chunk.split_at_mut(len);
        random.fill_bytes(new);
        for (byte, wanted) in fixed.iter_mut().zip(shape.fixed.iter().cycle()) {
            *byte = *wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use qpair_block::{Arena, ArenaOptions};

    use super::*;

    fn written(content: Content, writes: usize) -> Vec<Vec<u8>> {
        let arena = Arena::new(4096, 1, ArenaOptions::ordinary_pages()).unwrap();
        let (mut buffer, mut filled) = (arena.lease().unwrap(), 0);
        let mut fill = Fill::new(&content, 7);
        let write = |_| {
            fill.fill(&mut buffer, &mut filled, 4096);
            buffer.as_slice().to_vec()
        };
        (0..writes).map(write).collect()
    }

    fn count(blocks: impl IntoIterator<Item = Vec<u8>>) -> usize {
        blocks
            .into_iter()
            .flat_map(|b| b.chunks(512).map(<[u8]>::to_vec).collect::<Vec<_>>())
            .collect::<HashSet<_>>()
            .len()
    }

    #[test]
    fn no_two_sectors_are_alike_in_one_run_or_two() {
        let blocks = [written(Content::Unique, 100), written(Content::Unique, 100)].concat();
        assert_eq!(count(blocks), 1600);
    }

    #[test]
    fn what_should_repeat_does() {
        assert_eq!(count([written(Content::Random, 9), written(Content::Random, 9)].concat()), 8);
        assert_eq!(count(written(Content::Refill, 9)), 72);
        assert_eq!(count(written(Content::Zeroes, 9)), 1);
        let pattern = written(Content::Pattern(vec![1, 2, 3]), 2);
        assert!(
            pattern.iter().flatten().zip([1, 2, 3].iter().cycle()).take(4096).all(|(a, b)| a == b)
        );
    }

    fn shaped(compress_percent: u8, chunk_bytes: u32, dedupe_percent: u8) -> Content {
        Content::Shaped(Shape { compress_percent, chunk_bytes, fixed: vec![0], dedupe_percent })
    }

    /// Each chunk has the requested number of zeroes, and the random part differs from write to
    /// write.
    #[test]
    fn blocks_are_as_compressible_as_asked_for() {
        for (percent, chunk, per_chunk) in [(50, 512, 256), (25, 1024, 256), (75, 0, 3072)] {
            let blocks = written(shaped(percent, chunk, 0), 20);
            for block in &blocks {
                let step = if chunk == 0 { 4096 } else { chunk as usize };
                for part in block.chunks(step) {
                    let zeroes = part.iter().rev().take_while(|byte| **byte == 0).count();
                    // Some of the random bytes are zero as well.
                    assert!((per_chunk..per_chunk + 4).contains(&zeroes), "{percent} {zeroes}");
                }
            }
            let unlike: HashSet<_> = blocks.iter().collect();
            assert_eq!(unlike.len(), 20);
        }
        assert_eq!(count(written(shaped(100, 512, 0), 9)), 1);
    }

    /// The requested percentage of blocks repeats earlier ones, and two runs have no block in
    /// common.
    #[test]
    fn as_many_blocks_repeat_as_asked_for() {
        let unlike = |percent: u8| {
            let blocks = written(shaped(0, 512, percent), 1000);
            blocks.into_iter().collect::<HashSet<_>>()
        };
        assert_eq!((unlike(0).len(), unlike(100).len()), (1000, 1));
        let (some, others) = (unlike(40), unlike(40));
        assert!((500..700).contains(&some.len()), "{}", some.len());
        assert!(some.is_disjoint(&others));
    }

    #[test]
    fn what_was_read_is_not_written() {
        let arena = Arena::new(4096, 1, ArenaOptions::ordinary_pages()).unwrap();
        let (mut buffer, mut filled) = (arena.lease().unwrap(), 0);
        let mut fill = Fill::new(&Content::Zeroes, 7);
        fill.fill(&mut buffer, &mut filled, 512);
        buffer.copy_from(512, &[9; 512]);
        fill.fill(&mut buffer, &mut filled, 4096);
        assert_eq!(buffer.as_slice(), [0; 4096]);
    }
}
