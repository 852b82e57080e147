//! Transfers as vectors: one buffer passed to the kernel in several pieces (`segments=N`), or a
//! list of segments.
//!
//! Invariant: the pieces of a slot lie in the transfer with which the slot was last filled, and
//! stay unchanged until it is filled again. All memory is allocated when the channel is opened.

use std::sync::Arc;

use qpair_block::{Arena, DeviceInfo};

use crate::in_flight::{Slot, Transfer};
use crate::mode::Mode;

pub(crate) struct Vectors {
    pieces: Box<[libc::iovec]>,
    segments: usize,
    /// The unit of pieces in bytes: the alignment of direct I/O.
    grid_bytes: usize,
}

// SAFETY: this module treats the addresses as numbers, and never dereferences them. The code that
// fills a slot owns the transfers to which they belong.
unsafe impl Send for Vectors {}

impl Vectors {
    /// Makes room for the pieces of `slots` slots; `None` if the mode has no segments.
    pub(crate) fn new(mode: &Mode, limits: &DeviceInfo, slots: u32) -> Option<Self> {
        let segments = usize::from(mode.segments);
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        (segments > 0).then(|| Self {
            pieces: vec![empty; segments * slots as usize].into_boxed_slice(),
            segments,
            grid_bytes: limits.logical_block_bytes.max(limits.memory_alignment_bytes) as usize,
        })
    }

    /// Cuts a transfer into equal pieces, which the slot keeps until it is filled again, and
    /// returns them.
    ///
    /// If a transfer does not divide evenly, its pieces differ by one unit of the grid. A transfer
    /// with fewer units than pieces has one piece for each unit.
    #[inline]
    pub(crate) fn fill(&mut self, slot: u32, transfer: &Transfer) -> &[libc::iovec] {
        let first = slot as usize * self.segments;
        let Some(pieces) = self.pieces.get_mut(first..first + self.segments) else { return &[] };
        let len_bytes = transfer.len_bytes as usize;
        let units = len_bytes.div_ceil(self.grid_bytes);
        let (each, larger) = (units / self.segments, units % self.segments);
        let (mut at, mut count) = (0, 0);
        for (number, piece) in pieces.iter_mut().enumerate() {
            let units = each + usize::from(number < larger);
            // The last unit may be partial: the rest of a short transfer.
            let bytes = (units * self.grid_bytes).min(len_bytes - at);
            if bytes == 0 {
                break;
            }
            *piece =
                libc::iovec { iov_base: transfer.address.wrapping_add(at).cast(), iov_len: bytes };
            at += bytes;
            count += 1;
        }
        &pieces[..count]
    }
}

/// Pieces for every slot of a channel whose requests may have lists of segments.
pub(crate) struct Lists {
    pieces: Box<[libc::iovec]>,
    pieces_max: usize,
}

// SAFETY: as for `Vectors`.
unsafe impl Send for Lists {}

impl Lists {
    /// Makes room for `slots` slots; `None` if `arenas` cannot have lists. A list of another arena
    /// is transferred segment by segment.
    pub(crate) fn new(arenas: &[Arc<Arena>], slots: u32) -> Option<Self> {
        let pieces_max = arenas.iter().filter_map(|arena| arena.segments_max()).max()?;
        // The kernel's limit.
        let pieces_max = pieces_max.min(libc::UIO_MAXIOV as usize);
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let pieces = vec![empty; pieces_max * slots as usize].into_boxed_slice();
        Some(Self { pieces, pieces_max })
    }

    #[cold]
    pub(crate) fn transfer(&mut self, slot: u32, of: &Slot) -> Transfer {
        let one = of.one_piece();
        let first = slot as usize * self.pieces_max;
        let Some(pieces) = self.pieces.get_mut(first..first + self.pieces_max) else { return one };
        let (mut count, mut len_bytes) = (0, 0);
        for (piece, from) in pieces.iter_mut().zip(of.pieces()) {
            *piece = libc::iovec { iov_base: from.address.cast(), iov_len: from.len_bytes };
            len_bytes += from.len_bytes as u32;
            count += 1;
        }
        if count < 2 {
            return one;
        }
        Transfer { address: pieces.as_mut_ptr().cast(), pieces: count, len_bytes, ..one }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::Interface;
    use qpair_block::Op;

    fn lengths(segments: u16, len_bytes: u32) -> Vec<usize> {
        let mode = Mode { segments, ..Mode::new(Interface::IoUring) };
        let limits = DeviceInfo {
            name: String::new(),
            interface: String::new(),
            mode: String::new(),
            logical_block_bytes: 512,
            memory_alignment_bytes: 4,
            transfer_bytes_max: 1 << 30,
            atomic_write_bytes_min: 0,
            atomic_write_bytes: 0,
            volatile_write_cache: true,
            read_only: false,
            discards: true,
            writes_zeroes: true,
            growable: false,
            depth_max: 1,
            shared_memory: false,
        };
        let mut vectors = Vectors::new(&mode, &limits, 2).unwrap();
        let transfer = Transfer {
            op: Op::Read,
            force_unit_access: false,
            atomic: false,
            offset_bytes: 0,
            len_bytes,
            address: std::ptr::without_provenance_mut(0x10000),
            pieces: 0,
            arena_id: 0,
        };
        let mut at = 0x10000;
        let pieces = vectors.fill(1, &transfer);
        pieces
            .iter()
            .map(|piece| {
                assert_eq!(piece.iov_base.addr(), at);
                at += piece.iov_len;
                piece.iov_len
            })
            .collect()
    }

    #[test]
    fn pieces_are_equal_where_they_can_be() {
        assert_eq!(lengths(4, 16384), [4096; 4]);
        assert_eq!(lengths(1, 16384), [16384]);
        assert_eq!(lengths(4, 5 * 512), [1024, 512, 512, 512]);
        assert_eq!(lengths(4, 2 * 512), [512; 2]);
        assert_eq!(lengths(4, 512 + 100), [512, 100]);
        assert_eq!(lengths(3, 4 * 512 + 1), [1024, 1024, 1]);
    }
}
