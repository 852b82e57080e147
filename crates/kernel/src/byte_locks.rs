//! Locks on bytes of an open file, block device or namespace: open file description locks, which
//! end with the open file and not with the first descriptor that is closed.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use qpair_block::{Error, Result};

fn flock(kind: libc::c_int, bytes: &Range<u64>) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as libc::off_t,
        l_len: bytes.end.saturating_sub(bytes.start) as libc::off_t,
        l_pid: 0,
    }
}

fn call(fd: BorrowedFd<'_>, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: `fd` is open while it is borrowed, and `lock` is a valid `flock`, which the kernel
    // reads, and with F_OFD_GETLK writes, during the call only.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

pub(crate) fn lock(
    fd: BorrowedFd<'_>,
    bytes: &Range<u64>,
    exclusive: bool,
    name: &str,
) -> Result<bool> {
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    match call(fd, libc::F_OFD_SETLK, &mut flock(kind, bytes)) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(Error::os(error, format!("locking bytes of {name}"))),
    }
}

pub(crate) fn unlock(fd: BorrowedFd<'_>, bytes: &Range<u64>, name: &str) -> Result<()> {
    call(fd, libc::F_OFD_SETLK, &mut flock(libc::F_UNLCK, bytes))
        .map_err(|error| Error::os(error, format!("unlocking bytes of {name}")))
}

/// Ends all locks on bytes of an open file.
pub(crate) fn unlock_all(fd: BorrowedFd<'_>) {
    // A length of 0 means up to the end. A file without such locks has nothing to end.
    let _ = call(fd, libc::F_OFD_SETLK, &mut flock(libc::F_UNLCK, &(0..0)));
}

pub(crate) fn locked_by_others(
    fd: BorrowedFd<'_>,
    bytes: &Range<u64>,
    name: &str,
) -> Result<Option<Range<u64>>> {
    let mut lock = flock(libc::F_WRLCK, bytes);
    call(fd, libc::F_OFD_GETLK, &mut lock)
        .map_err(|error| Error::os(error, format!("looking for locks on bytes of {name}")))?;
    if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let start = lock.l_start as u64;
    let len = if lock.l_len == 0 { u64::MAX - start } else { lock.l_len as u64 };
    Ok(Some(start..start + len))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn locks_belong_to_one_opening() {
        const FAR: u64 = 1 << 62;
        let path = std::env::temp_dir().join(format!("qpair-bytes-{}", std::process::id()));
        let writer = std::fs::File::create(&path).unwrap();
        let reader = std::fs::File::open(&path).unwrap();
        let (writer, reader_fd) = (writer.as_fd(), reader.as_fd());
        assert!(lock(writer, &(FAR..FAR + 2), true, "f").unwrap());
        assert!(!lock(reader_fd, &(FAR..FAR + 1), false, "f").unwrap());
        assert_eq!(
            locked_by_others(reader_fd, &(FAR + 1..FAR + 9), "f").unwrap(),
            Some(FAR..FAR + 2)
        );
        // An opening does not see its own locks.
        assert_eq!(locked_by_others(writer, &(FAR..FAR + 9), "f").unwrap(), None);
        assert!(lock(reader_fd, &(FAR + 5..FAR + 6), false, "f").unwrap());
        assert_eq!(locked_by_others(writer, &(FAR..FAR + 9), "f").unwrap(), Some(FAR + 5..FAR + 6));
        unlock(writer, &(FAR..FAR + 1), "f").unwrap();
        assert_eq!(locked_by_others(reader_fd, &(FAR..FAR + 1), "f").unwrap(), None);
        unlock_all(writer);
        assert_eq!(locked_by_others(reader_fd, &(0..FAR + 9), "f").unwrap(), None);
        drop(reader);
        assert_eq!(locked_by_others(writer, &(0..FAR + 9), "f").unwrap(), None);
        std::fs::remove_file(&path).unwrap();
    }
}
