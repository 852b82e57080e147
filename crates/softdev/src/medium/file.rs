//! A medium in a file or on a block device, through the page cache.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use qpair_block::{Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, FlockOperation};

use super::MediumResult;

/// Zeroes to write where the file cannot have holes.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

#[derive(Debug)]
pub(crate) struct FileMedium {
    file: File,
}

impl FileMedium {
    /// Opens `path` for this program alone. With `size_bytes` 0, the file keeps its size. Otherwise
    /// a shorter file is extended to that size.
    pub(crate) fn open(path: &Path, size_bytes: u64) -> Result<(Self, u64)> {
        let name = PathBuf::from(path);
        let name = name.display();
        let failed =
            |cause: std::io::Error| Error::os(cause, format!("opening {name} as a soft drive"));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(size_bytes > 0)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        if let Err(errno) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if errno == rustix::io::Errno::WOULDBLOCK {
                let context = format!("{name} cannot be a soft drive: another process has it open");
                return Err(Error::new(ErrorKind::Busy, context).hint(
                    "close the soft drive that uses it, or give this one a file of its own",
                ));
            }
            return Err(failed(errno.into()));
        }
        let there = file.seek(SeekFrom::End(0)).map_err(failed)?;
        if there < size_bytes {
            if !file.metadata().map_err(failed)?.is_file() {
                let context = format!("{name} cannot be a soft drive of {size_bytes} bytes");
                return Err(Error::new(ErrorKind::NoSpace, context)
                    .hint(format!("it has {there} bytes and cannot grow")));
            }
            file.set_len(size_bytes).map_err(failed)?;
        }
        let size_bytes = if size_bytes == 0 { there } else { size_bytes };
        Ok((Self { file }, size_bytes))
    }

    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> MediumResult {
        self.file.read_exact_at(into, at)
    }

    pub(crate) fn write(&self, at: u64, from: &[u8]) -> MediumResult {
        self.file.write_all_at(from, at)
    }

    pub(crate) fn zero(&self, at: u64, len: u64) -> MediumResult {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.file, flags, at, len).is_ok() {
            return Ok(());
        }
        // If the file system or the device cannot make holes, zeroes are written.
        let (mut at, end) = (at, at + len);
        while at < end {
            let now = (end - at).min(ZEROES.len() as u64);
            self.file.write_all_at(&ZEROES[..now as usize], at)?;
            at += now;
        }
        Ok(())
    }

    pub(crate) fn flush(&self) -> MediumResult {
        self.file.sync_data()
    }
}
