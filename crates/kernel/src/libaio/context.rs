//! The kernel's context for asynchronous I/O: four system calls, and the ring of completions that
//! it maps into the process.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};

/// `struct iocb`, linux/aio_abi.h; not every C library has it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ControlBlock {
    /// User data, returned in the completion.
    pub(super) data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    /// `RWF_` flags of a transfer.
    pub(super) rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    pub(super) opcode: u16,
    priority: i16,
    pub(super) fd: u32,
    /// The address of the data or of a vector's pieces; for a poll, its events.
    pub(super) buffer: u64,
    pub(super) len: u64,
    pub(super) offset: i64,
    reserved: u64,
    pub(super) flags: u32,
    /// The event that a completion signals, if `flags` request that.
    pub(super) event_fd: u32,
}

/// `struct io_event`, linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Event {
    /// The control block's `aio_data`.
    pub(super) data: u64,
    object: u64,
    /// Bytes moved, or a negative errno.
    pub(super) result: i64,
    result2: i64,
}

/// `struct aio_ring`, fs/aio.c: the header of the mapping whose address `io_setup` returns as the
/// context's id.
#[repr(C)]
struct RingHeader {
    id: u32,
    events: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compat_features: u32,
    incompat_features: u32,
    header_bytes: u32,
}

const RING_MAGIC: u32 = 0xa10a_10a1;
const RING_COMPAT_FEATURES: u32 = 1;

const _: () = assert!(size_of::<ControlBlock>() == 64);
const _: () = assert!(size_of::<Event>() == 32 && size_of::<RingHeader>() == 32);

/// A context of one thread.
pub(super) struct Context {
    id: libc::c_ulong,
    /// The completion ring, if it has the known layout.
    ring: Option<NonNull<RingHeader>>,
}

impl Context {
    pub(super) fn new(events: u32) -> Result<Self> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word to `id`.
        let failed = unsafe { libc::syscall(libc::SYS_io_setup, events, &raw mut id) };
        if failed != 0 {
            return Err(unavailable(io::Error::last_os_error()));
        }
        let ring = NonNull::new(std::ptr::with_exposed_provenance_mut::<RingHeader>(id as usize));
        // SAFETY: since Linux 2.5.32 a context's id is the address of its ring, which is mapped
        // until `io_destroy` in `drop`.
        let ring = ring.filter(|ring| unsafe {
            let ring = ring.as_ref();
            ring.magic == RING_MAGIC
                && ring.compat_features == RING_COMPAT_FEATURES
                && ring.incompat_features == 0
                && ring.header_bytes as usize == size_of::<RingHeader>()
                && ring.events > 0
        });
        Ok(Self { id, ring })
    }

    /// Makes later completions be taken by system calls, as if the ring's layout were unknown.
    pub(super) fn ignore_ring(&mut self) {
        self.ring = None;
    }

    /// Whether completions are taken from memory.
    #[inline]
    pub(super) fn is_mapped(&self) -> bool {
        self.ring.is_some()
    }

    pub(super) fn reaping(&self) -> &'static str {
        if self.ring.is_some() { "from the mapped ring" } else { "by io_getevents" }
    }

    /// Submits control blocks to the kernel. Returns how many it took, from the first on.
    ///
    /// # Safety
    /// Each pointer must name a control block that nothing else uses during the call. The memory
    /// that the blocks name must stay valid, and belong to the kernel, until their completions were
    /// taken.
    pub(super) unsafe fn submit(&mut self, blocks: &mut [*mut ControlBlock]) -> io::Result<usize> {
        // SAFETY: the caller's contract.
        let taken = unsafe {
            libc::syscall(libc::SYS_io_submit, self.id, blocks.len(), blocks.as_mut_ptr())
        };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    /// Waits for at least `want` completions, or until `timeout` has passed; without end if it is
    /// `None`.
    pub(super) fn wait(
        &mut self,
        want: u32,
        events: &mut [Event],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let want = (want as usize).min(events.len());
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let time = match timeout {
            Some(timeout) => {
                time.tv_sec = i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX).into();
                time.tv_nsec = timeout.subsec_nanos().into();
                &raw mut time
            }
            None => std::ptr::null_mut(),
        };
        // SAFETY: `events` has room for as many as are requested. `time` is null or points to a
        // structure that outlives the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                want,
                events.len(),
                events.as_mut_ptr(),
                time,
            )
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Takes the available completions. Returns their number, and whether a system call was made,
    /// which happens only if the ring's layout is unknown.
    #[inline]
    pub(super) fn take(&mut self, events: &mut [Event]) -> (usize, bool) {
        let Some(ring) = self.ring else {
            return (self.wait(0, events, Some(Duration::ZERO)).unwrap_or(0), true);
        };
        // SAFETY: mapped until `drop`, with the layout that `new` checked; the two ends are
        // atomics.
        let header = unsafe { ring.as_ref() };
        let mut head = header.head.load(Ordering::Relaxed);
        // Acquire: the kernel wrote the events before it moved the tail past them.
        let tail = header.tail.load(Ordering::Acquire);
        let mut count = 0;
        while head != tail && count < events.len() && head < header.events {
            // SAFETY: the header is followed by `header.events` events, and `head` is less than
            // that. The kernel does not write the events between head and tail.
            events[count] = unsafe { ring.add(1).cast::<Event>().add(head as usize).read() };
            count += 1;
            head = if head + 1 == header.events { 0 } else { head + 1 };
        }
        if count > 0 {
            // Release: the kernel may overwrite these events only after they were read.
            header.head.store(head, Ordering::Release);
        }
        (count, false)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Waits for all requests in flight, and cancels polls. SAFETY: the context belongs to this
        // value; nothing uses the ring afterwards.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

fn unavailable(cause: io::Error) -> Error {
    match cause.raw_os_error() {
        Some(libc::EAGAIN) => {
            Error::new(ErrorKind::Limit, "the system has no room for another asynchronous I/O context")
                .caused_by(cause)
                .hint("raise sysctl fs.aio-max-nr, or use fewer or shallower channels")
        }
        Some(libc::ENOSYS) => Error::new(ErrorKind::Unsupported, "this kernel offers no libaio")
            .caused_by(cause)
            .hint("it is not built in (CONFIG_AIO), or a container hides it; use posix"),
        Some(libc::EPERM | libc::EACCES) => {
            Error::new(ErrorKind::Denied, "libaio is forbidden to this process")
                .caused_by(cause)
                .hint("a container's seccomp profile does that: allow io_setup, io_submit, io_getevents and io_destroy there, or use posix")
        }
        _ => Error::os(cause, "setting up asynchronous I/O"),
    }
}
