//! Bytes of older values, in memory that each thread reuses.
//!
//! Each change creates and drops older values. The allocator keeps only short free lists for each
//! thread; allocating these values from it took a fifteenth of the processor time of a TPC-C
//! transaction. So each thread keeps more free memory itself.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;

/// The granularity of memory sizes, in bytes.
const STEP_BYTES: usize = 64;
/// Memory of up to this many steps is kept; larger memory goes back to the allocator.
const STEPS_MAX: usize = 16;
/// The free memory that a thread keeps at most, in bytes.
const SPARE_BYTES_MAX: usize = 2 << 20;

thread_local! {
    static SPARE: RefCell<Spare> = RefCell::default();
}

/// The size of the header before the bytes, which has their number as u32.
const HEAD_BYTES: usize = 4;

/// The bytes of an older value, in memory that may be larger. As small as a reference, so that a
/// row fits into two cache lines.
pub(crate) struct OldBytes(Box<[u8]>);

impl OldBytes {
    fn new(mut memory: Box<[u8]>, bytes: &[u8]) -> Self {
        memory[..HEAD_BYTES].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        memory[HEAD_BYTES..HEAD_BYTES + bytes.len()].copy_from_slice(bytes);
        Self(memory)
    }

    /// Returns the size of the memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.len()
    }
}

impl From<&[u8]> for OldBytes {
    fn from(bytes: &[u8]) -> Self {
        let memory_bytes = (HEAD_BYTES + bytes.len()).next_multiple_of(STEP_BYTES);
        // A thread that is ending has no free memory any more.
        let spare = SPARE.try_with(|spare| spare.borrow_mut().take(memory_bytes)).ok().flatten();
        Self::new(spare.unwrap_or_else(|| vec![0; memory_bytes].into()), bytes)
    }
}

impl Clone for OldBytes {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl Drop for OldBytes {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.0);
        let _ = SPARE.try_with(|spare| spare.borrow_mut().give(memory));
    }
}

impl Deref for OldBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let len = self.0.first_chunk().map_or(0, |len| u32::from_le_bytes(*len));
        &self.0[HEAD_BYTES..HEAD_BYTES + len as usize]
    }
}

impl PartialEq for OldBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for OldBytes {}

impl fmt::Debug for OldBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The free memory of a thread.
#[derive(Default)]
struct Spare {
    /// The list at index `n` has memory of `n + 1` steps.
    lists: [Vec<Box<[u8]>>; STEPS_MAX],
    bytes: usize,
}

impl Spare {
    fn take(&mut self, memory_bytes: usize) -> Option<Box<[u8]>> {
        let memory = self.lists.get_mut(memory_bytes / STEP_BYTES - 1)?.pop()?;
        self.bytes -= memory_bytes;
        Some(memory)
    }

    fn give(&mut self, memory: Box<[u8]>) {
        let bytes = memory.len();
        if self.bytes + bytes <= SPARE_BYTES_MAX
            && let Some(list) = self.lists.get_mut(bytes / STEP_BYTES - 1)
        {
            list.push(memory);
            self.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_its_bytes_are_the_new_ones() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut kept: Vec<(Vec<u8>, OldBytes)> = Vec::new();
        let spare_bytes = || SPARE.with_borrow(|spare| spare.bytes);
        for round in 0..20_000 {
            // In the first rounds many values are kept, and later few, so that more memory is free
            // than in use.
            if random.usize(..20_000) > round && kept.len() < 8000 {
                let value = vec![round as u8; random.usize(0..1200)];
                let old = OldBytes::from(&value[..]);
                assert!(old.memory_bytes() < HEAD_BYTES + value.len() + STEP_BYTES);
                kept.push((value, old));
            } else if !kept.is_empty() {
                let (value, old) = kept.swap_remove(random.usize(..kept.len()));
                assert_eq!((&*old, &*old.clone()), (&value[..], &value[..]));
            }
            let bytes = SPARE.with_borrow(|spare| {
                spare.lists.iter().flatten().map(|memory| memory.len()).sum::<usize>()
            });
            assert_eq!(spare_bytes(), bytes);
            assert!(bytes <= SPARE_BYTES_MAX);
        }
        kept.clear();
        let before = spare_bytes();
        let old = OldBytes::from(&[1; 100][..]);
        assert_eq!(spare_bytes(), before - old.memory_bytes(), "of what is spare");
    }
}
