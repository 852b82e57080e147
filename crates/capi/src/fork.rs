//! Notices that this process is a fork of the one that made a handle.
//!
//! A child has no workers, and shares the rings of its parent. Asking for the process id is a
//! system call, which would cost each lookup more than all else here. Instead there is a page that
//! the kernel clears in a child (MADV_WIPEONFORK, Linux 4.14), however it was forked. A process
//! has an epoch, which handles carry; the first call in a child finds the page cleared and begins
//! the next epoch.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

const PAGE_BYTES: usize = 4096;

/// The epoch of this process, on the page that is cleared in a child; null before the first call.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// The newest epoch that this process or one of its ancestors has begun.
static NEWEST: AtomicU32 = AtomicU32::new(0);
/// The process of the present epoch, where the kernel clears no pages; 0 where it does.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Returns the epoch of this process, from 1 to 255.
#[inline(always)]
pub(crate) fn epoch() -> u8 {
    // Acquire: pairs with the store in `begin`, so that the page's content is seen.
    if let Some(page) = NonNull::new(PAGE.load(Ordering::Acquire)) {
        // SAFETY: `PAGE` is null or the address of an `AtomicU32` on a page that is never unmapped.
        let epoch = unsafe { page.as_ref() }.load(Ordering::Relaxed);
        if epoch != 0 && PROCESS.load(Ordering::Relaxed) == 0 {
            return epoch as u8;
        }
    }
    begin()
}

#[cold]
fn begin() -> u8 {
    let page = match NonNull::new(PAGE.load(Ordering::Acquire)) {
        Some(page) => page,
        None => {
            let page = new_page();
            // Two threads may be here: the second one uses the page of the first.
            let first = PAGE.compare_exchange(
                null_mut(),
                page.as_ptr(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            first.map_or_else(|first| NonNull::new(first).unwrap_or(page), |_| page)
        }
    };
    // SAFETY: as in `epoch`.
    let epoch = unsafe { page.as_ref() };
    let (of, own) = (PROCESS.load(Ordering::Relaxed), std::process::id());
    if of != 0 && of != own {
        PROCESS.store(own, Ordering::Relaxed);
        epoch.store(0, Ordering::Relaxed);
    }
    let next = NEWEST.load(Ordering::Relaxed) % 255 + 1;
    match epoch.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            NEWEST.store(next, Ordering::Relaxed);
            next as u8
        }
        Err(begun) => begun as u8,
    }
}

/// Maps a page that the kernel clears in a child. Where it cannot, the page is an ordinary one, and
/// each call compares process ids.
fn new_page() -> NonNull<AtomicU32> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice is nobody else's memory.
    let page = unsafe { mmap_anonymous(null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE) };
    let cleared = page.and_then(|page| {
        // SAFETY: the advice is for the page mapped above, which nobody uses yet.
        unsafe { madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }.map(|()| page)
    });
    match cleared.ok().and_then(|page| NonNull::new(page.cast())) {
        Some(page) => page,
        None => {
            PROCESS.store(std::process::id(), Ordering::Relaxed);
            NonNull::from(Box::leak(Box::new(AtomicU32::new(0))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one_epoch_in_all_threads() {
        let here = epoch();
        assert!(here > 0);
        let others: Vec<_> = (0..4).map(|_| std::thread::spawn(epoch)).collect();
        assert!(others.into_iter().all(|other| other.join().unwrap() == here));
        assert_eq!(PROCESS.load(Ordering::Relaxed), 0, "the kernel clears pages in a child");
    }
}
