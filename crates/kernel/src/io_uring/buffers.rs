//! Memory registered with a ring: the kernel pins and maps it once, not on every transfer.

use std::io;
use std::sync::Arc;

use io_uring::{cqueue, squeue};
use qpair_block::{Arena, Error, ErrorKind, Result};

use super::ring::Ring;
use crate::limits::raise_memlock;

/// log2 of the bytes one registered buffer covers at most: the kernel takes 1 GiB each.
pub(crate) const PIECE_SHIFT_MAX: u32 = 30;
/// Registered buffers of a ring (`IORING_MAX_REG_BUFFERS`).
const PIECES_MAX: usize = 1 << 14;

/// One arena of those registered.
struct Entry {
    arena: Arc<Arena>,
    base: usize,
    /// Index of the registered buffer that holds the arena's first byte.
    first: u16,
}

/// The registered arenas. Holding them keeps their memory mapped as long as the ring can name it.
#[derive(Default)]
pub(crate) struct Buffers {
    entries: Vec<Entry>,
    /// log2 of the bytes one registered buffer covers.
    piece_shift: u32,
}

impl Buffers {
    /// Registers `arenas` with `ring`, in pieces of `1 << piece_shift` bytes.
    pub(crate) fn register<S, C>(
        ring: &Ring<S, C>,
        arenas: &[Arc<Arena>],
        piece_shift: u32,
    ) -> Result<Self>
    where
        S: squeue::EntryMarker + 'static,
        C: cqueue::EntryMarker + 'static,
    {
        let mut entries: Vec<Entry> = Vec::with_capacity(arenas.len());
        let mut pieces = Vec::new();
        for arena in arenas {
            // A block larger than a piece would not lie in one.
            let known = entries.iter().any(|entry| entry.arena.id() == arena.id());
            if known || arena.block_size() > 1 << piece_shift {
                continue;
            }
            let (base, len) = arena.region();
            let Ok(first) = u16::try_from(pieces.len()) else { break };
            entries.push(Entry { arena: arena.clone(), base: base as usize, first });
            pieces.extend((0..len).step_by(1 << piece_shift).map(|start| libc::iovec {
                iov_base: base.wrapping_add(start).cast(),
                iov_len: (len - start).min(1 << piece_shift),
            }));
        }
        if !pieces.is_empty() {
            let bytes = entries.iter().map(|entry| entry.arena.region().1).sum();
            if pieces.len() > PIECES_MAX {
                return Err(too_many(bytes, piece_shift));
            }
            // SAFETY: each piece lies in an arena that `entries` keeps mapped, and the channel drops them only
            // after the ring's registration (`Channel::drop`).
            unsafe { ring.register_buffers(&pieces) }.map_err(|cause| failed(cause, bytes))?;
        }
        Ok(Self { entries, piece_shift })
    }

    /// Index of the registered buffer that `address` of the arena `arena_id` lies in.
    #[inline]
    pub(crate) fn index(&self, arena_id: u32, address: *mut u8) -> Option<u16> {
        let entry = self.entries.iter().find(|entry| entry.arena.id() == arena_id)?;
        Some(entry.first + ((address as usize - entry.base) >> self.piece_shift) as u16)
    }
}

fn too_many(bytes: usize, piece_shift: u32) -> Error {
    let (piece, most) = (1usize << piece_shift, PIECES_MAX << piece_shift);
    let what = format!(
        "registering {bytes} bytes of memory with io_uring: in pieces of {piece} bytes the kernel takes {most}"
    );
    let error = Error::new(ErrorKind::Limit, what);
    match piece_shift {
        PIECE_SHIFT_MAX => error.hint("write buffers=off, or use less memory"),
        _ => error.hint(
            "newer kernels than this take larger pieces for NVMe commands; write buffers=off, or use less memory",
        ),
    }
}

fn failed(cause: io::Error, bytes: usize) -> Error {
    let errno = cause.raw_os_error();
    let what = format!("registering {bytes} bytes of memory with io_uring");
    match errno {
        Some(libc::ENOMEM) => Error::new(ErrorKind::Limit, what).caused_by(cause).hint(
            format!("{}, write buffers=off, or use libaio", raise_memlock()),
        ),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => Error::os(cause, what).hint(
            "a seccomp profile may forbid io_uring_register: allow it there, or write buffers=off,file=off",
        ),
        _ => Error::os(cause, what).hint("write buffers=off"),
    }
}
