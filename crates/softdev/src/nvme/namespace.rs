//! A namespace: blocks on a medium.

use qpair_block::{Error, ErrorKind, Result};
use qpair_nvme_wire::{Command, IdentifyNamespace, LbaFormat, Status};

use super::options::NamespaceOptions;
use crate::dma::DmaSpan;
use crate::medium::{Medium, MediumResult, RANGE_BYTES_MAX, Scratch, WriteCache, of_len};

/// A namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) blocks: u64,
    pub(crate) block_shift: u32,
    /// Where it begins on the drive, bytes: after the namespaces before it.
    pub(crate) first_byte: u64,
    medium: Medium,
    /// None: what is written is on stable storage, as far as the medium has any, once it is flushed.
    cache: Option<WriteCache>,
    /// Numbers that no other namespace has.
    pub(crate) nguid: [u8; 16],
    pub(crate) eui64: [u8; 8],
}

/// Where a command reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) at_bytes: u64,
    pub(crate) len_bytes: u64,
}

impl Namespace {
    /// Opens one; `cache_bytes`: of a volatile write cache, or 0.
    pub(crate) fn open(
        options: &NamespaceOptions,
        serial: &str,
        nsid: u32,
        first_byte: u64,
        cache_bytes: u64,
    ) -> Result<Self> {
        let (medium, size_bytes) = Medium::open(&options.medium, options.size_bytes)?;
        let block = u64::from(options.logical_block_bytes);
        if size_bytes == 0 || !size_bytes.is_multiple_of(block) {
            let context = format!("{:?} of {size_bytes} bytes as a soft drive", options.medium);
            return Err(Error::new(ErrorKind::Invalid, context).hint(format!(
                "its size is a positive multiple of its logical block, {block} bytes: give size="
            )));
        }
        let (high, low) = (digest(serial, nsid, 1), digest(serial, nsid, 2));
        let mut nguid = [0; 16];
        nguid[..8].copy_from_slice(&high.to_be_bytes());
        nguid[8..].copy_from_slice(&low.to_be_bytes());
        Ok(Self {
            blocks: size_bytes / block,
            block_shift: block.trailing_zeros(),
            first_byte,
            cache: (cache_bytes > 0 && !matches!(medium, Medium::Null))
                .then(|| WriteCache::new(cache_bytes, block.trailing_zeros())),
            medium,
            nguid,
            // Made here, not by a vendor: so says the second bit of the first byte.
            eui64: (digest(serial, nsid, 3) & !(1 << 56) | 1 << 57).to_be_bytes(),
        })
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.blocks << self.block_shift
    }

    /// The range of `blocks` blocks from `first` on, if it lies inside.
    #[inline(always)]
    pub(crate) fn range(&self, first: u64, blocks: u32) -> std::result::Result<Extents, Status> {
        let blocks = u64::from(blocks);
        if first >= self.blocks || blocks > self.blocks - first {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        Ok(Extents { at_bytes: first << self.block_shift, len_bytes: blocks << self.block_shift })
    }

    /// The range of a read, write, compare or write zeroes.
    #[inline(always)]
    pub(crate) fn range_of(&self, command: &Command) -> std::result::Result<Extents, Status> {
        self.range(command.first_block(), command.blocks())
    }

    /// A block is read soon; there may be none such.
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

    /// Writes; `durable`: it is on stable storage on return.
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
        let len = from.len() as u64;
        if !durable {
            cache.keep(&self.medium, at, len)?;
            return self.medium.write(at, from, scratch);
        }
        self.medium.write(at, from, scratch)?;
        cache.forget(at, len);
        self.medium.flush()
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

    /// Whether the medium has what `with` has, from `at` on.
    pub(crate) fn compare(
        &self,
        at: u64,
        with: DmaSpan<'_>,
        scratch: &mut Scratch,
    ) -> std::io::Result<bool> {
        let len = with.len();
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

    /// The power fails: see [`WriteCache::lose`].
    pub(crate) fn lose_cache(&self, seed: u64) -> MediumResult {
        self.cache.as_ref().map_or(Ok(()), |cache| cache.lose(&self.medium, seed))
    }

    pub(crate) fn identify(&self) -> IdentifyNamespace {
        IdentifyNamespace {
            size_blocks: self.blocks,
            capacity_blocks: self.blocks,
            used_blocks: self.blocks,
            formats: vec![LbaFormat { metadata_bytes: 0, data_shift: self.block_shift as u8 }],
            nguid: self.nguid,
            eui64: self.eui64,
            ..IdentifyNamespace::default()
        }
    }
}

/// FNV-1a over what names a namespace, and a last mix so that all bits depend on all.
fn digest(serial: &str, nsid: u32, salt: u8) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in serial.bytes().chain(nsid.to_le_bytes()).chain([salt]) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash ^ (hash >> 33)
}
