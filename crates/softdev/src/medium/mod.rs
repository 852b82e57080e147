//! Media: the storage that keeps the blocks of a namespace or a disk.
//!
//! Data goes straight between the medium and the driver's memory. If the medium is in memory, this
//! is one copy. Any number of queues may use one medium at a time. If two of them access the same
//! bytes at the same time, the result is some mix, as on a drive.

mod cache;
mod file;
mod ram;
mod volume;

use std::path::PathBuf;

use qpair_block::Result;

use qpair_pci::model::DmaSpan;

pub(crate) use self::cache::RANGE_BYTES_MAX;
pub use self::cache::{Storage, VolatileCache};
pub(crate) use self::file::FileMedium;
pub(crate) use self::ram::RamMedium;
pub(crate) use self::volume::{Extents, Volume};

/// The choice of the medium.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MediumOptions {
    /// Memory of this process. It is zeroed, and allocated on first use.
    #[default]
    Ram,
    /// No storage: writes are discarded, and reads leave the driver's memory unchanged.
    Null,
    /// A file or a block device. A missing file is created.
    File(PathBuf),
}

/// The result of an access to a medium.
pub(crate) type MediumResult = std::io::Result<()>;

/// A buffer for media that cannot access the driver's memory directly. It grows to the largest
/// transfer, and keeps that size.
pub(crate) type Scratch = Vec<u8>;

/// A medium. Callers check that ranges lie inside.
#[derive(Debug)]
pub(crate) enum Medium {
    Ram(RamMedium),
    Null,
    File(FileMedium),
}

impl Medium {
    /// Opens a medium of `size_bytes`, or of the size of the file, and returns it with its size.
    pub(crate) fn open(options: &MediumOptions, size_bytes: u64) -> Result<(Self, u64)> {
        match options {
            MediumOptions::Ram => Ok((Self::Ram(RamMedium::new(size_bytes)?), size_bytes)),
            MediumOptions::Null => Ok((Self::Null, size_bytes)),
            MediumOptions::File(path) => {
                let (file, size_bytes) = FileMedium::open(path, size_bytes)?;
                Ok((Self::File(file), size_bytes))
            }
        }
    }

    #[inline]
    pub(crate) fn read(&self, at: u64, into: DmaSpan<'_>, scratch: &mut Scratch) -> MediumResult {
        match self {
            Self::Null => Ok(()),
            Self::Ram(ram) => {
                ram.read(at, into);
                Ok(())
            }
            Self::File(file) => {
                let len = into.len_bytes();
                let bytes = of_len(scratch, len);
                file.read(at, bytes)?;
                into.copy_from(bytes);
                Ok(())
            }
        }
    }

    #[inline]
    pub(crate) fn write(&self, at: u64, from: DmaSpan<'_>, scratch: &mut Scratch) -> MediumResult {
        match self {
            Self::Null => Ok(()),
            Self::Ram(ram) => {
                ram.write(at, from);
                Ok(())
            }
            Self::File(file) => {
                let len = from.len_bytes();
                let bytes = of_len(scratch, len);
                from.copy_to(bytes);
                file.write(at, bytes)
            }
        }
    }

    /// Makes a range read as zeroes, and frees its memory or disk space.
    pub(crate) fn zero(&self, at: u64, len: u64) -> MediumResult {
        match self {
            Self::Null => Ok(()),
            Self::Ram(ram) => ram.zero(at, len),
            Self::File(file) => file.zero(at, len),
        }
    }

    /// Returns once all written data is on stable storage, as far as the medium has any.
    pub(crate) fn flush(&self) -> MediumResult {
        match self {
            Self::Null | Self::Ram(_) => Ok(()),
            Self::File(file) => file.flush(),
        }
    }
}

/// Reads and writes memory of this program. Without storage, reads return zeroes.
impl Storage for Medium {
    fn read_bytes(&self, at: u64, into: &mut [u8]) -> MediumResult {
        match self {
            Self::Null => {
                into.fill(0);
                Ok(())
            }
            Self::Ram(ram) => {
                ram.read_bytes(at, into);
                Ok(())
            }
            Self::File(file) => file.read(at, into),
        }
    }

    fn write_bytes(&self, at: u64, from: &[u8]) -> MediumResult {
        match self {
            Self::Null => Ok(()),
            Self::Ram(ram) => {
                ram.write_bytes(at, from);
                Ok(())
            }
            Self::File(file) => file.write(at, from),
        }
    }
}

/// Returns the first `len` bytes of the scratch memory.
pub(crate) fn of_len(scratch: &mut Scratch, len: usize) -> &mut [u8] {
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    &mut scratch[..len]
}
