//! Memory that is not this program's alone: files in memory, another process's memory, a device's registers.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::arena::{HUGE_PAGE, map_aligned};
use crate::shared::SharedBytes;

/// A range of a file, mapped and shared. Reached through [`SharedBytes`] alone.
pub struct Mapping {
    base: NonNull<u8>,
    mapped_bytes: usize,
    /// Where the range begins in what is mapped.
    skip_bytes: usize,
    len: usize,
    writable: bool,
    /// Memory of this program alone, and of no file.
    anonymous: bool,
}

// SAFETY: `base` points to a mapping that this value alone unmaps, and its bytes are reached by atomics and string copies
// alone (point 5), from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset_bytes` of `file`, at any alignment of 8: what is mapped begins where the file's pages allow.
    ///
    /// If the file shrinks afterwards, touching what it lost ends the process by SIGBUS: whoever maps the file of a
    /// process that it does not trust has to deal with that.
    ///
    /// # Errors
    /// `InvalidInput` for an empty range, one past the end of the address space, or an offset that is no multiple of 8; otherwise what
    /// mmap said.
    pub fn of_file(
        file: BorrowedFd<'_>,
        offset_bytes: u64,
        len: usize,
        writable: bool,
    ) -> io::Result<Arc<Self>> {
        let page = page_bytes_of(file);
        let skip = offset_bytes % page;
        let mapped = usize::try_from(skip)
            .ok()
            .and_then(|skip| skip.checked_add(len))
            .and_then(|bytes| bytes.checked_next_multiple_of(page as usize))
            .filter(|bytes| {
                len > 0
                    && offset_bytes.is_multiple_of(8)
                    && *bytes <= isize::MAX as usize
                    && offset_bytes.checked_add(*bytes as u64).is_some()
            })
            .ok_or(io::ErrorKind::InvalidInput)?;
        let base = map_file(file, offset_bytes - skip, mapped, writable)?;
        Ok(Arc::new(Self {
            base,
            mapped_bytes: mapped,
            skip_bytes: skip as usize,
            len,
            writable,
            anonymous: false,
        }))
    }

    /// A new file in memory of `len` bytes, zeroed, and its mapping: to be shared by passing the file on.
    ///
    /// # Errors
    /// What memfd_create, ftruncate or mmap said.
    pub fn new_file(len: usize) -> io::Result<(Arc<Self>, OwnedFd)> {
        let file = memory_file(len as u64, MemfdFlags::empty())?;
        let mapping = Self::of_file(file.as_fd(), 0, len, true)?;
        Ok((mapping, file))
    }

    /// Memory of `len` bytes for this program alone, zeroed, touched only on use, of huge pages where the kernel has them: for a model of
    /// a device that keeps blocks in it.
    ///
    /// # Errors
    /// `InvalidInput` for no bytes, or more than there are addresses; otherwise what mmap said.
    pub fn new_anonymous(len: usize) -> io::Result<Arc<Self>> {
        let mapped_bytes = len
            .checked_next_multiple_of(HUGE_PAGE)
            .filter(|bytes| *bytes > 0 && *bytes < isize::MAX as usize - HUGE_PAGE)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let base = map_aligned(mapped_bytes)?;
        Ok(Arc::new(Self {
            base,
            mapped_bytes,
            skip_bytes: 0,
            len,
            writable: true,
            anonymous: true,
        }))
    }

    /// Gives whole pages back to the kernel: they read as zeroes from now on. Only of [`Mapping::new_anonymous`].
    ///
    /// # Errors
    /// `InvalidInput` if the range is not inside, or not of whole pages; otherwise what madvise said.
    pub fn release(&self, offset: usize, len: usize) -> io::Result<()> {
        let page = rustix::param::page_size();
        let inside = offset <= self.len && len <= self.len - offset;
        let whole = offset.is_multiple_of(page) && len.is_multiple_of(page);
        if !self.anonymous || !inside || !whole {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: inside the mapping, which is private to this value; its bytes are reached by atomics and string copies alone, which
        // find zeroes then (point 5).
        unsafe {
            let at = self.base.as_ptr().add(offset).cast();
            rustix::mm::madvise(at, len, Advice::LinuxDontNeed)?;
        }
        Ok(())
    }

    /// The bytes.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: inside the mapping, which lives as long as `self`; aligned to 8 as `of_file` asked for.
        unsafe {
            SharedBytes::new(self.base.as_ptr().add(self.skip_bytes), self.len, self.writable)
        }
    }

    /// First address and length in bytes of all that is mapped: at least the range.
    #[must_use]
    pub fn region(&self) -> (usize, usize) {
        (self.base.as_ptr() as usize, self.mapped_bytes)
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping of {} bytes", self.len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this value, and every view of it borrows `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// A file in memory; gone with its last descriptor and mapping. It cannot shrink.
pub(crate) fn memory_file(len_bytes: u64, kind: MemfdFlags) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | kind;
    let file = rustix::fs::memfd_create("qpair", flags)?;
    rustix::fs::ftruncate(&file, len_bytes)?;
    // Those that map it as well need not be afraid of its end.
    rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK)?;
    Ok(file)
}

/// The unit in which a file can be mapped: larger for huge pages, which say so as their block.
fn page_bytes_of(file: BorrowedFd<'_>) -> u64 {
    const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
    let usual = rustix::param::page_size() as u64;
    match rustix::fs::fstatfs(file) {
        Ok(stat) if stat.f_type as u64 == HUGETLBFS_MAGIC => (stat.f_bsize as u64).max(usual),
        _ => usual,
    }
}

/// Maps a part of a file, shared, at an address that suits huge pages.
pub(crate) fn map_file(
    file: BorrowedFd<'_>,
    offset_bytes: u64,
    len: usize,
    writable: bool,
) -> io::Result<NonNull<u8>> {
    let protection = match writable {
        true => ProtFlags::READ | ProtFlags::WRITE,
        false => ProtFlags::READ,
    };
    // Small ones (registers) need no such address.
    let spare = if len >= HUGE_PAGE { HUGE_PAGE } else { 0 };
    let null = std::ptr::null_mut();
    // SAFETY: a fresh mapping at an address of the kernel's choice; with `spare`, room is taken first, and the file mapped over a
    // part of it that is ours and unused.
    let address = unsafe {
        if spare == 0 {
            rustix::mm::mmap(null, len, protection, MapFlags::SHARED, file, offset_bytes)?
        } else {
            let room = len.checked_add(spare).ok_or(io::ErrorKind::OutOfMemory)?;
            let room_at =
                rustix::mm::mmap_anonymous(null, room, ProtFlags::empty(), MapFlags::PRIVATE)?;
            let skip = room_at.cast::<u8>().align_offset(HUGE_PAGE);
            let at = room_at.cast::<u8>().add(skip);
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            if let Err(error) =
                rustix::mm::mmap(at.cast(), len, protection, flags, file, offset_bytes)
            {
                let _ = rustix::mm::munmap(room_at, room);
                return Err(error.into());
            }
            if skip > 0 {
                let _ = rustix::mm::munmap(room_at, skip);
            }
            let tail = len.next_multiple_of(rustix::param::page_size());
            if skip + tail < room {
                let _ = rustix::mm::munmap(at.add(tail).cast(), room - skip - tail);
            }
            // Refusal costs speed only.
            let _ = rustix::mm::madvise(at.cast(), len, Advice::LinuxHugepage);
            at.cast()
        }
    };
    NonNull::new(address.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_see_one_file() {
        let (one, file) = Mapping::new_file(3 << 20).unwrap();
        let two = Mapping::of_file(file.as_fd(), 8200, 4096, true).unwrap();
        one.bytes().store_u32(8200, 7);
        assert_eq!(two.bytes().load_u32(0), 7);
        two.bytes().copy_from(4, b"seven");
        let mut out = [0; 5];
        one.bytes().copy_to(8204, &mut out);
        assert_eq!(&out, b"seven");
        assert!(rustix::fs::ftruncate(&file, 0).is_err(), "sealed");
    }

    #[test]
    fn released_memory_is_zero_again() {
        let memory = Mapping::new_anonymous(3 << 20).unwrap();
        let bytes = memory.bytes();
        assert_eq!(bytes.len(), 3 << 20);
        for at in (0..3 << 20).step_by(1024) {
            bytes.store_u8(at, 1);
        }
        memory.release(4096, 2 << 20).unwrap();
        let sum = |from: usize, to| (from..to).map(|at| u32::from(bytes.load_u8(at))).sum::<u32>();
        assert_eq!((sum(0, 4096), sum(4096, 4096 + (2 << 20))), (4, 0));
        assert_eq!(sum(4096 + (2 << 20), 3 << 20), 1020);
        for (offset, len) in [(0, 4 << 20), (1, 4096), (0, 100), (usize::MAX, 4096)] {
            assert!(memory.release(offset, len).is_err());
        }
        assert!(Mapping::new_file(4096).unwrap().0.release(0, 4096).is_err(), "others see it");
        assert!(Mapping::new_anonymous(0).is_err() && Mapping::new_anonymous(usize::MAX).is_err());
    }

    #[test]
    fn refuses_what_cannot_be_mapped() {
        let (_, file) = Mapping::new_file(4096).unwrap();
        for (offset, len) in
            [(0, 0), (4, 8), (u64::MAX - 7, 8), (0, usize::MAX), (8, usize::MAX - 8)]
        {
            assert!(Mapping::of_file(file.as_fd(), offset, len, true).is_err(), "{offset} {len}");
        }
    }

    #[test]
    fn a_read_only_mapping_takes_no_stores() {
        let (one, file) = Mapping::new_file(4096).unwrap();
        let two = Mapping::of_file(file.as_fd(), 0, 4096, false).unwrap();
        two.bytes().store_u64(0, 1);
        two.bytes().copy_from(0, &[1; 64]);
        two.bytes().zero(0, 4096);
        assert_eq!(one.bytes().load_u64(0), 0);
    }
}
