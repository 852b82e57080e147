//! Content of written blocks, and checks of blocks that were read.
//!
//! ```text
//! 0      4        8            16          24              32
//! ┌──────┬────────┬────────────┬───────────┬───────────────┬──────────┬─ ─ ─
//! │magic │ length │ offset     │ seed      │ write number  │ checksum │ data made of offset, seed and number
//! └──────┴────────┴────────────┴───────────┴───────────────┴──────────┴─ ─ ─      little-endian
//! ```
//!
//! A checksum has as many bytes as its method gives; those of CRCs and XXH64 have 8.
//!
//! Invariants:
//! - a request consists of whole chunks, each with its own header, so that writes may overlap by
//!   chunks;
//! - a seed identifies a run: blocks that a job wrote, or should find with `verify_only`, have the
//!   job's seed;
//! - a chunk is in flight at most once, so the last write submitted is the last one done.

use md5::Md5;
use qpair_block::Result;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use sha3::{Sha3_224, Sha3_256, Sha3_384, Sha3_512};
use twox_hash::XxHash64;

use crate::job::{Verify, VerifyMethod};

use super::offsets::zeroes;

const MAGIC: [u8; 4] = *b"qpVb";
const SUM_AT: usize = 32;
/// Length of the longest checksum, bytes.
const SUM_BYTES_MAX: usize = 64;

pub(super) struct Chunks {
    method: VerifyMethod,
    pattern: Vec<u8>,
    chunk_bytes: u32,
    begin_bytes: u64,
    seed: u64,
    /// The number of the last write of each chunk; 0: not written by this job, or unknown.
    numbers: Vec<u32>,
    in_flight: Vec<u64>,
    scratch: Vec<u8>,
    next_number: u32,
    /// Whether no other job writes to the region, so that blocks have the last write of this job.
    alone: bool,
    /// Whether all content was written by a run with this run's seed (`verify_only`).
    same_run: bool,
}

impl Chunks {
    pub(super) fn new(
        verify: &Verify,
        region: super::offsets::Region,
        unit_bytes: u32,
        seed: u64,
        alone: bool,
    ) -> Result<Self> {
        let chunk_bytes = match verify.interval_bytes {
            0 => unit_bytes,
            bytes => bytes,
        };
        let count = region.len_bytes.div_ceil(u64::from(chunk_bytes.max(1))) as usize;
        Ok(Self {
            method: verify.method,
            pattern: verify.pattern.clone(),
            chunk_bytes,
            begin_bytes: region.begin_bytes,
            seed,
            numbers: zeroes(count as u64, "the numbers of verified writes")?,
            in_flight: zeroes(count.div_ceil(64) as u64, "the map of blocks in flight")?,
            scratch: vec![0; chunk_bytes as usize],
            next_number: 0,
            alone,
            same_run: verify.only,
        })
    }

    fn range(&self, offset_bytes: u64, len_bytes: u32) -> std::ops::Range<usize> {
        let chunk = u64::from(self.chunk_bytes);
        let first = (offset_bytes - self.begin_bytes) / chunk;
        let end = (offset_bytes - self.begin_bytes + u64::from(len_bytes)).div_ceil(chunk);
        first as usize..end as usize
    }

    pub(super) fn is_busy(&self, offset_bytes: u64, len_bytes: u32) -> bool {
        self.range(offset_bytes, len_bytes).any(|at| self.in_flight[at / 64] >> (at % 64) & 1 == 1)
    }

    pub(super) fn set_busy(&mut self, offset_bytes: u64, len_bytes: u32, busy: bool) {
        for at in self.range(offset_bytes, len_bytes) {
            let bit = 1 << (at % 64);
            match busy {
                true => self.in_flight[at / 64] |= bit,
                false => self.in_flight[at / 64] &= !bit,
            }
        }
    }

    /// Generates the content of a range that is about to be written. `put` takes an offset in the
    /// buffer, and bytes.
    pub(super) fn fill(
        &mut self,
        offset_bytes: u64,
        len_bytes: u32,
        mut put: impl FnMut(usize, &[u8]),
    ) {
        self.number(offset_bytes, len_bytes);
        let mut scratch = std::mem::take(&mut self.scratch);
        for (place, at) in self.range(offset_bytes, len_bytes).enumerate() {
            let offset = self.begin_bytes + at as u64 * u64::from(self.chunk_bytes);
            self.make(offset, self.next_number, &mut scratch);
            put(place * self.chunk_bytes as usize, &scratch);
        }
        self.scratch = scratch;
    }

    /// Gives the next number to the chunks of a range, as a write does.
    pub(super) fn number(&mut self, offset_bytes: u64, len_bytes: u32) {
        self.next_number = self.next_number.checked_add(1).unwrap_or(1);
        let range = self.range(offset_bytes, len_bytes);
        self.numbers[range].fill(self.next_number);
    }

    /// Forgets the writes of a range that is trimmed.
    pub(super) fn forget(&mut self, offset_bytes: u64, len_bytes: u32) {
        let range = self.range(offset_bytes, len_bytes);
        self.numbers[range].fill(0);
    }

    fn make(&self, offset: u64, number: u32, chunk: &mut [u8]) {
        if self.method == VerifyMethod::Pattern {
            repeat(&self.pattern, chunk);
            return;
        }
        let mix = self.seed ^ offset.rotate_left(20) ^ u64::from(number).rotate_left(44);
        let end = self.sum_end();
        SmallRng::seed_from_u64(mix).fill_bytes(&mut chunk[end..]);
        chunk[..4].copy_from_slice(&MAGIC);
        chunk[4..8].copy_from_slice(&self.chunk_bytes.to_le_bytes());
        chunk[8..16].copy_from_slice(&offset.to_le_bytes());
        chunk[16..24].copy_from_slice(&self.seed.to_le_bytes());
        chunk[24..32].copy_from_slice(&u64::from(number).to_le_bytes());
        chunk[SUM_AT..end].fill(0);
        let sum = self.checksum(chunk);
        chunk[SUM_AT..end].copy_from_slice(&sum[..end - SUM_AT]);
    }

    /// Returns the position behind the checksum in a chunk.
    fn sum_end(&self) -> usize {
        SUM_AT
            + match self.method {
                VerifyMethod::Md5 => 16,
                VerifyMethod::Sha1 => 20,
                VerifyMethod::Sha3_224 => 28,
                VerifyMethod::Sha256 | VerifyMethod::Sha3_256 => 32,
                VerifyMethod::Sha3_384 => 48,
                VerifyMethod::Sha512 | VerifyMethod::Sha3_512 => 64,
                VerifyMethod::Crc32c
                | VerifyMethod::Crc32
                | VerifyMethod::Crc64
                | VerifyMethod::XxHash
                | VerifyMethod::Meta
                | VerifyMethod::Pattern => 8,
            }
    }

    /// Returns the checksum of a chunk whose checksum field is zero, padded with zeroes.
    fn checksum(&self, chunk: &[u8]) -> [u8; SUM_BYTES_MAX] {
        use crc_fast::{CrcAlgorithm, checksum};
        let mut sum = [0; SUM_BYTES_MAX];
        let mut put = |bytes: &[u8]| sum[..bytes.len()].copy_from_slice(bytes);
        match self.method {
            VerifyMethod::Crc32 => put(&checksum(CrcAlgorithm::Crc32IsoHdlc, chunk).to_le_bytes()),
            VerifyMethod::Crc64 => put(&checksum(CrcAlgorithm::Crc64Nvme, chunk).to_le_bytes()),
            VerifyMethod::Crc32c => put(&checksum(CrcAlgorithm::Crc32Iscsi, chunk).to_le_bytes()),
            VerifyMethod::Meta | VerifyMethod::Pattern => {
                let header = &chunk[..self.sum_end()];
                put(&checksum(CrcAlgorithm::Crc32Iscsi, header).to_le_bytes());
            }
            VerifyMethod::XxHash => put(&XxHash64::oneshot(0, chunk).to_le_bytes()),
            VerifyMethod::Md5 => put(&Md5::digest(chunk)),
            VerifyMethod::Sha1 => put(&Sha1::digest(chunk)),
            VerifyMethod::Sha256 => put(&Sha256::digest(chunk)),
            VerifyMethod::Sha512 => put(&Sha512::digest(chunk)),
            VerifyMethod::Sha3_224 => put(&Sha3_224::digest(chunk)),
            VerifyMethod::Sha3_256 => put(&Sha3_256::digest(chunk)),
            VerifyMethod::Sha3_384 => put(&Sha3_384::digest(chunk)),
            VerifyMethod::Sha3_512 => put(&Sha3_512::digest(chunk)),
        }
        sum
    }

    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes as usize
    }

    /// Returns the expected content of the chunk at `offset`; `None` if it is not known, because
    /// this job did not write the chunk or other jobs write to the region too.
    pub(super) fn expected(&self, offset: u64) -> Option<Vec<u8>> {
        let at = ((offset - self.begin_bytes) / u64::from(self.chunk_bytes)) as usize;
        let number = *self.numbers.get(at)?;
        if self.method != VerifyMethod::Pattern && (number == 0 || !self.alone) {
            return None;
        }
        let mut chunk = vec![0; self.chunk_bytes()];
        self.make(offset, number, &mut chunk);
        Some(chunk)
    }

    /// Returns the ranges written by this job, in order, each at most `len_bytes_max` long.
    pub(super) fn written(&self, len_bytes_max: u32) -> Vec<(u64, u32)> {
        let chunk = u64::from(self.chunk_bytes);
        let per_range = (len_bytes_max / self.chunk_bytes).max(1) as usize;
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < self.numbers.len() {
            let run = self.numbers[at..].iter().take(per_range).take_while(|n| **n > 0).count();
            if run > 0 {
                ranges.push((self.begin_bytes + at as u64 * chunk, run as u32 * self.chunk_bytes));
            }
            at += run.max(1);
        }
        ranges
    }

    /// Checks bytes that were read. Returns the number of chunks checked, and the offset and a
    /// description of each wrong chunk. Without `of_this_job`, chunks that this job did not write
    /// are checked too and may hold any write.
    pub(super) fn check(
        &mut self,
        offset_bytes: u64,
        bytes: &[u8],
        of_this_job: bool,
    ) -> (u64, Vec<(u64, String)>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut looked_at = 0;
        let mut wrong = Vec::new();
        let range = self.range(offset_bytes, bytes.len() as u32);
        for (at, chunk) in range.zip(bytes.chunks(self.chunk_bytes as usize)) {
            let number = self.numbers[at];
            if chunk.len() < scratch.len() || (of_this_job && number == 0) {
                continue;
            }
            looked_at += 1;
            let offset = self.begin_bytes + at as u64 * u64::from(self.chunk_bytes);
            if let Some(what) = self.damage(chunk, offset, number, &mut scratch) {
                wrong.push((offset, what));
            }
        }
        self.scratch = scratch;
        (looked_at, wrong)
    }

    /// Returns a description of what is wrong with a chunk; `None` if it is intact. `number` is
    /// that of the expected write; 0 accepts any.
    fn damage(&self, chunk: &[u8], offset: u64, number: u32, scratch: &mut [u8]) -> Option<String> {
        if self.method == VerifyMethod::Pattern {
            repeat(&self.pattern, scratch);
            let at = chunk.iter().zip(&*scratch).position(|(read, wanted)| read != wanted)?;
            return Some(format!(
                "byte {at} is {:#04x}, not the pattern's {:#04x}",
                chunk[at], scratch[at]
            ));
        }
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&chunk[at..at + 8]);
            u64::from_le_bytes(word)
        };
        if chunk[..4] != MAGIC {
            return Some("there is no header: the block was never written, or overwritten".into());
        }
        if word(8) != offset {
            return Some(format!("it is the block of offset {}", word(8)));
        }
        let len = word(0) >> 32;
        if len != u64::from(self.chunk_bytes) {
            return Some(format!("it is part of a block of {len} bytes: other bs or interval"));
        }
        scratch.copy_from_slice(chunk);
        let end = self.sum_end();
        scratch[SUM_AT..end].fill(0);
        if self.checksum(scratch)[..end - SUM_AT] != chunk[SUM_AT..end] {
            return Some("its checksum does not match".into());
        }
        if self.alone && (self.same_run || number > 0) && word(16) != self.seed {
            let (found, wanted) = (word(16), self.seed);
            return Some(format!("a run with the seed {found:#x} wrote it, not {wanted:#x}"));
        }
        if self.alone && number > 0 && word(24) != u64::from(number) {
            return Some(format!("it holds write number {}, not {number}: a lost write", word(24)));
        }
        None
    }
}

/// Writes the content of a wrong chunk and its expected content into files of the working
/// directory, under fio's names.
pub(super) fn dump(
    device: &str,
    offset: u64,
    received: &[u8],
    expected: Option<&[u8]>,
) -> std::io::Result<()> {
    let name = device.rsplit('/').next().unwrap_or(device).replace(':', "_");
    std::fs::write(format!("{name}.{offset}.received"), received)?;
    match expected {
        Some(bytes) => std::fs::write(format!("{name}.{offset}.expected"), bytes),
        None => Ok(()),
    }
}

fn repeat(pattern: &[u8], chunk: &mut [u8]) {
    for (byte, wanted) in chunk.iter_mut().zip(pattern.iter().cycle()) {
        *byte = *wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::super::offsets::Region;
    use super::*;

    fn chunks(method: VerifyMethod) -> Chunks {
        let verify = Verify {
            method,
            pattern: vec![1, 2, 3],
            interval_bytes: 0,
            after: true,
            only: false,
            fatal: false,
            backlog: 0,
            backlog_batch: 0,
            dump: false,
        };
        Chunks::new(&verify, Region { begin_bytes: 4096, len_bytes: 64 * 512 }, 512, 9, true)
            .unwrap()
    }

    #[test]
    fn what_was_written_is_what_is_read_and_any_flipped_bit_shows() {
        for method in [
            VerifyMethod::Crc32c,
            VerifyMethod::Crc32,
            VerifyMethod::Crc64,
            VerifyMethod::XxHash,
            VerifyMethod::Md5,
            VerifyMethod::Sha1,
            VerifyMethod::Sha256,
            VerifyMethod::Sha512,
            VerifyMethod::Sha3_224,
            VerifyMethod::Sha3_256,
            VerifyMethod::Sha3_384,
            VerifyMethod::Sha3_512,
            VerifyMethod::Pattern,
        ] {
            let mut chunks = chunks(method);
            let mut bytes = vec![0; 1024];
            chunks.fill(5120, 1024, |at, chunk| bytes[at..at + 512].copy_from_slice(chunk));
            assert_eq!(chunks.check(5120, &bytes, true), (2, vec![]));
            assert_eq!(chunks.written(4096), vec![(5120, 1024)]);
            for bit in (0..8192).step_by(7) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let (_, wrong) = chunks.check(5120, &bytes, true);
                assert_eq!(wrong.len(), 1, "{method:?}, bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn an_older_write_and_another_place_show() {
        let mut chunks = chunks(VerifyMethod::Crc32c);
        let mut old = vec![0; 512];
        chunks.fill(4096, 512, |_, chunk| old.copy_from_slice(chunk));
        chunks.fill(4096, 512, |_, _| {});
        assert!(chunks.check(4096, &old, true).1[0].1.contains("a lost write"));
        assert!(chunks.check(4608, &old, false).1[0].1.contains("of offset 4096"));
        assert_eq!(chunks.check(4608, &old, true).0, 0);
    }

    #[test]
    fn busy_ranges() {
        let mut chunks = chunks(VerifyMethod::Meta);
        chunks.set_busy(4608, 1024, true);
        assert!(chunks.is_busy(4096, 1024) && chunks.is_busy(5120, 512));
        assert!(!chunks.is_busy(4096, 512) && !chunks.is_busy(5632, 512));
        chunks.set_busy(4608, 1024, false);
        assert!(!chunks.is_busy(4096, 4096));
    }
}
