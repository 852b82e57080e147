//! Space of a regular file: how much of it the file lacks, and reserving it.
//!
//! Invariants:
//! - what was written to the file stays as it was, also what others write meanwhile;
//! - a range that was reserved takes writes without any more space.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstat, fstatvfs, seek};
use rustix::io::Errno;

/// Bytes of a block as `stat` counts them.
const STAT_BLOCK_BYTES: u64 = 512;

/// Reserves a range of a file, and makes the file as long as it takes. Tests have others.
pub(crate) type Reserve = fn(BorrowedFd<'_>, Range<u64>) -> Result<(), Errno>;

/// Reserves a range by `fallocate`.
pub(crate) fn by_fallocate(fd: BorrowedFd<'_>, range: Range<u64>) -> Result<(), Errno> {
    loop {
        match fallocate(fd, FallocateFlags::empty(), range.start, range.end - range.start) {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

/// Bytes that a file lacks to have all of its first `wanted` bytes: of those it has `allocated` somewhere, and the first `reserved` for certain.
pub(crate) fn lacking_bytes(allocated: u64, reserved: u64, wanted: u64) -> u64 {
    wanted - reserved.max(allocated).min(wanted)
}

/// Bytes of the drive that a file has.
pub(crate) fn allocated_bytes(fd: impl AsFd) -> Result<u64, Errno> {
    Ok(fstat(fd)?.st_blocks as u64 * STAT_BLOCK_BYTES)
}

/// Refuses a growth for which the file system has too little free. Asked for more than there is, it may first give all it has, and leave none
/// to others meanwhile.
pub(crate) fn check_free(fd: BorrowedFd<'_>, reserved: u64, wanted: u64) -> Result<(), Errno> {
    let (Ok(space), Ok(allocated)) = (fstatvfs(fd), allocated_bytes(fd)) else { return Ok(()) };
    let free = space.f_bfree.saturating_mul(space.f_frsize);
    match lacking_bytes(allocated, reserved, wanted) <= free {
        true => Ok(()),
        false => Err(Errno::NOSPC),
    }
}

/// Reserves what of a file was there when it was opened. Only holes are asked for: xfs wants as much free as a range is long, whatever of it the
/// file has, and takes space that was reserved and never written for a hole.
pub(crate) fn reserve_holes(fd: BorrowedFd<'_>, len: u64, reserve: Reserve) -> Result<(), Errno> {
    let allocated = allocated_bytes(fd)?;
    let holes = holes(fd, len)?;
    let sum: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
    if allocated + sum < len {
        // The file system does not tell where the holes are.
        return reserve(fd, 0..len);
    }
    for hole in holes {
        match reserve(fd, hole) {
            Err(Errno::NOSPC) if allocated >= len => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

/// The holes among the first `len` bytes, and what was reserved and never written. None where the file system does not tell.
fn holes(fd: BorrowedFd<'_>, len: u64) -> Result<Vec<Range<u64>>, Errno> {
    let (mut at, mut holes) = (0, Vec::new());
    while at < len {
        let data = match seek(fd, SeekFrom::Data(at)) {
            Ok(data) => data.min(len),
            // There is none behind.
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
    use super::*;

    /// A file of 60 GB was taken to lack 60 GB when it was opened again.
    #[test]
    fn what_a_file_has_is_not_lacking() {
        const GB: u64 = 1_000_000_000;
        // New, grown, and opened again.
        assert_eq!(lacking_bytes(0, 0, 60 * GB), 60 * GB);
        assert_eq!(lacking_bytes(60 * GB, 60 * GB, 61 * GB), GB);
        assert_eq!(lacking_bytes(60 * GB, 0, 61 * GB), GB);
        // Sparse; with space behind its end; with holes that came after all of it was reserved.
        assert_eq!(lacking_bytes(20 * GB, 0, 61 * GB), 41 * GB);
        assert_eq!(lacking_bytes(62 * GB, 0, 61 * GB), 0);
        assert_eq!(lacking_bytes(20 * GB, 60 * GB, 61 * GB), GB);
    }
}
