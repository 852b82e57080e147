//! Turns requests into entries.

use std::os::fd::RawFd;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{cqueue, opcode, squeue};
use qpair_block::{ChannelOptions, DeviceInfo, Error, IoError, Op, Request, Result};

use super::buffers::{Buffers, PIECE_SHIFT_MAX};
use super::dialect::Dialect;
use super::poll_queues::{self, Reach};
use super::ring::Ring;
use crate::file::File;
use crate::in_flight::Transfer;
use crate::mode::Mode;
use crate::request::verify;
use crate::vectors::Vectors;

/// The file as entries name it: by its index among the registered files, or by its descriptor.
#[derive(Clone, Copy)]
struct Target {
    fd: Fd,
    flags: squeue::Flags,
}

pub(crate) struct Encoder {
    target: Target,
    buffers: Buffers,
    /// The pieces of each slot's transfer, if transfers are vectors.
    vectors: Option<Vectors>,
    fixed_vectors: bool,
    /// The size of the logical block minus one, in bytes.
    block_mask: usize,
    words: String,
}

impl Dialect for Encoder {
    type Target = File;
    type Submission = squeue::Entry;
    type Completion = cqueue::Entry;
    /// A ring that opens supports all operations on files.
    const UNPROVEN: bool = false;
    const TAKES_VECTORS: bool = true;

    fn new(ring: &Ring, file: &File, mode: &Mode, options: &ChannelOptions) -> Result<Self> {
        let buffers = match mode.registered_buffers {
            true => Buffers::register(ring, &options.arenas, PIECE_SHIFT_MAX)?,
            false => Buffers::default(),
        };
        let target = match mode.registered_file {
            true => {
                register_file(ring, file.raw_fd())?;
                Target { fd: Fd(0), flags: squeue::Flags::FIXED_FILE }
            }
            false => Target { fd: Fd(file.raw_fd()), flags: squeue::Flags::empty() },
        };
        let vectors = Vectors::new(mode, &file.limits, options.depth);
        let fixed_vectors = vectors.is_some()
            && mode.registered_buffers
            && ring.knows(opcode::ReadvFixed::CODE)
            && ring.knows(opcode::WritevFixed::CODE);
        let words = format!(
            "{}, {}{}",
            if mode.registered_file { "registered file" } else { "file by number" },
            if mode.registered_buffers && (vectors.is_none() || fixed_vectors) {
                "registered buffers"
            } else {
                "buffers pinned by transfer"
            },
            match mode.segments {
                0 => String::new(),
                segments => format!(", vectors of {segments}"),
            }
        );
        let block_mask = file.limits.logical_block_bytes as usize - 1;
        Ok(Self { target, buffers, vectors, fixed_vectors, block_mask, words })
    }

    fn words(&self) -> &str {
        &self.words
    }

    #[inline]
    fn prepare(&mut self, ring: &Ring, transfer: &Transfer) {
        self.buffers.prepare(ring, transfer.arena_id, transfer.address);
    }

    #[inline]
    fn encode(&mut self, transfer: Transfer, slot: u64) -> squeue::Entry {
        let Transfer { op, offset_bytes, len_bytes, address, .. } = transfer;
        let Target { fd, flags } = self.target;
        let entry = match op {
            Op::Read | Op::Write if self.vectors.is_some() || transfer.pieces > 0 => {
                self.encode_vector(&transfer, slot)
            }
            Op::Read => match self.registered(&transfer) {
                Some(index) => opcode::ReadFixed::new(fd, address, len_bytes, index)
                    .offset(offset_bytes)
                    .build(),
                None => opcode::Read::new(fd, address, len_bytes).offset(offset_bytes).build(),
            },
            Op::Write => {
                let rw_flags = transfer.write_flags();
                match self.registered(&transfer) {
                    Some(index) => opcode::WriteFixed::new(fd, address, len_bytes, index)
                        .offset(offset_bytes)
                        .rw_flags(rw_flags)
                        .build(),
                    None => opcode::Write::new(fd, address, len_bytes)
                        .offset(offset_bytes)
                        .rw_flags(rw_flags)
                        .build(),
                }
            }
            Op::Flush => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            Op::Discard | Op::WriteZeroes => {
                let mode = if op == Op::Discard {
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE
                } else {
                    libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE
                };
                opcode::Fallocate::new(fd, u64::from(len_bytes))
                    .offset(offset_bytes)
                    .mode(mode)
                    .build()
            }
        };
        entry.flags(flags).user_data(slot)
    }

    fn limits(file: &File) -> &DeviceInfo {
        &file.limits
    }

    fn size_bytes(file: &File) -> u64 {
        file.size_bytes()
    }

    #[inline]
    fn answer(file: &File, request: &Request) -> Option<std::result::Result<(), IoError>> {
        verify(request, &file.limits, file.size_bytes()).err().map(Err)
    }

    #[inline]
    fn result(&self, result: i32) -> i64 {
        result.into()
    }

    fn reach(file: &File) -> Result<Reach> {
        poll_queues::check(file)
    }

    fn refused(file: &File, _: &Mode, cause: IoError) -> Error {
        poll_queues::refused(file, cause.errno)
    }

    fn leak(&mut self) {
        // A submission thread may not have read the vectors yet.
        std::mem::forget(self.vectors.take());
    }
}

impl Encoder {
    #[inline]
    fn registered(&self, transfer: &Transfer) -> Option<u16> {
        // The kernel accepts an atomic write only from unregistered memory.
        if transfer.atomic {
            return None;
        }
        // Old kernels (6.1) treat registered memory as pages. They refuse a part of a page that is
        // not whole blocks, although they accept the same memory unregistered.
        if transfer.address.addr() & self.block_mask != 0 {
            return None;
        }
        self.buffers.index(transfer.arena_id, transfer.address)
    }

    #[inline(never)]
    fn encode_vector(&mut self, transfer: &Transfer, slot: u64) -> squeue::Entry {
        let (fd, offset) = (self.target.fd, transfer.offset_bytes);
        let fixed = match self.fixed_vectors && transfer.pieces == 0 {
            true => self.registered(transfer),
            false => None,
        };
        let (first, count) = match &mut self.vectors {
            Some(vectors) if transfer.pieces == 0 => {
                let pieces = vectors.fill(slot as u32, transfer);
                (pieces.as_ptr(), pieces.len() as u32)
            }
            _ => (transfer.address.cast_const().cast(), transfer.pieces),
        };
        let rw_flags = transfer.write_flags();
        match (transfer.op == Op::Read, fixed) {
            (true, Some(index)) => {
                opcode::ReadvFixed::new(fd, first, count, index).offset(offset).build()
            }
            (true, None) => opcode::Readv::new(fd, first, count).offset(offset).build(),
            (false, Some(index)) => opcode::WritevFixed::new(fd, first, count, index)
                .offset(offset)
                .rw_flags(rw_flags)
                .build(),
            (false, None) => {
                opcode::Writev::new(fd, first, count).offset(offset).rw_flags(rw_flags).build()
            }
        }
    }
}

fn register_file(ring: &Ring, fd: RawFd) -> Result<()> {
    ring.register_file(fd).map_err(|cause| {
        Error::os(cause, "registering a file with io_uring").hint(
            "raise ulimit -n, allow io_uring_register in a seccomp profile, or write file=off",
        )
    })
}
