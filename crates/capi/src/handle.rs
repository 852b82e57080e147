//! Handles: what C holds of an object.
//!
//! A handle has the shape of a pointer and is a number: an index into a table of slots, the kind of
//! the object, the number of times that the slot was used before, and the epoch of the process. A
//! lookup compares all of them, so a handle that was closed, that is of another kind, or that a
//! parent process has made is an error.
//!
//! Invariants: slots are never freed or moved. A call holds its slot's lock for reading, or for
//! writing if it changes the object; nothing waits for a lock for writing while a call holds it,
//! so a call may call other functions with the same handle.

use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use crate::error::Failure;
use crate::fork;

/// The number of slots in the first chunk. Each further chunk has twice as many as the one before.
const FIRST_CHUNK: u32 = 64;
/// The number of chunks, which limits the handles of a kind to 8 million.
const CHUNKS: usize = 17;

const INDEX_SHIFT: u32 = 8;
const USE_SHIFT: u32 = 32;
const EPOCH_SHIFT: u32 = 56;
const USE_MASK: u32 = 0xff_ffff;

/// The objects of one kind that have handles.
pub(crate) struct Handles<T> {
    kind: u8,
    name: &'static str,
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    free: Mutex<Free>,
}

struct Slot<T> {
    /// The number of objects that the slot had before, modulo 2^24.
    uses: AtomicU32,
    object: RwLock<Option<T>>,
}

struct Free {
    slots: Vec<u32>,
    /// The number of slots that were ever used.
    used: u32,
}

fn place(index: u32) -> (usize, usize) {
    let at = index + FIRST_CHUNK;
    let chunk = at.ilog2() - FIRST_CHUNK.ilog2();
    (chunk as usize, (at - (FIRST_CHUNK << chunk)) as usize)
}

impl<T> Handles<T> {
    pub(crate) const fn new(kind: u8, name: &'static str) -> Self {
        let free = Mutex::new(Free { slots: Vec::new(), used: 0 });
        Self { kind, name, chunks: [const { OnceLock::new() }; CHUNKS], free }
    }

    /// Gives an object a handle.
    pub(crate) fn insert<H>(&self, object: T) -> Result<*mut H, Failure> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match free.slots.pop() {
            Some(index) => index,
            None if place(free.used).0 < CHUNKS => {
                free.used += 1;
                free.used - 1
            }
            None => {
                return Err(Failure::limit(format!(
                    "the process has too many handles of the kind {}",
                    self.name
                )));
            }
        };
        drop(free);
        let (chunk, at) = place(index);
        let chunk = self.chunks[chunk].get_or_init(|| {
            let slot = || Slot { uses: AtomicU32::new(0), object: RwLock::new(None) };
            (0..FIRST_CHUNK << chunk).map(|_| slot()).collect()
        });
        let slot = &chunk[at];
        // Only a call with a stale handle can have the lock, and not for long.
        *slot.object.write().unwrap_or_else(PoisonError::into_inner) = Some(object);
        let uses = slot.uses.load(Ordering::Relaxed);
        let number = u64::from(fork::epoch()) << EPOCH_SHIFT
            | u64::from(uses) << USE_SHIFT
            | u64::from(index) << INDEX_SHIFT
            | u64::from(self.kind);
        Ok(without_provenance_mut(number as usize))
    }

    /// Returns a handle's slot, and the number of uses that the slot must have.
    #[inline(always)]
    fn slot<H>(&self, handle: *mut H) -> Result<(&Slot<T>, u32), Failure> {
        let number = handle.addr() as u64;
        if number as u8 != self.kind {
            return Err(self.wrong(number));
        }
        if (number >> EPOCH_SHIFT) as u8 != fork::epoch() {
            return Err(Failure::forked(self.name));
        }
        let (chunk, at) = place((number >> INDEX_SHIFT) as u32 & USE_MASK);
        let slots = self.chunks.get(chunk).and_then(OnceLock::get);
        let slot = slots.and_then(|slots| slots.get(at)).ok_or_else(|| self.closed())?;
        Ok((slot, (number >> USE_SHIFT) as u32 & USE_MASK))
    }

    /// Runs a call that reads an object. Any number of threads may be in such calls.
    #[inline(always)]
    pub(crate) fn with<H, R>(
        &self,
        handle: *mut H,
        run: impl FnOnce(&T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let (slot, uses) = self.slot(handle)?;
        let object = slot.object.read().unwrap_or_else(PoisonError::into_inner);
        match &*object {
            Some(object) if slot.uses.load(Ordering::Relaxed) == uses => run(object),
            _ => Err(self.closed()),
        }
    }

    /// Runs a call that changes an object.
    ///
    /// # Errors
    /// `QPAIR_BUSY` if another call uses the handle.
    #[inline]
    pub(crate) fn with_mut<H, R>(
        &self,
        handle: *mut H,
        run: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let (slot, uses) = self.slot(handle)?;
        let mut object = self.lock(slot)?;
        match &mut *object {
            Some(object) if slot.uses.load(Ordering::Relaxed) == uses => run(object),
            _ => Err(self.closed()),
        }
    }

    fn lock<'s>(&self, slot: &'s Slot<T>) -> Result<RwLockWriteGuard<'s, Option<T>>, Failure> {
        match slot.object.try_write() {
            Ok(object) => Ok(object),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Failure::in_use(self.name)),
        }
    }

    /// Closes a handle and returns its object, if `may` agrees.
    ///
    /// # Errors
    /// `QPAIR_BUSY` if another call uses the handle; the error of `may`. The handle is then open as
    /// before.
    pub(crate) fn remove<H>(
        &self,
        handle: *mut H,
        may: impl FnOnce(&mut T) -> Result<(), Failure>,
    ) -> Result<T, Failure> {
        let (slot, uses) = self.slot(handle)?;
        let object = self.lock(slot)?;
        self.take(handle, slot, uses, object, may)
    }

    /// Closes a handle and returns its object. Waits for calls of other threads that use it.
    pub(crate) fn remove_waiting<H>(&self, handle: *mut H) -> Result<T, Failure> {
        let (slot, uses) = self.slot(handle)?;
        let object = slot.object.write().unwrap_or_else(PoisonError::into_inner);
        self.take(handle, slot, uses, object, |_| Ok(()))
    }

    fn take<H>(
        &self,
        handle: *mut H,
        slot: &Slot<T>,
        uses: u32,
        mut object: RwLockWriteGuard<'_, Option<T>>,
        may: impl FnOnce(&mut T) -> Result<(), Failure>,
    ) -> Result<T, Failure> {
        if slot.uses.load(Ordering::Relaxed) != uses {
            return Err(self.closed());
        }
        may(object.as_mut().ok_or_else(|| self.closed())?)?;
        let taken = object.take().ok_or_else(|| self.closed())?;
        slot.uses.store((uses + 1) & USE_MASK, Ordering::Relaxed);
        drop(object);
        let index = (handle.addr() as u64 >> INDEX_SHIFT) as u32 & USE_MASK;
        self.free.lock().unwrap_or_else(PoisonError::into_inner).slots.push(index);
        Ok(taken)
    }

    /// Returns the number of open handles.
    pub(crate) fn count(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.used as usize - free.slots.len()
    }

    #[cold]
    fn wrong(&self, number: u64) -> Failure {
        match number {
            0 => Failure::misuse(format!("the handle of the kind {} is null", self.name)),
            _ => Failure::misuse(format!("{number:#x} is no handle of the kind {}", self.name)),
        }
    }

    #[cold]
    fn closed(&self) -> Failure {
        Failure::misuse(format!("the handle of the kind {} was closed before", self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::code::{QPAIR_BUSY, QPAIR_FORKED, QPAIR_MISUSE};

    type Handle = *mut u8;

    fn code<R>(outcome: Result<R, Failure>) -> i32 {
        outcome.err().map_or(0, |failure| failure.code())
    }

    #[test]
    fn indices_fill_the_chunks_one_after_the_other() {
        assert_eq!(
            [place(0), place(63), place(64), place(191)],
            [(0, 0), (0, 63), (1, 0), (1, 127)]
        );
        let handles = Handles::new(3, "test");
        let all: Vec<Handle> = (0..500).map(|n| handles.insert(n).unwrap()).collect();
        for (n, handle) in all.iter().enumerate() {
            assert_eq!(handles.with(*handle, |object| Ok(*object)).unwrap(), n);
        }
        assert_eq!(handles.count(), 500);
    }

    #[test]
    fn a_closed_handle_stays_closed_when_its_slot_is_used_again() {
        let handles = Handles::new(3, "test");
        let first: Handle = handles.insert(1).unwrap();
        assert_eq!(handles.remove(first, |_| Ok(())).unwrap(), 1);
        let second: Handle = handles.insert(2).unwrap();
        assert_ne!(first, second);
        assert_eq!(code(handles.with(first, |_| Ok(()))), QPAIR_MISUSE);
        assert_eq!(code(handles.with_mut(first, |_| Ok(()))), QPAIR_MISUSE);
        assert_eq!(code(handles.remove(first, |_| Ok(()))), QPAIR_MISUSE);
        assert_eq!(handles.with(second, |object| Ok(*object)).unwrap(), 2);
    }

    #[test]
    fn what_is_no_handle_is_refused() {
        let (handles, others) = (Handles::new(3, "test"), Handles::new(4, "other"));
        let handle: Handle = handles.insert(1).unwrap();
        others.insert::<u8>(1).unwrap();
        let forged = |bits: usize| handle.wrapping_byte_add(bits);
        for wrong in [std::ptr::null_mut(), forged(1), forged(1 << 8), forged(0xff_ffff << 8)] {
            assert_eq!(code(handles.with(wrong, |_| Ok(()))), QPAIR_MISUSE);
        }
        assert_eq!(code(others.with(handle, |_| Ok(()))), QPAIR_MISUSE);
        let of_a_parent = forged(1 << 56);
        assert_eq!(code(handles.with(of_a_parent, |_| Ok(()))), QPAIR_FORKED);
        assert_eq!(code(handles.remove(of_a_parent, |_| Ok(()))), QPAIR_FORKED);
    }

    #[test]
    fn a_handle_in_use_is_neither_changed_nor_closed() {
        let handles = Arc::new(Handles::new(3, "test"));
        let handle: Handle = handles.insert(1).unwrap();
        handles
            .with(handle, |_| {
                // Readers are let in, also on the same thread.
                assert_eq!(handles.with(handle, |object| Ok(*object)).unwrap(), 1);
                assert_eq!(code(handles.with_mut(handle, |_| Ok(()))), QPAIR_BUSY);
                assert_eq!(code(handles.remove(handle, |_| Ok(()))), QPAIR_BUSY);
                Ok(())
            })
            .unwrap();
        let refused = handles.remove(handle, |_| Err(Failure::in_use("test")));
        assert_eq!(code(refused), QPAIR_BUSY);
        assert_eq!(handles.with_mut(handle, |object| Ok(std::mem::replace(object, 2))).unwrap(), 1);
        assert_eq!(handles.remove(handle, |_| Ok(())).unwrap(), 2);
    }
}
