//! Memory registered with a ring: the kernel pins and maps it once, not on every transfer.
//!
//! Large memory is registered piece by piece, each when a transfer first names it. The kernel
//! clears memory that it pins, which for each GiB would delay the first request by a tenth of a
//! second or more.

use std::io;
use std::sync::Arc;

use io_uring::{cqueue, squeue};
use qpair_block::{Arena, Error, ErrorKind, Result};

use super::ring::Ring;
use crate::limits::{is_memlock_bounded, raise_memlock};

/// log2 of the maximum number of bytes in one registered buffer: the kernel's limit is 1 GiB.
pub(crate) const PIECE_SHIFT_MAX: u32 = 30;
/// The number of bytes of memory up to which it is registered as a whole when the channel is
/// opened.
const PIECES_MAX: usize = 1 << 14;

/// Memory smaller than this is registered as a whole, when the channel is opened.
const AT_ONCE_BYTES: usize = 64 << 20;
/// log2 of the minimum number of bytes of a piece that is registered on first use.
const STEP_SHIFT_MIN: u32 = 22;
const STEPS_MAX: usize = PIECES_MAX / 2;

struct Entry {
    arena: Arc<Arena>,
    base: usize,
    /// The index of the registered buffer that holds the arena's first byte.
    first: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// No transfer has named the piece yet.
    Unregistered,
    Registered,
    /// The kernel refused to register the piece, so it is pinned on every transfer.
    Refused,
}

/// The registered arenas. Their memory stays mapped for as long as the ring can name it.
#[derive(Default)]
pub(crate) struct Buffers {
    entries: Vec<Entry>,
    /// log2 of the number of bytes that one registered buffer covers.
    piece_shift: u32,
    pieces: Vec<Piece>,
    unregistered: usize,
}

/// Returns log2 of a piece size that cuts `bytes` into at most [`STEPS_MAX`] pieces.
fn step_shift(bytes: usize) -> u32 {
    bytes.div_ceil(STEPS_MAX).next_power_of_two().ilog2().clamp(STEP_SHIFT_MIN, PIECE_SHIFT_MAX)
}

impl Buffers {
    /// Registers `arenas` with `ring`, in pieces of `1 << piece_shift` bytes.
    ///
    /// Large memory is registered only on first use, if locked memory has no limit and the kernel
    /// supports it (5.19).
    pub(crate) fn register<S, C>(
        ring: &Ring<S, C>,
        arenas: &[Arc<Arena>],
        piece_shift: u32,
    ) -> Result<Self>
    where
        S: squeue::EntryMarker + 'static,
        C: cqueue::EntryMarker + 'static,
    {
        let total = arenas.iter().map(|arena| arena.region().1).sum();
        let by_steps = piece_shift == PIECE_SHIFT_MAX
            && total >= AT_ONCE_BYTES
            && arenas.iter().all(|arena| arena.block_size() <= 1 << STEP_SHIFT_MIN)
            && !is_memlock_bounded();
        if by_steps {
            let piece_shift = step_shift(total);
            let (entries, pieces) = cut(arenas, piece_shift);
            if ring.register_no_buffers(pieces.len() as u32).is_ok() {
                return Ok(Self {
                    entries,
                    piece_shift,
                    unregistered: pieces.len(),
                    pieces: vec![Piece::Unregistered; pieces.len()],
                });
            }
        }
        let (entries, pieces) = cut(arenas, piece_shift);
        if !pieces.is_empty() {
            let bytes = entries.iter().map(|entry| entry.arena.region().1).sum();
            if pieces.len() > PIECES_MAX {
                return Err(too_many(bytes, piece_shift));
            }
            // SAFETY: each piece lies in an arena that `entries` keeps mapped. The channel drops
            // the entries only after the ring's registration (`Channel::drop`).
            unsafe { ring.register_buffers(&pieces) }.map_err(|cause| failed(cause, bytes))?;
        }
        let pieces = vec![Piece::Registered; pieces.len()];
        Ok(Self { entries, piece_shift, pieces, unregistered: 0 })
    }

    /// Registers the piece that contains `address` of the arena `arena_id`, if no transfer has
    /// named it yet.
    #[inline]
    pub(crate) fn prepare<S, C>(&mut self, ring: &Ring<S, C>, arena_id: u32, address: *mut u8)
    where
        S: squeue::EntryMarker + 'static,
        C: cqueue::EntryMarker + 'static,
    {
        if self.unregistered > 0
            && let Some(index) = self.place(arena_id, address)
            && self.pieces.get(usize::from(index)) == Some(&Piece::Unregistered)
        {
            self.register_piece(ring, arena_id, index);
        }
    }

    #[cold]
    fn register_piece<S, C>(&mut self, ring: &Ring<S, C>, arena_id: u32, index: u16)
    where
        S: squeue::EntryMarker + 'static,
        C: cqueue::EntryMarker + 'static,
    {
        let Some(entry) = self.entries.iter().find(|entry| entry.arena.id() == arena_id) else {
            return;
        };
        let piece = piece(&entry.arena, usize::from(index - entry.first), self.piece_shift);
        // SAFETY: the piece lies in an arena that `entries` keeps mapped, as above.
        let registered = unsafe { ring.register_buffer(u32::from(index), piece) };
        // A refusal does no harm: a transfer with unregistered memory has the same effect.
        self.pieces[usize::from(index)] = match registered {
            Ok(()) => Piece::Registered,
            Err(_) => Piece::Refused,
        };
        self.unregistered -= 1;
    }

    /// Returns the index of the registered buffer for `address` of the arena `arena_id`, whether it
    /// is registered yet or not.
    #[inline]
    fn place(&self, arena_id: u32, address: *mut u8) -> Option<u16> {
        let entry = self.entries.iter().find(|entry| entry.arena.id() == arena_id)?;
        Some(entry.first + ((address as usize - entry.base) >> self.piece_shift) as u16)
    }

    #[inline]
    pub(crate) fn index(&self, arena_id: u32, address: *mut u8) -> Option<u16> {
        let index = self.place(arena_id, address)?;
        (self.pieces.get(usize::from(index)) == Some(&Piece::Registered)).then_some(index)
    }
}

fn cut(arenas: &[Arc<Arena>], piece_shift: u32) -> (Vec<Entry>, Vec<libc::iovec>) {
    let mut entries: Vec<Entry> = Vec::with_capacity(arenas.len());
    let mut pieces = Vec::new();
    for arena in arenas {
        // A block larger than a piece would span several pieces, and memory of other processes may
        // disappear.
        let known = entries.iter().any(|entry| entry.arena.id() == arena.id());
        if known || arena.segments_max().is_some() || arena.block_size() > 1 << piece_shift {
            continue;
        }
        let (base, len) = arena.region();
        let Ok(first) = u16::try_from(pieces.len()) else { break };
        entries.push(Entry { arena: arena.clone(), base: base as usize, first });
        pieces.extend((0..len.div_ceil(1 << piece_shift)).map(|n| piece(arena, n, piece_shift)));
    }
    (entries, pieces)
}

fn piece(arena: &Arena, n: usize, piece_shift: u32) -> libc::iovec {
    let (base, len) = arena.region();
    let start = n << piece_shift;
    libc::iovec {
        iov_base: base.wrapping_add(start).cast(),
        iov_len: (len - start).min(1 << piece_shift),
    }
}

fn too_many(bytes: usize, piece_shift: u32) -> Error {
    let (piece, most) = (1usize << piece_shift, PIECES_MAX << piece_shift);
    let what = format!(
        "{bytes} bytes of memory cannot be registered with io_uring: in pieces of {piece} bytes the kernel takes {most}"
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
            format!("{}, write io_uring:buffers=off, or use libaio", raise_memlock()),
        ),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => Error::os(cause, what).hint(
            "a seccomp profile may forbid io_uring_register: allow it there, or write buffers=off,file=off",
        ),
        _ => Error::os(cause, what).hint("write buffers=off"),
    }
}
