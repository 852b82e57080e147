//! Frames: the blocks of one arena, each under its latch.
//!
//! The lease ([`Buffer`]) of a frame's block rests in the frame. It leaves only with
//! [`ExclusiveFrame::begin_read`] and [`ExclusiveFrame::begin_write`], which leave the latch in
//! flight, and it returns with [`FrameTable::end_read`] and [`FrameTable::end_write`]. So an
//! exclusive guard and the buffer are never in two hands.

use std::cell::UnsafeCell;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::age::Age;
use crate::arena::{Arena, ArenaOptions, vec_in_huge_pages};
use crate::buffer::Buffer;
use crate::latch::{Blocked, Latch, Version};
use crate::racy::{RacyBytes, RacyBytesMut, prefetch};

/// The number of a frame in its table; always valid for the table that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameIndex(pub u32);

/// The words of one frame, on a cache line of their own.
#[repr(align(64))]
struct Header {
    latch: Latch,
    page_id: AtomicU64,
    parent: AtomicU32,
    parent_position: AtomicU16,
    state: AtomicU8,
    age: Age,
    target: AtomicU64,
    owner: AtomicU64,
    buffer: UnsafeCell<Option<Buffer>>,
}

const _: () = assert!(cfg!(loom) || size_of::<Header>() == 64);

pub struct FrameTable {
    arena: Arc<Arena>,
    headers: Box<[Header]>,
    /// The number of bytes of a frame that hold the page's content, at most the block size.
    content_bytes: usize,
}

// SAFETY: the only field that is not `Sync` by itself is `Header::buffer`. Only two kinds of code
// access it: the holder of the frame's exclusive latch, and the thread that returns the buffer
// missing from it. At any time this is one thread, ordered by the latch's acquire and release.
unsafe impl Sync for FrameTable {}

impl FrameTable {
    /// Maps `count` frames of `page_size` bytes.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn new(page_size: usize, count: u32, options: ArenaOptions) -> io::Result<Self> {
        let arena = Arena::new(page_size, count, options)?;
        let mut headers = vec_in_huge_pages(count as usize);
        headers.extend((0..count).map(|_| Header {
            latch: Latch::new(),
            page_id: AtomicU64::new(u64::MAX),
            parent: AtomicU32::new(u32::MAX),
            parent_position: AtomicU16::new(0),
            state: AtomicU8::new(0),
            age: Age::new(),
            target: AtomicU64::new(0),
            owner: AtomicU64::new(0),
            buffer: UnsafeCell::new(arena.lease()),
        }));
        Ok(Self { arena, headers: headers.into_boxed_slice(), content_bytes: page_size })
    }

    /// Leaves `tag_bytes` at the end of each frame to the device: the bytes of a page do not
    /// include them, its buffers do.
    ///
    /// # Panics
    /// Panics if the tag is larger than a page, or not made of whole words: a bug of the caller.
    #[must_use]
    pub fn with_tags(mut self, tag_bytes: usize) -> Self {
        assert!(tag_bytes.is_multiple_of(8) && tag_bytes < self.arena.block_size());
        self.content_bytes = self.arena.block_size() - tag_bytes;
        self
    }

    /// Returns the arena, to be registered with channels.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a table is never empty")]
    pub fn len(&self) -> u32 {
        self.headers.len() as u32
    }

    /// Whether `frame` names a frame of this table (a torn reference may not).
    #[inline(always)]
    #[must_use]
    pub fn contains(&self, frame: FrameIndex) -> bool {
        (frame.0 as usize) < self.headers.len()
    }

    #[inline(always)]
    fn header(&self, frame: FrameIndex) -> &Header {
        &self.headers[frame.0 as usize]
    }

    /// Returns the id of the page in the frame. Stable only under a latch.
    #[inline(always)]
    #[must_use]
    pub fn page_id(&self, frame: FrameIndex) -> u64 {
        self.header(frame).page_id.load(Relaxed)
    }

    /// Sets the id of the page in the frame; by the holder of the exclusive latch.
    pub fn set_page_id(&self, frame: FrameIndex, page_id: u64) {
        self.header(frame).page_id.store(page_id, Relaxed);
    }

    /// Returns the replacement state byte, whose meaning is defined by the pool.
    #[inline(always)]
    #[must_use]
    pub fn state(&self, frame: FrameIndex) -> u8 {
        self.header(frame).state.load(Relaxed)
    }

    /// Changes the replacement state byte if it is `from`, for callers without a latch.
    #[inline(always)]
    pub fn change_state(&self, frame: FrameIndex, from: u8, to: u8) {
        let _ = self.header(frame).state.compare_exchange(from, to, Relaxed, Relaxed);
    }

    /// Sets the replacement state byte.
    #[inline(always)]
    pub fn set_state(&self, frame: FrameIndex, state: u8) {
        self.header(frame).state.store(state, Relaxed);
    }

    /// Whether the page differs from its copy on the device.
    #[inline(always)]
    #[must_use]
    pub fn is_dirty(&self, frame: FrameIndex) -> bool {
        self.header(frame).age.is_dirty()
    }

    /// Marks the page as (not) differing from its copy on the device.
    #[inline(always)]
    pub fn set_dirty(&self, frame: FrameIndex, dirty: bool) {
        self.header(frame).age.set_dirty(dirty);
    }

    /// Returns the epoch of the page: the number of the checkpoint in which its content was last
    /// accounted for.
    #[inline(always)]
    #[must_use]
    pub fn epoch(&self, frame: FrameIndex) -> u32 {
        self.header(frame).age.epoch()
    }

    /// Sets [`FrameTable::epoch`]; by the holder of the exclusive latch.
    #[inline(always)]
    pub fn set_epoch(&self, frame: FrameIndex, epoch: u32) {
        self.header(frame).age.set_epoch(epoch);
    }

    /// Whether the page was dirty when `epoch` began and has not been changed since. The latch is
    /// not needed; without it the page may be accounted for a moment later. A reader that finds the
    /// page clean also sees the page id that belongs to the clean state.
    #[inline(always)]
    #[must_use]
    pub fn is_dirty_before(&self, frame: FrameIndex, epoch: u32) -> bool {
        self.header(frame).age.is_dirty_before(epoch)
    }

    /// Returns the target word of the page, in which the pool notes the place to which the page
    /// will be written.
    #[inline(always)]
    #[must_use]
    pub fn target(&self, frame: FrameIndex) -> u64 {
        self.header(frame).target.load(Acquire)
    }

    /// Replaces [`FrameTable::target`] if it is still `from`. No latch is needed.
    ///
    /// # Errors
    /// Returns the present word if another thread changed it.
    pub fn change_target(&self, frame: FrameIndex, from: u64, to: u64) -> Result<(), u64> {
        self.header(frame).target.compare_exchange(from, to, AcqRel, Acquire).map(drop)
    }

    /// Returns the owner word, for readers that reach the frame without its parent: the present
    /// purpose of the frame. 0 at first; its meaning is defined by the pool.
    #[inline(always)]
    #[must_use]
    pub fn owner(&self, frame: FrameIndex) -> u64 {
        // Acquire: a reader that sees an owner sees everything that was written before the owner
        // was set.
        self.header(frame).owner.load(Acquire)
    }

    /// Sets [`FrameTable::owner`]; by the holder of the exclusive latch.
    pub fn set_owner(&self, frame: FrameIndex, owner: u64) {
        self.header(frame).owner.store(owner, Release);
    }

    /// Replaces [`FrameTable::owner`] if it is still `from`. No latch is needed.
    pub fn change_owner(&self, frame: FrameIndex, from: u64, to: u64) {
        let _ = self.header(frame).owner.compare_exchange(from, to, AcqRel, Acquire);
    }

    /// Returns the frame that held the reference to this one when last seen, and the position of
    /// the reference. This is a hint, which may be stale.
    #[inline(always)]
    #[must_use]
    pub fn parent_hint(&self, frame: FrameIndex) -> Option<(FrameIndex, usize)> {
        let header = self.header(frame);
        let parent = FrameIndex(header.parent.load(Relaxed));
        self.contains(parent).then(|| (parent, usize::from(header.parent_position.load(Relaxed))))
    }

    #[inline(always)]
    pub fn set_parent_hint(&self, frame: FrameIndex, parent: Option<(FrameIndex, usize)>) {
        let (parent, position) =
            parent.map_or((u32::MAX, 0), |(parent, position)| (parent.0, position));
        self.header(frame).parent.store(parent, Relaxed);
        self.header(frame).parent_position.store(position as u16, Relaxed);
    }

    /// Returns the note on a page without a parent: a hint whose meaning the pool defines, kept
    /// where other pages have the position in their parent. 0 at first.
    #[inline(always)]
    #[must_use]
    pub fn root_note(&self, frame: FrameIndex) -> u16 {
        self.header(frame).parent_position.load(Relaxed)
    }

    /// Sets [`FrameTable::root_note`]. No latch is needed.
    #[inline(always)]
    pub fn set_root_note(&self, frame: FrameIndex, note: u16) {
        self.header(frame).parent_position.store(note, Relaxed);
    }

    /// Fetches the cache line at `offset` of the frame's page.
    #[inline(always)]
    pub fn prefetch_at(&self, frame: FrameIndex, offset: usize) {
        self.bytes(frame).prefetch(offset);
    }

    /// Fetches the frame's latch and the first `lines` cache lines of its page.
    #[inline(always)]
    pub fn prefetch(&self, frame: FrameIndex, lines: usize) {
        prefetch(std::ptr::from_ref(self.header(frame)).cast());
        let bytes = self.bytes(frame);
        for line in 0..lines {
            bytes.prefetch(line * 64);
        }
    }

    /// Begins an optimistic read of the frame's page.
    ///
    /// # Errors
    /// [`Blocked`] while a writer or a filling device has it.
    #[inline(always)]
    pub fn optimistic(&self, frame: FrameIndex) -> Result<OptimisticFrame<'_>, Blocked> {
        let version = self.header(frame).latch.optimistic()?;
        Ok(OptimisticFrame { table: self, frame, version })
    }

    /// Resumes an optimistic read that began earlier. It will validate only if nothing changed
    /// since.
    #[inline(always)]
    #[must_use]
    pub fn resume(&self, frame: FrameIndex, version: Version) -> OptimisticFrame<'_> {
        OptimisticFrame { table: self, frame, version }
    }

    /// Takes the exclusive latch.
    ///
    /// # Errors
    /// [`Blocked`] if another thread or a device has it.
    pub fn try_exclusive(&self, frame: FrameIndex) -> Result<ExclusiveFrame<'_>, Blocked> {
        self.header(frame).latch.try_exclusive()?;
        Ok(ExclusiveFrame::new(self, frame))
    }

    /// Announces a waiter for the end of the frame's I/O: [`Latch::add_waiter`].
    #[must_use]
    pub fn add_waiter(&self, frame: FrameIndex) -> bool {
        self.header(frame).latch.add_waiter()
    }

    #[must_use]
    pub fn is_in_flight(&self, frame: FrameIndex) -> bool {
        self.header(frame).latch.is_in_flight()
    }

    /// Takes back the buffer of a read that was begun with [`ExclusiveFrame::begin_read`]. The
    /// frame is exclusive again, and is opened with [`ExclusiveFrame::end_read`].
    ///
    /// # Panics
    /// Panics if the buffer is of another arena, or the frame is not being filled: a bug of the
    /// caller.
    #[must_use]
    pub fn end_read(&self, buffer: Buffer) -> ExclusiveFrame<'_> {
        assert!(Arc::ptr_eq(buffer.arena(), &self.arena), "a buffer of another arena");
        let latch = &self.header(FrameIndex(buffer.block().0)).latch;
        assert!(latch.optimistic() == Err(Blocked::InFlight), "the frame is not being filled");
        ExclusiveFrame::new(self, self.take_back(buffer))
    }

    /// Takes back the buffer of a write-back, and opens the frame. Returns whether a task waits for
    /// it.
    ///
    /// # Panics
    /// Panics if the buffer is of another arena: a bug of the caller.
    #[must_use]
    pub fn end_write(&self, buffer: Buffer) -> (FrameIndex, bool) {
        let frame = self.take_back(buffer);
        (frame, self.header(frame).latch.end_write_back())
    }

    fn take_back(&self, buffer: Buffer) -> FrameIndex {
        assert!(Arc::ptr_eq(buffer.arena(), &self.arena), "a buffer of another arena");
        let frame = FrameIndex(buffer.block().0);
        // SAFETY: a block has one lease, and we hold it. The cell is therefore empty and the latch
        // in flight, which prevents guards until `end_fill` or `end_write_back`.
        unsafe { *self.header(frame).buffer.get() = Some(buffer) };
        frame
    }

    #[inline(always)]
    fn bytes(&self, frame: FrameIndex) -> RacyBytes<'_> {
        // SAFETY: mapped while `self.arena` lives, aligned to at least 512; frame memory is written
        // by atomic stores and devices only.
        unsafe { RacyBytes::new(self.arena.address(frame.0), self.content_bytes) }
    }
}

/// An optimistic read in progress. The bytes are only valid once [`OptimisticFrame::validate`] says
/// so.
#[derive(Clone, Copy)]
pub struct OptimisticFrame<'a> {
    table: &'a FrameTable,
    frame: FrameIndex,
    version: Version,
}

impl<'a> OptimisticFrame<'a> {
    #[inline(always)]
    #[must_use]
    pub fn index(&self) -> FrameIndex {
        self.frame
    }

    /// Returns the version at which this read began.
    #[inline(always)]
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> RacyBytes<'a> {
        self.table.bytes(self.frame)
    }

    /// Whether everything read since the read began was stable.
    #[inline(always)]
    #[must_use]
    pub fn validate(&self) -> bool {
        self.table.header(self.frame).latch.validate(self.version)
    }

    /// Takes the exclusive latch if nothing changed since the read began.
    ///
    /// # Errors
    /// [`Blocked`] if something changed, or another thread or a device has the latch.
    pub fn upgrade(self) -> Result<ExclusiveFrame<'a>, Blocked> {
        self.table.header(self.frame).latch.try_upgrade(self.version)?;
        Ok(ExclusiveFrame::new(self.table, self.frame))
    }
}

/// The exclusive latch on a frame; released when dropped.
///
/// Do not hold the latch across anything that waits: tree operations take it, change bytes, and
/// drop it. A panic that unwinds through it does not release it: the page may be half changed, and
/// no reader may see it.
pub struct ExclusiveFrame<'a> {
    table: &'a FrameTable,
    frame: FrameIndex,
    /// Whether the thread was panicking already when the latch was taken.
    panicking: bool,
}

impl<'a> ExclusiveFrame<'a> {
    #[inline(always)]
    fn new(table: &'a FrameTable, frame: FrameIndex) -> Self {
        Self { table, frame, panicking: std::thread::panicking() }
    }

    #[must_use]
    pub fn index(&self) -> FrameIndex {
        self.frame
    }

    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> RacyBytes<'_> {
        self.table.bytes(self.frame)
    }

    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: writers are excluded: the latch is ours, the buffer is in the frame (points 2 and
        // 4).
        unsafe {
            std::slice::from_raw_parts(
                self.table.arena.address(self.frame.0),
                self.table.content_bytes,
            )
        }
    }

    #[inline(always)]
    #[must_use]
    pub fn bytes_mut(&mut self) -> RacyBytesMut<'_> {
        // SAFETY: mapped and aligned; the exclusive latch makes `&mut self` the only writer.
        unsafe {
            RacyBytesMut::new(self.table.arena.address(self.frame.0), self.table.content_bytes)
        }
    }

    /// Releases the latch. Returns the version that an optimistic reader would now see, for a
    /// caller that continues to read.
    #[must_use]
    pub fn release(self) -> Version {
        let guard = ManuallyDrop::new(self);
        guard.table.header(guard.frame).latch.release_exclusive()
    }

    /// Hands the page's memory to a device that will fill it. The frame stays closed to all until
    /// [`FrameTable::end_read`].
    ///
    /// # Panics
    /// Never panics while the invariants of this module hold.
    #[must_use]
    pub fn begin_read(self) -> Buffer {
        let guard = ManuallyDrop::new(self);
        let header = guard.table.header(guard.frame);
        // SAFETY: the exclusive latch is ours, so the cell is ours.
        let buffer = unsafe { (*header.buffer.get()).take() };
        header.latch.begin_fill();
        buffer.expect("an exclusive frame holds its buffer")
    }

    /// Opens a frame that [`FrameTable::end_read`] returned. Returns whether a task waits for it.
    #[must_use]
    pub fn end_read(self) -> bool {
        let guard = ManuallyDrop::new(self);
        guard.table.header(guard.frame).latch.end_fill()
    }

    /// Hands the page's memory to a device that will read it. Optimistic readers continue. Ends
    /// with [`FrameTable::end_write`].
    ///
    /// # Panics
    /// Never panics while the invariants of this module hold.
    #[must_use]
    pub fn begin_write(self) -> Buffer {
        let guard = ManuallyDrop::new(self);
        let header = guard.table.header(guard.frame);
        // SAFETY: the exclusive latch is ours, so the cell is ours.
        let buffer = unsafe { (*header.buffer.get()).take() };
        header.latch.begin_write_back();
        buffer.expect("an exclusive frame holds its buffer")
    }
}

impl Drop for ExclusiveFrame<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.panicking || !std::thread::panicking() {
            let _ = self.table.header(self.frame).latch.release_exclusive();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
