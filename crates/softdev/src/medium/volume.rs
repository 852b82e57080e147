//! A medium with an optional volatile write cache: the blocks of a namespace or a logical unit.

use qpair_block::{Error, ErrorKind, Result};

use super::cache::losses;
use super::{
    Medium, MediumOptions, MediumResult, RANGE_BYTES_MAX, Scratch, Storage, VolatileCache, of_len,
};
use qpair_pci::model::DmaSpan;

#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) blocks: u64,
    pub(crate) block_shift: u32,
    medium: Medium,
    /// The cache; `None` if a flush puts all written data on stable storage, as far as the medium
    /// has any.
    cache: Option<VolatileCache>,
}

/// The byte range that a command reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) at_bytes: u64,
    pub(crate) len_bytes: u64,
}

impl Volume {
    /// Opens a volume with a volatile write cache of `cache_bytes`; 0 for no cache.
    pub(crate) fn open(
        options: &MediumOptions,
        size_bytes: u64,
        block_bytes: u32,
        cache_bytes: u64,
    ) -> Result<Self> {
        let (medium, size_bytes) = Medium::open(options, size_bytes)?;
        let block = u64::from(block_bytes);
        if size_bytes == 0 || !size_bytes.is_multiple_of(block) {
            let context = format!("{options:?} cannot be a soft drive of {size_bytes} bytes");
            return Err(Error::new(ErrorKind::Invalid, context).hint(format!(
                "its size is a positive multiple of its logical block, {block} bytes: give size="
            )));
        }
        Ok(Self {
            blocks: size_bytes / block,
            block_shift: block.trailing_zeros(),
            cache: (cache_bytes > 0 && !matches!(medium, Medium::Null))
                .then(|| VolatileCache::new(cache_bytes, block.trailing_zeros())),
            medium,
        })
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.blocks << self.block_shift
    }

    /// Returns the range of `blocks` blocks from `first` on, or `None` if it does not lie inside.
    #[inline(always)]
    pub(crate) fn range(&self, first: u64, blocks: u64) -> Option<Extents> {
        if first >= self.blocks || blocks > self.blocks - first {
            return None;
        }
        let (at_bytes, len_bytes) = (first << self.block_shift, blocks << self.block_shift);
        Some(Extents { at_bytes, len_bytes })
    }

    /// Prefetches a block that is read soon. The block need not exist.
    #[inline(always)]
    pub(crate) fn prefetch(&self, block: u64) {
        if let Medium::Ram(ram) = &self.medium {
            ram.prefetch(block << self.block_shift);
        }
    }

    #[inline]
    pub(crate) fn read(&self, at: u64, into: DmaSpan<'_>, scratch: &mut Scratch) -> MediumResult {
        self.medium.read(at, into, scratch)
    }

    /// Writes a range. With `durable`, the data is on stable storage on return.
    #[inline]
    pub(crate) fn write(
        &self,
        at: u64,
        from: DmaSpan<'_>,
        durable: bool,
        scratch: &mut Scratch,
    ) -> MediumResult {
        let Some(cache) = &self.cache else {
            self.medium.write(at, from, scratch)?;
            return if durable { self.medium.flush() } else { Ok(()) };
        };
        let len = from.len_bytes() as u64;
        if !durable {
            cache.keep(&self.medium, at, len)?;
            return self.medium.write(at, from, scratch);
        }
        self.medium.write(at, from, scratch)?;
        cache.forget(at, len);
        self.medium.flush()
    }

    /// Writes from memory of this program.
    pub(crate) fn write_bytes(&self, at: u64, from: &[u8], durable: bool) -> MediumResult {
        let len = from.len() as u64;
        if let Some(cache) = &self.cache {
            if durable {
                cache.forget(at, len);
            } else {
                cache.keep(&self.medium, at, len)?;
            }
        }
        self.medium.write_bytes(at, from)?;
        if durable { self.medium.flush() } else { Ok(()) }
    }

    pub(crate) fn zero(&self, range: Extents, durable: bool) -> MediumResult {
        let Extents { at_bytes: at, len_bytes: len } = range;
        let kept = self.cache.as_ref().filter(|_| !durable && len <= RANGE_BYTES_MAX);
        if let Some(cache) = kept {
            cache.keep(&self.medium, at, len)?;
            return self.medium.zero(at, len);
        }
        self.medium.zero(at, len)?;
        if let Some(cache) = &self.cache {
            cache.forget(at, len);
        }
        if durable { self.medium.flush() } else { Ok(()) }
    }

    /// Whether the medium, from `at` on, holds the same bytes as `with`.
    pub(crate) fn compare(
        &self,
        at: u64,
        with: DmaSpan<'_>,
        scratch: &mut Scratch,
    ) -> std::io::Result<bool> {
        let len = with.len_bytes();
        let (ours, theirs) = of_len(scratch, 2 * len).split_at_mut(len);
        self.medium.read_bytes(at, ours)?;
        with.copy_to(theirs);
        Ok(ours == theirs)
    }

    pub(crate) fn flush(&self) -> MediumResult {
        self.medium.flush()?;
        if let Some(cache) = &self.cache {
            cache.forget_all();
        }
        Ok(())
    }

    /// Whether there is a volatile write cache.
    pub(crate) fn has_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// Cuts the power: `seed` decides which sectors of the cache are lost.
    pub(crate) fn lose_cache(&self, seed: u64) -> MediumResult {
        let Some(cache) = &self.cache else { return Ok(()) };
        cache.lose(&self.medium, losses(seed)).map(|_| ())
    }
}
