//! The space of a regular file: finding out how much is missing, and reserving it.
//!
//! Invariants:
//! - Data in the file is unchanged, including data that others write meanwhile: zeros are written
//!   only after the end of the file.
//! - Writes to a reserved range need no more space.

use std::fs::{FileTimes, OpenOptions};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use qpair_block::{Error, Result as BlockResult};
use rustix::fs::{
    FallocateFlags, SeekFrom, fallocate, fdatasync, fstat, fstatvfs, ftruncate, seek,
};
use rustix::io::{Errno, pwrite};

/// The size of a block in `stat`, in bytes.
const STAT_BLOCK_BYTES: u64 = 512;

const ZEROS_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The file system reserves the space (`fallocate`) without writing it.
    Reserved,
    /// The file system cannot reserve space, so zeros are written: each byte of the file is written
    /// twice.
    Zeroed,
}

impl Growth {
    /// Returns how the regular file at `path` grows, by reserving its first byte again. The file
    /// keeps its content, length and times.
    ///
    /// # Errors
    /// The kernel's error, for example if the file may not be opened for writing, or lacks its
    /// first byte on a full file system.
    pub fn of(path: &Path) -> BlockResult<Self> {
        let failed = |cause| Error::os(cause, format!("asking how {} grows", path.display()));
        let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
        let before = file.metadata().map_err(failed)?;
        let growth = match retried(|| fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1)) {
            Ok(()) => Self::Reserved,
            Err(Errno::OPNOTSUPP) => Self::Zeroed,
            Err(cause) => return Err(failed(cause.into())),
        };
        let times = before.modified().map(|modified| FileTimes::new().set_modified(modified));
        // At worst, a backup program reads the file again.
        let _ = times.and_then(|times| file.set_times(times));
        Ok(growth)
    }
}

/// Reserves a range by `fallocate`, and makes the file at least as long.
pub(crate) fn by_fallocate(fd: BorrowedFd<'_>, range: Range<u64>) -> Result<(), Errno> {
    retried(|| fallocate(fd, FallocateFlags::empty(), range.start, range.end - range.start))
}

fn retried<T>(call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) block_bytes: u64,
    pub(crate) memory_alignment_bytes: usize,
    pub(crate) direct: bool,
}

/// Writes zeros to the part of `range` after the end of the file, and extends the file to the end
/// of the range.
pub(crate) fn by_zeros(fd: BorrowedFd<'_>, range: Range<u64>, grid: Grid) -> Result<(), Errno> {
    let len = fstat(fd)?.st_size as u64;
    by_zeros_behind(len, fd, range, grid)
}

/// Writes zeros as [`by_zeros`] does, after `len` instead of the end of the file.
pub(crate) fn by_zeros_behind(
    len: u64,
    fd: BorrowedFd<'_>,
    range: Range<u64>,
    grid: Grid,
) -> Result<(), Errno> {
    // A partial block at the end of the file stays unchanged.
    let mut at = range.start.max(len.next_multiple_of(grid.block_bytes));
    if len < at.min(range.end) {
        ftruncate(fd, at.min(range.end))?;
    }
    let zeros = vec![0_u8; ZEROS_BYTES + grid.memory_alignment_bytes];
    let zeros = &zeros[zeros.as_ptr().align_offset(grid.memory_alignment_bytes)..][..ZEROS_BYTES];
    while at < range.end {
        let count = (range.end - at).min(ZEROS_BYTES as u64) as usize;
        let written = retried(|| pwrite(fd, &zeros[..count], at))? as u64;
        // If space runs out, fewer bytes than requested are written.
        let blocks_bytes = written / grid.block_bytes * grid.block_bytes;
        if blocks_bytes == 0 {
            return Err(Errno::NOSPC);
        }
        at += blocks_bytes;
    }
    if grid.direct { Ok(()) } else { flush_apart(fd) }
}

/// Waits until the page cache of a file is written. On NFS, only this reveals a lack of space.
///
/// The flush uses a separate open file, because an error that a flush on `fd` reports here would
/// not be reported again to the next flush on `fd`.
fn flush_apart(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let again = OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    // Without /proc, the user's next flush of the file reports any error.
    let Ok(again) = again else { return Ok(()) };
    fdatasync(&again)
}

/// Returns how many of the first `wanted` bytes of a file lack space. The file has `allocated`
/// bytes at unknown offsets, and its first `reserved` bytes for certain.
pub(crate) fn lacking_bytes(allocated: u64, reserved: u64, wanted: u64) -> u64 {
    wanted - reserved.max(allocated).min(wanted)
}

pub(crate) fn allocated_bytes(fd: impl AsFd) -> Result<u64, Errno> {
    Ok(fstat(fd)?.st_blocks as u64 * STAT_BLOCK_BYTES)
}

/// Refuses a growth for which the file system has too little free space. Otherwise the file system
/// might first allocate all free space, and leave none to others meanwhile.
pub(crate) fn check_free(fd: BorrowedFd<'_>, reserved: u64, wanted: u64) -> Result<(), Errno> {
    let (Ok(space), Ok(allocated)) = (fstatvfs(fd), allocated_bytes(fd)) else { return Ok(()) };
    let free = space.f_bfree.saturating_mul(space.f_frsize);
    match lacking_bytes(allocated, reserved, wanted) <= free {
        true => Ok(()),
        false => Err(Errno::NOSPC),
    }
}

/// Reserves space for the holes that a file had when it was opened.
///
/// Only holes are requested, because xfs requires as much free space as a range is long, even if
/// the file already has some of it. xfs also reports reserved space that was never written as a
/// hole.
pub(crate) fn reserve_holes(fd: BorrowedFd<'_>, len: u64) -> Result<(), Errno> {
    let allocated = allocated_bytes(fd)?;
    let holes = holes(fd, len)?;
    let sum: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
    if allocated + sum < len {
        // The file system does not report holes.
        return by_fallocate(fd, 0..len);
    }
    for hole in holes {
        match by_fallocate(fd, hole) {
            Err(Errno::NOSPC) if allocated >= len => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Returns the holes among the first `len` bytes, including reserved space that was never written.
/// Empty if the file system does not report holes.
fn holes(fd: BorrowedFd<'_>, len: u64) -> Result<Vec<Range<u64>>, Errno> {
    let (mut at, mut holes) = (0, Vec::new());
    while at < len {
        let data = match seek(fd, SeekFrom::Data(at)) {
            Ok(data) => data.min(len),
            // There is no data after this offset.
            Err(Errno::NXIO) => len,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if data > at {
            holes.push(at..data);
        }
        if data == len {
            break;
        }
        at = seek(fd, SeekFrom::Hole(data))?;
    }
    Ok(holes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const GRID: Grid = Grid { block_bytes: 512, memory_alignment_bytes: 4096, direct: false };

    #[test]
    fn zeros_are_written_behind_the_end_only() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 1000], 0).unwrap();
        // One whole block, and a partial one: a device shows only the first.
        by_zeros(file.as_fd(), 512..(3 << 20) + 512, GRID).unwrap();
        let len = (3 << 20) + 512;
        assert_eq!(file.metadata().unwrap().len(), len);
        assert!(allocated_bytes(&file).unwrap() >= len);
        let mut content = vec![1; len as usize];
        file.read_exact_at(&mut content, 0).unwrap();
        assert!(content[..1000].iter().all(|byte| *byte == 7));
        assert!(content[1000..].iter().all(|byte| *byte == 0));
        // Data that others appended meanwhile must not be overwritten.
        file.write_all_at(&[9; 4096], len).unwrap();
        by_zeros(file.as_fd(), len..len + 512, GRID).unwrap();
        by_zeros(file.as_fd(), len..len + 8192, GRID).unwrap();
        let mut content = [1; 8192];
        file.read_exact_at(&mut content, len).unwrap();
        assert!(content[..4096].iter().all(|byte| *byte == 9));
        assert!(content[4096..].iter().all(|byte| *byte == 0));
        // The whole range is within the last block.
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 100], 0).unwrap();
        by_zeros(file.as_fd(), 0..512, GRID).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 512);
    }

    #[test]
    fn asking_how_a_file_grows_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 5000]).unwrap();
        let before = path.metadata().unwrap();
        Growth::of(&path).unwrap();
        let after = path.metadata().unwrap();
        assert_eq!(
            (before.len(), before.modified().unwrap()),
            (after.len(), after.modified().unwrap())
        );
        assert_eq!(std::fs::read(&path).unwrap(), [7; 5000]);
        assert!(Growth::of(&folder.path().join("none")).is_err());
    }

    /// A regression: a reopened file of 60 GB was taken to lack all 60 GB.
    #[test]
    fn what_a_file_has_is_not_lacking() {
        const GB: u64 = 1_000_000_000;
        // A new file, a grown file, and a reopened file.
        assert_eq!(lacking_bytes(0, 0, 60 * GB), 60 * GB);
        assert_eq!(lacking_bytes(60 * GB, 60 * GB, 61 * GB), GB);
        assert_eq!(lacking_bytes(60 * GB, 0, 61 * GB), GB);
        // A sparse file, a file with space after its end, and one with holes that appeared after
        // all of it was reserved.
        assert_eq!(lacking_bytes(20 * GB, 0, 61 * GB), 41 * GB);
        assert_eq!(lacking_bytes(62 * GB, 0, 61 * GB), 0);
        assert_eq!(lacking_bytes(20 * GB, 60 * GB, 61 * GB), GB);
    }
}
