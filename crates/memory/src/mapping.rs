//! Memory that this program shares: files in memory, another process's memory, a device's
//! registers.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{FileType, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::arena::{HUGE_PAGE, map_aligned};
use crate::guard::Cover;
use crate::shared::SharedBytes;

/// The length from which zeroing releases the memory instead of writing to it.
const RELEASE_BYTES: usize = 64 << 10;

/// A range of a file, mapped and shared. Accessed only through [`SharedBytes`].
pub struct Mapping {
    base: NonNull<u8>,
    mapped_bytes: usize,
    /// The offset of the range in the mapped pages.
    skip_bytes: usize,
    len: usize,
    writable: bool,
    kind: Kind,
    /// Guards a mapping of a file that another process may truncate.
    cover: Option<Cover>,
    /// A file that can be passed on, and the offset of the range in it.
    file: Option<(OwnedFd, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Memory of this program alone, without a file.
    Anonymous,
    /// A whole file in memory that this program made.
    Own,
    /// A part of any file.
    File,
}

// SAFETY: `base` points to a mapping that only this value unmaps. Its bytes are accessed only by
// atomics and string copies (point 5), from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `offset_bytes` of `file`; the offset must be a multiple of 8.
    ///
    /// If the file shrinks afterwards, and a lost part of it is accessed, the mapping becomes
    /// zeroed memory of this program alone, and [`Mapping::is_cut`] returns `true` (see the crate
    /// on SIGBUS, which the first such mapping takes over).
    ///
    /// # Errors
    /// `InvalidInput` for an empty range, one past the end of the address space, or an offset that
    /// is not a multiple of 8; `OutOfMemory` if this process has 16384 such mappings; otherwise the
    /// error of mmap.
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
        let mut mapping = Self {
            base,
            mapped_bytes: mapped,
            skip_bytes: skip as usize,
            len,
            writable,
            kind: Kind::File,
            cover: None,
            file: None,
        };
        mapping.cover = Some(Cover::new(base.as_ptr().expose_provenance(), mapped)?);
        Ok(Arc::new(mapping))
    }

    /// Maps a file that another process passed, like [`Mapping::of_file`]. The file must be a
    /// regular one in memory (memfd, tmpfs, hugetlbfs) that has the whole range. Access to a
    /// mapping of any other file waits for its file system, which may be served by that process
    /// itself (FUSE).
    ///
    /// # Errors
    /// The errors of [`Mapping::of_file`]; `InvalidInput` also for a file of another kind, or one
    /// that ends before the range does.
    pub fn of_memory_file(
        file: BorrowedFd<'_>,
        offset_bytes: u64,
        len: usize,
        writable: bool,
    ) -> io::Result<Arc<Self>> {
        const TMPFS: u64 = 0x0102_1994;
        const HUGETLBFS: u64 = 0x9584_58f6;
        let stat = rustix::fs::fstat(file)?;
        let kind = rustix::fs::fstatfs(file)?.f_type as u64;
        let is_memory = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && matches!(kind, TMPFS | HUGETLBFS);
        let end = offset_bytes.checked_add(len as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if !is_memory || u64::try_from(stat.st_size).unwrap_or(0) < end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Self::of_file(file, offset_bytes, len, writable)
    }

    /// Maps a file for reading and writing, like [`Mapping::of_memory_file`], and keeps the file if
    /// no process can shrink it, so that it can be passed on ([`Mapping::file`]).
    ///
    /// # Errors
    /// The errors of [`Mapping::of_memory_file`], or that of dup.
    pub fn of_lasting_file(
        file: BorrowedFd<'_>,
        offset_bytes: u64,
        len: usize,
    ) -> io::Result<Arc<Self>> {
        let mut mapping = Self::of_memory_file(file, offset_bytes, len, true)?;
        let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        if seals.contains(SealFlags::SHRINK)
            && let Some(mapping) = Arc::get_mut(&mut mapping)
        {
            mapping.file = Some((file.try_clone_to_owned()?, offset_bytes));
        }
        Ok(mapping)
    }

    /// Returns the file, and the offset of the range in it in bytes, if no process can truncate the
    /// file. Only then may the file be passed on to processes that the owner of the memory does not
    /// know.
    #[must_use]
    pub fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.file.as_ref().map(|(file, offset_bytes)| (file.as_fd(), *offset_bytes))
    }

    /// Creates a file in memory of `len` bytes, zeroed, and maps it; the memory is shared by
    /// passing the file on. Processes that have the file can neither shrink nor grow it, nor seal
    /// it further.
    ///
    /// # Errors
    /// `InvalidInput` for a length of 0, or one beyond the address space; otherwise the error of
    /// memfd_create, ftruncate or mmap.
    pub fn new_file(len: usize) -> io::Result<(Arc<Self>, OwnedFd)> {
        let mapped_bytes = len
            .checked_next_multiple_of(rustix::param::page_size())
            .filter(|bytes| *bytes > 0 && *bytes <= isize::MAX as usize)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let file = memory_file(len as u64, MemfdFlags::empty())?;
        let base = map_file(file.as_fd(), 0, mapped_bytes, true)?;
        let kind = Kind::Own;
        let (skip_bytes, writable, cover) = (0, true, None);
        let mapping =
            Self { base, mapped_bytes, skip_bytes, len, writable, kind, cover, file: None };
        Ok((Arc::new(mapping), file))
    }

    /// Replaces the file of [`Mapping::new_file`] by a new one, zeroed. Processes that have the old
    /// file share nothing with this mapping any more. A store by another thread of this process
    /// meanwhile goes to one of the two files.
    ///
    /// # Errors
    /// Returns the error of memfd_create, ftruncate or mmap. The old file is then cut off too: the
    /// mapping is zeroed memory of this program alone. `InvalidInput` for a mapping of another
    /// kind, which stays as it is.
    pub fn renew(&self) -> io::Result<OwnedFd> {
        if self.kind != Kind::Own {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let renewed = memory_file(self.len as u64, MemfdFlags::empty())
            .and_then(|file| self.replace(Some(file.as_fd())).map(|()| file));
        if renewed.is_err() && self.replace(None).is_err() {
            // The kernel has no memory even to record a mapping, and may have removed the old one.
            // To continue would mean a crash at the next access, or sharing memory with a process
            // that must not have it.
            std::process::abort();
        }
        renewed
    }

    /// Maps a file, or memory without a file, in place of the present mapping.
    fn replace(&self, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let (at, len) = (self.base.as_ptr().cast(), self.mapped_bytes);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this replaces the whole of this value's mapping (`base`, `mapped_bytes`), which
        // stays readable and writable (`kind` is `Own`). Its bytes are accessed only by atomics and
        // string copies, which may find other values (point 5).
        unsafe {
            match file {
                Some(file) => {
                    let flags = MapFlags::SHARED | MapFlags::FIXED;
                    rustix::mm::mmap(at, len, protection, flags, file, 0)?
                }
                None => {
                    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                    rustix::mm::mmap_anonymous(at, len, protection, flags)?
                }
            }
        };
        Ok(())
    }

    /// Maps `len` bytes of zeroed memory for this program alone, which are allocated on first use,
    /// with huge pages if the kernel has them. For models of devices that keep their blocks in
    /// memory.
    ///
    /// # Errors
    /// `InvalidInput` for a length of 0, or one beyond the address space; otherwise the error of
    /// mmap.
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
            kind: Kind::Anonymous,
            cover: None,
            file: None,
        }))
    }

    /// Gives whole pages back to the kernel: they read as zeroes from now on. Only for mappings of
    /// [`Mapping::new_anonymous`].
    ///
    /// # Errors
    /// `InvalidInput` if the range is not inside, or not of whole pages; otherwise the error of
    /// madvise.
    pub fn release(&self, offset: usize, len: usize) -> io::Result<()> {
        let page = rustix::param::page_size();
        let inside = offset <= self.len && len <= self.len - offset;
        let whole = offset.is_multiple_of(page) && len.is_multiple_of(page);
        if self.kind != Kind::Anonymous || !inside || !whole {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: inside the mapping, which is private to this value. Its bytes are accessed only
        // by atomics and string copies, which find zeroes then (point 5).
        unsafe {
            let at = self.base.as_ptr().add(offset).cast();
            rustix::mm::madvise(at, len, Advice::LinuxDontNeed)?;
        }
        Ok(())
    }

    /// Fills a range with zeroes. The whole pages of a large range are given back to the kernel, as
    /// by [`Mapping::release`].
    ///
    /// # Errors
    /// `InvalidInput` for a large range that does not lie inside; a small one is left as it is.
    /// Otherwise the error of madvise.
    pub fn zero(&self, offset: usize, len: usize) -> io::Result<()> {
        let page = rustix::param::page_size();
        if self.kind != Kind::Anonymous || len < RELEASE_BYTES.max(2 * page) {
            self.bytes().zero(offset, len);
            return Ok(());
        }
        let (first, end) = (offset.next_multiple_of(page), (offset + len) / page * page);
        self.bytes().zero(offset, first - offset);
        self.release(first, end - first)?;
        self.bytes().zero(end, offset + len - end);
        Ok(())
    }

    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: inside the mapping, which lives as long as `self`; aligned to 8, as `of_file`
        // requires.
        unsafe {
            SharedBytes::new(self.base.as_ptr().add(self.skip_bytes), self.len, self.writable)
        }
    }

    /// Whether the file was truncated while it was mapped.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cover.as_ref().is_some_and(Cover::is_hit)
    }

    /// Returns the address of the range's first byte.
    #[must_use]
    pub fn start(&self) -> usize {
        self.base.as_ptr() as usize + self.skip_bytes
    }

    /// Returns the first address and the length in bytes of the whole mapping, which contains the
    /// range.
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
        // Drop the cover before the mapping, because another mapping may get these addresses
        // afterwards.
        self.cover = None;
        // SAFETY: mapped by this value, and every view of it borrows `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// Creates a file in memory, which disappears with its last descriptor and mapping. Its size cannot
/// change.
pub(crate) fn memory_file(len_bytes: u64, kind: MemfdFlags) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | kind;
    let file = rustix::fs::memfd_create("qpair", flags)?;
    rustix::fs::ftruncate(&file, len_bytes)?;
    // A process that receives the file cannot take pages away from the processes that map it. It
    // cannot make the file hold memory that no process knows of, nor seal the file against further
    // mappings.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// Returns the unit in which a file can be mapped. It is larger for huge pages, whose files report
/// it as their block size.
fn page_bytes_of(file: BorrowedFd<'_>) -> u64 {
    const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;
    let usual = rustix::param::page_size() as u64;
    match rustix::fs::fstatfs(file) {
        Ok(stat) if stat.f_type as u64 == HUGETLBFS_MAGIC => (stat.f_bsize as u64).max(usual),
        _ => usual,
    }
}

/// Returns an address that is aligned to huge pages, with `len` free bytes. Another thread may use
/// it meanwhile.
fn free_address(len: usize) -> io::Result<*mut std::ffi::c_void> {
    let room = len.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    let null = std::ptr::null_mut();
    // SAFETY: a fresh mapping at an address of the kernel's choice, which is ours alone until it is
    // unmapped.
    unsafe {
        let room_at =
            rustix::mm::mmap_anonymous(null, room, ProtFlags::empty(), MapFlags::PRIVATE)?;
        rustix::mm::munmap(room_at, room)?;
        let skip = room_at.cast::<u8>().align_offset(HUGE_PAGE);
        Ok(room_at.cast::<u8>().wrapping_add(skip).cast())
    }
}

/// The number of tries to map at such an address, because another thread may map something there
/// first.
const ADDRESS_TRIES: u32 = 16;

/// Maps a part of a file, shared. A part of a huge page's size or more is mapped at an address that
/// is aligned to huge pages, because a process that receives the file may register it by huge pages
/// (SPDK).
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
    let mut tries = 0;
    let address = loop {
        // Small mappings, such as registers, need no such address.
        let hint = if len >= HUGE_PAGE { free_address(len)? } else { std::ptr::null_mut() };
        // SAFETY: a fresh mapping at an address of the kernel's choice: it uses the hint if that is
        // free, and replaces nothing. A replacing mapping (MAP_FIXED) that fails may already have
        // unmapped the old one, and any other mapping may then take its place.
        let address = unsafe {
            rustix::mm::mmap(hint, len, protection, MapFlags::SHARED, file, offset_bytes)?
        };
        tries += 1;
        if len < HUGE_PAGE || address.addr().is_multiple_of(HUGE_PAGE) || tries == ADDRESS_TRIES {
            break address;
        }
        // SAFETY: this unmaps the new mapping, which no other code has seen.
        let _ = unsafe { rustix::mm::munmap(address, len) };
    };
    if len >= HUGE_PAGE {
        // SAFETY: inside the new mapping. If the kernel refuses, only speed is lost.
        let _ = unsafe { rustix::mm::madvise(address, len, Advice::LinuxHugepage) };
    }
    NonNull::new(address.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

#[cfg(all(test, not(loom)))]
mod tests;
