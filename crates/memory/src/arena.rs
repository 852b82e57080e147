//! A mapping cut into equal blocks, and the leases on them.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::buffer::Buffer;
use crate::guard::Cover;
use crate::locks::Mutex;
use crate::mapping::{Mapping, map_file, memory_file};
use crate::scatter::Scatter;

/// The size and alignment of a huge page in bytes.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// The size of the smallest page in bytes; the size of a small arena is a multiple of it.
const PAGE: usize = 4096;

/// The number of a block in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockIndex(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Reserved huge pages (`vm.nr_hugepages`).
    HugePages,
    /// Ordinary memory, with transparent huge pages asked for by madvise.
    Transparent,
    /// Ordinary memory of less than the size of a huge page.
    Small,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaOptions {
    /// Whether to map a file in memory, which other processes can map as well, as a device in
    /// another process needs.
    pub shared: bool,
    /// Whether to map reserved huge pages (`vm.nr_hugepages`), or fail. They are reserved for users
    /// who ask for them, and for devices that map huge pages only. Otherwise the arena uses
    /// ordinary memory, with transparent huge pages asked for.
    pub huge_pages_only: bool,
}

impl ArenaOptions {
    /// Returns options for reserved huge pages that other processes can map.
    #[must_use]
    pub fn shared_huge_pages() -> Self {
        Self { shared: true, huge_pages_only: true }
    }

    /// Returns options for ordinary memory, with transparent huge pages asked for. This is the
    /// default.
    #[must_use]
    pub fn ordinary_pages() -> Self {
        Self::default()
    }
}

/// One mapping of `block_count` blocks of `block_size` bytes, registered once with each channel. A
/// foreign arena uses other memory, with lists of segments in place of blocks ([`Arena::foreign`]).
pub struct Arena {
    base: NonNull<u8>,
    mapped_bytes: usize,
    block_size: usize,
    block_count: u32,
    id: u32,
    backing: Backing,
    /// The file that is mapped, if the arena is shared.
    file: Option<OwnedFd>,
    /// Guards the mapping of `file`: another process that has the file can take reserved huge pages
    /// out of it for good.
    cover: Option<Cover>,
    /// The foreign memory, if any. The arena then has no memory of its own: `mapped_bytes` and
    /// `block_size` are 0.
    scatter: Option<Scatter>,
    /// The blocks (or lists) that are not leased. Locked on the control path only; hot paths keep
    /// their leases.
    free: Mutex<Vec<u32>>,
}

// SAFETY: `base` points to memory owned by this value alone (mapped in `new`, unmapped in `drop`).
// The memory is accessed only as the crate's safety argument allows, from any thread.
unsafe impl Send for Arena {}
// SAFETY: as above; shared access hands out leases through the mutex and racy reads.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps an arena. The memory is zeroed, and touched only on use.
    ///
    /// # Errors
    /// `InvalidInput` if `block_size` is not a power of two of at least 512 or `block_count` is 0;
    /// otherwise the error of mmap.
    pub fn new(
        block_size: usize,
        block_count: u32,
        options: ArenaOptions,
    ) -> io::Result<Arc<Self>> {
        if !block_size.is_power_of_two() || block_size < 512 || block_count == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "an arena cannot have {block_count} blocks of {block_size} bytes: it has at least one block, of a power of two of at least 512 bytes"
                ),
            ));
        }
        let bytes = block_size.checked_mul(block_count as usize);
        // A huge page would be cleared and occupied for the sake of a few bytes.
        let small = bytes.is_some_and(|bytes| bytes < HUGE_PAGE);
        let small = small && !options.shared && !options.huge_pages_only;
        let wanted = bytes
            .and_then(|bytes| bytes.checked_next_multiple_of(if small { PAGE } else { HUGE_PAGE }))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let (base, backing, file) = match (options.shared, options.huge_pages_only) {
            (true, true) => {
                map_shared(wanted, HUGE_KIND).map_err(|cause| no_huge_pages(wanted, &cause))?
            }
            (true, false) => map_shared(wanted, USUAL_KIND)?,
            (false, true) => {
                let base = map(wanted, MapFlags::PRIVATE | MapFlags::HUGETLB);
                let base = base.map_err(|cause| no_huge_pages(wanted, &cause))?;
                (base, Backing::HugePages, None)
            }
            (false, false) if small => (map(wanted, MapFlags::PRIVATE)?, Backing::Small, None),
            (false, false) => (map_aligned(wanted)?, Backing::Transparent, None),
        };
        let is_shared = file.is_some();
        let mut arena = Self {
            base,
            mapped_bytes: wanted,
            block_size,
            block_count,
            id: next_id(),
            backing,
            file,
            cover: None,
            scatter: None,
            free: Mutex::new((0..block_count).rev().collect()),
        };
        if is_shared {
            arena.cover = Some(Cover::new(base.as_ptr().expose_provenance(), wanted)?);
        }
        Ok(Arc::new(arena))
    }

    /// Creates an arena of foreign memory, with `lists` lists of at most `segments_max` segments
    /// each to lease. A list is empty until its holder fills it ([`Buffer::fill`]).
    #[must_use]
    pub fn foreign(regions: Vec<Arc<Mapping>>, lists: u32, segments_max: usize) -> Arc<Self> {
        Arc::new(Self {
            base: NonNull::<u64>::dangling().cast(),
            mapped_bytes: 0,
            block_size: 0,
            block_count: lists,
            id: next_id(),
            backing: Backing::Small,
            file: None,
            cover: None,
            scatter: Some(Scatter::new(regions, lists, segments_max)),
            free: Mutex::new((0..lists).rev().collect()),
        })
    }

    /// Returns the maximum number of segments of a list; `None` for an arena of blocks.
    #[must_use]
    pub fn segments_max(&self) -> Option<usize> {
        self.scatter.as_ref().map(|scatter| scatter.segments_max)
    }

    /// Returns the foreign memory that the lists lie in; empty in an arena of blocks.
    #[must_use]
    pub fn regions(&self) -> &[Arc<Mapping>] {
        self.scatter.as_ref().map_or(&[], Scatter::regions)
    }

    /// Returns the size of a block in bytes; 0 in an arena of lists.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    #[must_use]
    pub fn block_count(&self) -> u32 {
        self.block_count
    }

    /// Returns a number that no other arena of this process has.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    #[must_use]
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Returns the address and the length in bytes of the whole mapping, to register it with a
    /// device.
    #[must_use]
    pub fn region(&self) -> (*mut u8, usize) {
        (self.base.as_ptr(), self.block_size * self.block_count as usize)
    }

    /// Returns the file that the arena maps from its start, if it was created with
    /// [`ArenaOptions::shared`].
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Whether a process took pages out of the arena's file, or out of a foreign file that the
    /// arena uses. The memory is now private to this program and reads as zeroes where it was cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let scatter = self.scatter.as_ref();
        self.cover.as_ref().is_some_and(Cover::is_hit) || scatter.is_some_and(Scatter::is_cut)
    }

    pub(crate) fn scatter(&self) -> Option<&Scatter> {
        self.scatter.as_ref()
    }

    /// Takes a block (or list) back.
    pub(crate) fn put_back(&self, block: u32) {
        self.free.lock().push(block);
    }

    /// Returns the number of bytes that are mapped: the blocks, rounded up to whole huge pages; in
    /// small arenas of ordinary pages, to 4 KiB.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.mapped_bytes
    }

    /// Makes the kernel provide the memory of some blocks now instead of at their first use, in
    /// whole huge pages. The content stays as it is.
    ///
    /// # Errors
    /// Returns the error of madvise: `InvalidInput` before Linux 5.14, `OutOfMemory` if there is
    /// not enough memory.
    pub fn prefault(&self, blocks: Range<u32>) -> io::Result<()> {
        let end = blocks.end.min(self.block_count) as usize * self.block_size;
        let start = (blocks.start as usize * self.block_size).min(end) / HUGE_PAGE * HUGE_PAGE;
        let end = end.next_multiple_of(HUGE_PAGE).min(self.mapped_bytes);
        // SAFETY: inside the mapping, as `start <= end <= mapped_bytes`; no byte changes.
        unsafe {
            let address = self.base.as_ptr().add(start).cast();
            rustix::mm::madvise(address, end - start, Advice::LinuxPopulateWrite)
        }?;
        Ok(())
    }

    /// Leases a block (or a list). Returns `None` if all are leased.
    #[must_use]
    pub fn lease(self: &Arc<Self>) -> Option<Buffer> {
        let block = self.free.lock().pop()?;
        Some(Buffer::new(self.clone(), block))
    }

    #[inline(always)]
    pub(crate) fn address(&self, block: u32) -> *mut u8 {
        assert!(block < self.block_count);
        // SAFETY: inside the mapping: `block < block_count`, and the mapping holds all blocks. For
        // an arena of lists, the offset is 0.
        unsafe { self.base.as_ptr().add(block as usize * self.block_size) }
    }
}

fn next_id() -> u32 {
    static NEXT_ID: AtomicU32 = AtomicU32::new(0);
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(segments_max) = self.segments_max() {
            let (id, lists) = (self.id, self.block_count);
            return write!(f, "Arena #{id} of {lists} lists of {segments_max} segments");
        }
        write!(
            f,
            "Arena #{} of {} x {} bytes, {:?}",
            self.id, self.block_count, self.block_size, self.backing
        )
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Drop the cover before the mapping, because another mapping may get these addresses
        // afterwards.
        self.cover = None;
        if self.mapped_bytes == 0 {
            return;
        }
        // SAFETY: every lease holds an `Arc` of this arena, so no lease is left, and no other code
        // has the address.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

fn map(len: usize, flags: MapFlags) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
    let address = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            flags,
        )
    }?;
    NonNull::new(address.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// The kinds of files in memory: with reserved huge pages, and with ordinary pages.
const HUGE_KIND: (MemfdFlags, Backing) =
    (MemfdFlags::HUGETLB.union(MemfdFlags::HUGE_2MB), Backing::HugePages);
const USUAL_KIND: (MemfdFlags, Backing) = (MemfdFlags::empty(), Backing::Transparent);

fn map_shared(
    len: usize,
    (flags, backing): (MemfdFlags, Backing),
) -> io::Result<(NonNull<u8>, Backing, Option<OwnedFd>)> {
    let file = memory_file(len as u64, flags)?;
    Ok((map_file(file.as_fd(), 0, len, true)?, backing, Some(file)))
}

/// Returns the error for missing huge pages, which says how to reserve them.
fn no_huge_pages(len: usize, cause: &io::Error) -> io::Error {
    let pages = len / HUGE_PAGE;
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        format!(
            "{pages} reserved huge pages of 2 MiB are needed, but fewer are free ({cause}): reserve them as root, with \
             sysctl -w vm.nr_hugepages={pages} or more"
        ),
    )
}

/// Maps ordinary memory aligned to a huge page, and asks for transparent huge pages.
pub(crate) fn map_aligned(len: usize) -> io::Result<NonNull<u8>> {
    let base = map(len + HUGE_PAGE, MapFlags::PRIVATE)?;
    let skip = base.as_ptr().align_offset(HUGE_PAGE);
    // SAFETY: `skip < HUGE_PAGE`, so `aligned .. aligned + len` lies in the new mapping. The parts
    // before and after it belong to us and are unused.
    unsafe {
        let aligned = base.as_ptr().add(skip);
        if skip > 0 {
            let _ = rustix::mm::munmap(base.as_ptr().cast(), skip);
        }
        if skip < HUGE_PAGE {
            let _ = rustix::mm::munmap(aligned.add(len).cast(), HUGE_PAGE - skip);
        }
        // If the kernel refuses, only speed is lost.
        let _ = rustix::mm::madvise(aligned.cast(), len, Advice::LinuxHugepage);
        Ok(NonNull::new_unchecked(aligned))
    }
}

/// Returns an empty vector for `len` values, in transparent huge pages if it is large enough for
/// one: values that are reached at random then miss the processor's translations less often.
pub(crate) fn vec_in_huge_pages<T>(len: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(len);
    let room = values.spare_capacity_mut();
    let (start, bytes) = (room.as_mut_ptr().cast::<u8>(), size_of_val(room));
    let skip = start.align_offset(HUGE_PAGE);
    let whole = bytes.saturating_sub(skip) / HUGE_PAGE * HUGE_PAGE;
    if whole > 0 {
        // SAFETY: `skip + whole <= bytes`, so the range lies in the vector's allocation. The advice
        // changes no content. If the kernel refuses, only speed is lost.
        let _ =
            unsafe { rustix::mm::madvise(start.add(skip).cast(), whole, Advice::LinuxHugepage) };
    }
    values
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn leases_every_block_once() {
        let arena = Arena::new(4096, 3, ArenaOptions::default()).unwrap();
        let leases: Vec<_> = std::iter::from_fn(|| arena.lease()).collect();
        assert_eq!(leases.iter().map(|b| b.block().0).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(leases.iter().all(|b| (b.as_ptr() as usize).is_multiple_of(4096)));
        drop(leases);
        assert!(arena.lease().is_some());
    }

    #[test]
    fn another_mapping_sees_a_shared_arena() {
        let options = ArenaOptions { shared: true, ..ArenaOptions::ordinary_pages() };
        let arena = Arena::new(4096, 600, options).unwrap();
        let mut buffer = arena.lease().unwrap();
        buffer.copy_from(8, b"seen");
        let file = arena.file().unwrap();
        let other = crate::Mapping::of_file(file, 0, arena.mapped_bytes(), true).unwrap();
        let mut out = [0; 4];
        other.bytes().copy_to(8, &mut out);
        assert_eq!(&out, b"seen");
        other.bytes().copy_from(16, b"answered");
        assert_eq!(&buffer.as_slice()[16..24], b"answered");
    }

    #[test]
    fn a_lease_outlives_its_arena() {
        let arena = Arena::new(512, 1, ArenaOptions::ordinary_pages()).unwrap();
        let mut buffer = arena.lease().unwrap();
        drop(arena);
        buffer.copy_from(500, b"still mapped");
        assert_eq!(&buffer.as_slice()[500..], b"still mapped");
    }

    #[test]
    fn prefaulting_changes_nothing() {
        let arena = Arena::new(4096, 1537, ArenaOptions::ordinary_pages()).unwrap();
        let mut buffer = arena.lease().unwrap();
        buffer.copy_from(8, b"kept");
        // /proc/self/pagemap has a word for each page, whose top bit says that the page is present.
        let present = |arena: &Arena| -> usize {
            let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
            let mut words = vec![0; arena.mapped_bytes() / 4096 * 8];
            let first = arena.region().0 as u64 / 4096 * 8;
            std::os::unix::fs::FileExt::read_exact_at(&pagemap, &mut words, first).unwrap();
            words.iter().skip(7).step_by(8).filter(|byte| *byte & 0x80 != 0).count()
        };
        assert!(present(&arena) <= HUGE_PAGE / 4096);
        arena.prefault(100..513).unwrap();
        assert_eq!(present(&arena), 2 * HUGE_PAGE / 4096);
        arena.prefault(513..u32::MAX).unwrap();
        assert_eq!(present(&arena), arena.mapped_bytes() / 4096);
        assert_eq!(&buffer.as_slice()[8..12], b"kept");
    }

    /// SPDK rounds each region outward to huge pages, and touches a byte of each: a region that
    /// begins inside a huge page ends the process.
    #[test]
    fn shared_memory_lies_on_huge_pages() {
        let options = ArenaOptions { shared: true, ..ArenaOptions::ordinary_pages() };
        let others: Vec<_> =
            (1..40).map(|count| Arena::new(4096, count, options).unwrap()).collect();
        for arena in &others {
            assert!(arena.region().0.addr().is_multiple_of(HUGE_PAGE));
            assert!(arena.mapped_bytes().is_multiple_of(HUGE_PAGE));
        }
    }

    /// A regression: a store of 64 MiB took all of its memory from huge pages that were reserved
    /// for other programs.
    #[test]
    fn reserved_huge_pages_are_for_those_who_ask() {
        for shared in [false, true] {
            let options = ArenaOptions { shared, ..ArenaOptions::default() };
            let arena = Arena::new(HUGE_PAGE, 1, options).unwrap();
            assert_eq!(arena.backing(), Backing::Transparent);
        }
    }

    #[test]
    fn huge_pages_alone_or_none() {
        // More memory than any machine has reserved.
        let error = Arena::new(1 << 30, 1 << 16, ArenaOptions::shared_huge_pages()).unwrap_err();
        assert!(error.to_string().contains("sysctl -w vm.nr_hugepages=33554432"), "{error}");
        if let Ok(arena) = Arena::new(4096, 513, ArenaOptions::shared_huge_pages()) {
            assert_eq!(
                (arena.backing(), arena.mapped_bytes()),
                (Backing::HugePages, 2 * HUGE_PAGE)
            );
            assert!(arena.region().0.addr().is_multiple_of(HUGE_PAGE) && arena.file().is_some());
        }
    }

    /// A regression: 500 jobs with 4 KiB in flight held 500 huge pages.
    #[test]
    fn a_small_arena_is_as_small_as_it_can_be() {
        let small = Arena::new(4096, 3, ArenaOptions::ordinary_pages()).unwrap();
        assert_eq!((small.mapped_bytes(), small.backing()), (3 * 4096, Backing::Small));
        small.prefault(0..3).unwrap();
        let large = Arena::new(4096, 512, ArenaOptions::ordinary_pages()).unwrap();
        assert_eq!((large.mapped_bytes(), large.backing()), (HUGE_PAGE, Backing::Transparent));
    }

    #[test]
    fn refuses_odd_sizes() {
        for (size, count) in [(0, 1), (100, 1), (4097, 1), (4096, 0), (1 << 62, u32::MAX)] {
            assert!(Arena::new(size, count, ArenaOptions::default()).is_err());
        }
    }
}
