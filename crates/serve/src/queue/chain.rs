//! The contents of a chain of descriptors. The division of its bytes into descriptors has no
//! meaning.

use qpair_block::Segment;
use qpair_virtio::ring::Segment as Named;

use crate::memory::{GuestMemory, Place};

/// Takes the first bytes of the part that the device reads. Returns false if there are too few, or
/// if they are outside the guest's memory.
#[inline]
pub(crate) fn take(memory: &GuestMemory, named: &mut [Named], into: &mut [u8]) -> bool {
    let mut at = 0;
    for part in named.iter_mut().filter(|part| !part.is_written) {
        let len = (into.len() - at).min(part.len as usize);
        if !memory.read(part.address, &mut into[at..at + len]) {
            return false;
        }
        part.address += len as u64;
        part.len -= len as u32;
        at += len;
        if at == into.len() {
            return true;
        }
    }
    false
}

/// Takes the first `N` bytes of the part that the device reads, as [`take`] does.
#[inline]
pub(crate) fn take_array<const N: usize>(
    memory: &GuestMemory,
    named: &mut [Named],
) -> Option<[u8; N]> {
    let mut into = [0; N];
    // Most drivers give them a descriptor of their own. A copy of a known length takes few
    // instructions.
    match named.first_mut() {
        Some(first) if !first.is_written && first.len as usize == N => {
            first.len = 0;
            memory.read(first.address, &mut into).then_some(into)
        }
        _ => take(memory, named, &mut into).then_some(into),
    }
}

/// Appends the segments of the part that the device writes, or of the part that it reads. Returns
/// the number of bytes; `None` if some are outside the guest's memory.
#[inline]
pub(crate) fn segments_of(
    memory: &GuestMemory,
    named: &[Named],
    is_written: bool,
    into: &mut Vec<Segment>,
) -> Option<u64> {
    let mut len_bytes = 0;
    for part in named.iter().filter(|part| part.is_written == is_written) {
        if !memory.segments(part.address, part.len, into) {
            return None;
        }
        len_bytes += u64::from(part.len);
    }
    Some(len_bytes)
}

/// Stores bytes in the part that the device writes, as far as there is room. Returns how many were
/// stored.
pub(crate) fn put(memory: &GuestMemory, named: &[Named], bytes: &[u8]) -> usize {
    let mut at = 0;
    for part in named.iter().filter(|part| part.is_written) {
        let mut done = 0;
        while done < part.len && at < bytes.len() {
            let address = part.address + u64::from(done);
            let Some(room) = memory.room_from(address) else { return at };
            let len = u64::from(part.len - done).min(room).min((bytes.len() - at) as u64);
            let Some(place) = memory.find_guest(address, len) else { return at };
            let (memory, to) = memory.bytes(place);
            memory.copy_from(to, &bytes[at..at + len as usize]);
            (done, at) = (done + len as u32, at + len as usize);
        }
    }
    at
}

/// The maximum number of parts of a [`Head`].
const PARTS_MAX: usize = 4;

/// The first bytes of the part that the device writes: the place of its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    parts: [Option<(Place, u32)>; PARTS_MAX],
}

impl Head {
    /// Takes `len` bytes from the chain. `None` if there are fewer, if they are outside the guest's
    /// memory, or if they lie in too many parts.
    pub(crate) fn take(memory: &GuestMemory, named: &mut [Named], len: u32) -> Option<Self> {
        let mut head = Self::default();
        let (mut left, mut parts) = (len, head.parts.iter_mut());
        for part in named.iter_mut().filter(|part| part.is_written) {
            while part.len > 0 && left > 0 {
                // Bytes that cross into another region form two parts.
                let room = memory.room_from(part.address)?;
                let len = u64::from(part.len.min(left)).min(room) as u32;
                let place = memory.find_guest(part.address, len.into())?;
                *parts.next()? = Some((place, len));
                part.address += u64::from(len);
                part.len -= len;
                left -= len;
            }
        }
        (left == 0).then_some(head)
    }

    /// Stores bytes at the start of the place.
    pub(crate) fn store(&self, memory: &GuestMemory, mut bytes: &[u8]) {
        for (place, len) in self.parts.iter().flatten() {
            let (now, rest) = bytes.split_at(bytes.len().min(*len as usize));
            let (memory, at) = memory.bytes(*place);
            memory.copy_from(at, now);
            bytes = rest;
        }
    }
}
