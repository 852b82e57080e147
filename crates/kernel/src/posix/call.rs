//! Executes one request by synchronous calls.

use qpair_block::{Arena, Completion, IoError, Op, Request};

use crate::file::File;
use std::sync::Arc;

use crate::in_flight::{Slot, Transfer};
use crate::mode::Mode;
use crate::vectors::{Lists, Vectors};

pub(super) struct Pieces {
    vectors: Option<Vectors>,
    lists: Option<Lists>,
}

impl Pieces {
    pub(super) fn new(mode: &Mode, file: &File, arenas: &[Arc<Arena>]) -> Self {
        Self { vectors: Vectors::new(mode, &file.limits, 1), lists: Lists::new(arenas, 1) }
    }
}

/// Executes one request completely, with vectors if there are any. Returns its completion and the
/// number of system calls.
#[inline]
pub(super) fn perform(file: &File, request: Request, pieces: &mut Pieces) -> (Completion, u64) {
    let mut slot = Slot::new(request);
    let mut calls = 0;
    loop {
        calls += 1;
        let transfer = slot.transfer(&mut pieces.lists, 0);
        let result = call(file, &transfer, &mut pieces.vectors);
        if let Some(result) = slot.advance(result) {
            return (slot.complete(result), calls);
        }
    }
}

/// Makes the call for (the rest of) a transfer. Returns the number of bytes moved, or a negative
/// errno.
#[inline]
fn call(file: &File, rest: &Transfer, vectors: &mut Option<Vectors>) -> i64 {
    let (fd, len) = (file.raw_fd(), i64::from(rest.len_bytes));
    let Ok(offset) = i64::try_from(rest.offset_bytes) else {
        return -i64::from(IoError::INVALID.errno);
    };
    let rw_flags = rest.write_flags();
    // SAFETY: `rest` names memory of the buffer in the caller's slot, which this thread owns during
    // the call. `request::verify` has checked that the buffer holds `len_bytes`. The pieces of a
    // vector lie in it. The descriptor is `file`'s.
    let result = unsafe {
        match (rest.op, vectors) {
            (Op::Read, _) if rest.pieces > 0 => {
                libc::preadv2(fd, rest.address.cast(), rest.pieces as i32, offset, 0) as i64
            }
            (Op::Write, _) if rest.pieces > 0 => {
                let (pieces, count) = (rest.address.cast(), rest.pieces as i32);
                libc::pwritev2(fd, pieces, count, offset, rw_flags) as i64
            }
            (Op::Read, Some(vectors)) => {
                let pieces = vectors.fill(0, rest);
                libc::preadv2(fd, pieces.as_ptr(), pieces.len() as i32, offset, 0) as i64
            }
            (Op::Write, Some(vectors)) => {
                let pieces = vectors.fill(0, rest);
                libc::pwritev2(fd, pieces.as_ptr(), pieces.len() as i32, offset, rw_flags) as i64
            }
            (Op::Read, None) => libc::pread64(fd, rest.address.cast(), len as usize, offset) as i64,
            (Op::Write, None) if rw_flags != 0 => {
                let piece = libc::iovec { iov_base: rest.address.cast(), iov_len: len as usize };
                libc::pwritev2(fd, &raw const piece, 1, offset, rw_flags) as i64
            }
            (Op::Write, None) => {
                libc::pwrite64(fd, rest.address.cast(), len as usize, offset) as i64
            }
            (Op::Flush, _) => libc::fdatasync(fd).into(),
            (Op::Discard, _) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                libc::fallocate64(fd, mode, offset, len).into()
            }
            (Op::WriteZeroes, _) => {
                let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
                libc::fallocate64(fd, mode, offset, len).into()
            }
        }
    };
    if result < 0 {
        -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    } else {
        result
    }
}
