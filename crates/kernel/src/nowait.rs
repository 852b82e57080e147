//! Finds out whether requests to a file can start without blocking.

use std::io::IoSliceMut;
use std::os::fd::AsFd;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// The greatest alignment that direct I/O requires here, bytes.
const ALIGNMENT_BYTES: usize = 4096;

#[repr(C, align(4096))]
struct Block([u8; ALIGNMENT_BYTES]);

/// Whether a device refuses requests that must not block, as zram and older device-mapper targets
/// do.
///
/// io_uring then passes every request to kernel threads. Each of them must wake the submitter if
/// its ring has `DEFER_TASKRUN`: one more context switch for most requests.
pub(crate) fn needs_threads(fd: impl AsFd) -> bool {
    let mut block = Block([0; ALIGNMENT_BYTES]);
    let mut into = [IoSliceMut::new(&mut block.0)];
    preadv2(fd, &mut into, 0, ReadWriteFlags::NOWAIT) == Err(Errno::OPNOTSUPP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_and_a_file_are_told_apart() {
        // A pipe has no offsets, so the call fails with another error, which is not an answer.
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!needs_threads(&reader));
        assert!(!needs_threads(std::fs::File::open("/proc/self/exe").unwrap()));
        // Reads of this file do not support the flag.
        assert!(needs_threads(std::fs::File::open("/proc/self/stat").unwrap()));
    }
}
