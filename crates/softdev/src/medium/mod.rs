//! Media: the storage that keeps the blocks of a namespace or a disk.
//!
//! Data goes straight between the medium and the driver's memory, in one copy where the medium is
//! memory itself. Any number of queues may be at one medium at a time; what two of them do to the
//! same bytes at the same time leaves some mix, as on a drive.

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
    /// Memory of this process, zeroed, touched only on use.
    #[default]
    Ram,
    /// Nothing: writes are forgotten, and reads leave the driver's memory as it was.
    Null,
    /// A file, or a block device. A file that is not there is made.
    File(PathBuf),
}

/// The medium did not do it.
pub(crate) type MediumResult = std::io::Result<()>;

/// Bytes for media that cannot reach the driver's memory themselves. Grows to the largest transfer
/// once, and stays.
pub(crate) type Scratch = Vec<u8>;

/// A medium. The caller has checked that ranges lie inside.
#[derive(Debug)]
pub(crate) enum Medium {
    Ram(RamMedium),
    Null,
    File(FileMedium),
}

impl Medium {
    /// Opens one of `size_bytes`, or of the file's size; and says which size it has.
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

    /// Makes a range read as zeroes, and gives back what memory or disk it took.
    pub(crate) fn zero(&self, at: u64, len: u64) -> MediumResult {
        match self {
            Self::Null => Ok(()),
            Self::Ram(ram) => ram.zero(at, len),
            Self::File(file) => file.zero(at, len),
        }
    }

    /// Returns once all that was written is on stable storage, as far as the medium has any.
    pub(crate) fn flush(&self) -> MediumResult {
        match self {
            Self::Null | Self::Ram(_) => Ok(()),
            Self::File(file) => file.flush(),
        }
    }
}

/// Reads and writes by memory of this program. From nothing come zeroes.
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

/// The first `len` bytes of scratch memory.
pub(crate) fn of_len(scratch: &mut Scratch, len: usize) -> &mut [u8] {
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    &mut scratch[..len]
}
