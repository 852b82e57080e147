//! The ring, and the system call `io_uring_enter`.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, squeue};
use qpair_block::{Error, ErrorKind, Result};

use super::set_up::{Built, SetUp, set_up, set_up_with, unavailable};
use super::shared::SharedThread;
use crate::mode::Mode;

/// `IORING_REGISTER_RING_FDS` and `IORING_UNREGISTER_RING_FDS`, linux/io_uring.h.
const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// `struct io_uring_rsrc_update`, linux/io_uring.h.
#[repr(C)]
struct RingFdUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Enter {
    /// The number of completions to wait for.
    pub(crate) want: u32,
    /// Whether to run the kernel's deferred work and collect completions, even without waiting.
    pub(crate) collect: bool,
    /// The time after which one completion is enough. Only if [`Ring::has_min_wait`].
    pub(crate) min_wait: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) wake: bool,
}

/// A ring of one thread, with entries of the types `S` and `C`.
pub(crate) struct Ring<
    S: squeue::EntryMarker = squeue::Entry,
    C: cqueue::EntryMarker = cqueue::Entry,
> {
    ring: IoUring<S, C>,
    /// The descriptor argument of `io_uring_enter`: the ring's number among this thread's
    /// registered rings, or its file descriptor.
    enter_fd: RawFd,
    registered: bool,
    has_min_wait: bool,
    mode: String,
    /// Keeps the submission thread alive that this ring shares with others. Must be dropped after
    /// the ring.
    _shared: Option<Arc<SharedThread>>,
}

impl<S: squeue::EntryMarker + 'static, C: cqueue::EntryMarker + 'static> Ring<S, C> {
    pub(crate) fn open(entries: u32, mode: &Mode) -> Result<Self> {
        Self::of(set_up(entries, mode)?, mode, true)
    }

    /// Opens a ring with the first of `set_ups` that the kernel accepts, and with min-wait only if
    /// wanted.
    pub(crate) fn open_with(
        entries: u32,
        mode: &Mode,
        set_ups: &[SetUp],
        min_wait: bool,
    ) -> Result<Self> {
        Self::of(set_up_with(entries, mode, set_ups)?, mode, min_wait)
    }

    fn of(built: Built<S, C>, mode: &Mode, min_wait: bool) -> Result<Self> {
        let Built { ring, words, shared } = built;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(Error::new(ErrorKind::Unsupported, "this kernel's io_uring is too old")
                .hint("Linux 5.11 or later is needed; use libaio"));
        }
        let has_min_wait = min_wait && ring.params().is_feature_min_timeout();
        let fd = ring.as_raw_fd();
        let mut ring = Self {
            ring,
            enter_fd: fd,
            registered: false,
            has_min_wait,
            mode: words,
            _shared: shared,
        };
        if mode.registered_ring {
            ring.register_self();
        }
        // A seccomp filter may allow setting up a ring but not entering it.
        match ring.enter(Enter { collect: true, ..Enter::default() }) {
            Err(cause)
                if !matches!(
                    cause.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) =>
            {
                return Err(unavailable(cause));
            }
            _ => {}
        }
        ring.mode.push_str(if ring.registered { ", registered ring" } else { ", ring by number" });
        ring.mode.push_str(if has_min_wait { ", min-wait" } else { ", no min-wait" });
        Ok(ring)
    }

    /// Registers the ring with this thread, which saves the kernel a look-up in every call. A
    /// thread has 16 places; a ring without a place only costs that look-up.
    fn register_self(&mut self) {
        let fd = self.ring.as_raw_fd();
        let mut update = RingFdUpdate { offset: u32::MAX, reserved: 0, data: fd as u64 };
        // SAFETY: one update of the kernel's layout, alive for the call; the descriptor is this
        // ring's.
        let done = unsafe {
            libc::syscall(libc::SYS_io_uring_register, fd, REGISTER_RING_FDS, &raw mut update, 1)
        };
        if let (1, Ok(index)) = (done, RawFd::try_from(update.offset)) {
            self.enter_fd = index;
            self.registered = true;
        }
    }

    pub(crate) fn mode(&self) -> &str {
        &self.mode
    }

    /// Whether the kernel (6.12) can wait for several completions for some time, and then for one.
    #[inline]
    pub(crate) fn has_min_wait(&self) -> bool {
        self.has_min_wait
    }

    #[inline]
    pub(crate) fn queues(&mut self) -> &mut IoUring<S, C> {
        &mut self.ring
    }

    #[inline]
    pub(crate) fn unsubmitted(&mut self) -> u32 {
        self.ring.submission().len() as u32
    }

    /// Whether a system call would add completions that are not in the queue yet.
    #[inline]
    pub(crate) fn has_hidden_work(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    #[inline]
    pub(crate) fn thread_sleeps(&mut self) -> bool {
        // The library's call has a full fence between the pushed entries and the read of the
        // thread's sleep flag. It pairs with the kernel's fence between setting that flag and the
        // last check of the entries.
        self.ring.submission().need_wakeup()
    }

    #[inline]
    pub(crate) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    pub(crate) fn knows(&self, operation: u8) -> bool {
        let mut probe = Probe::new();
        self.ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(operation)
    }

    /// Pushes an entry, submitting first if the queue is full.
    ///
    /// # Safety
    /// The memory that `entry` names must stay valid, and belong to the kernel, until its
    /// completion was taken.
    #[inline]
    pub(crate) unsafe fn push(&mut self, entry: &S) -> io::Result<()> {
        loop {
            // SAFETY: the caller's contract.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.enter(Enter::default())?;
        }
    }

    /// Submits all pushed entries, and waits and collects as `enter` says, in one system call.
    #[inline]
    pub(crate) fn enter(&mut self, enter: Enter) -> io::Result<()> {
        let timespec;
        let mut args = SubmitArgs::new();
        let mut flags = EnterFlags::empty();
        if enter.want > 0 || enter.collect {
            flags |= EnterFlags::GETEVENTS;
        }
        if enter.want > 0 {
            flags |= EnterFlags::EXT_ARG;
            args =
                args.min_wait_usec(u32::try_from(enter.min_wait.as_micros()).unwrap_or(u32::MAX));
        }
        let args = match enter.timeout {
            Some(timeout) if enter.want > 0 => {
                timespec = Timespec::from(timeout);
                args.timespec(&timespec)
            }
            _ => args,
        };
        if self.registered {
            flags |= EnterFlags::REGISTERED_RING;
        }
        if enter.wake {
            flags |= EnterFlags::SQ_WAKEUP;
        }
        let (address, len) = match enter.want {
            0 => (std::ptr::null(), 0),
            _ => ((&raw const args).cast::<libc::c_void>(), size_of_val(&args)),
        };
        let unsubmitted = self.unsubmitted();
        // SAFETY: `args` and the time that it points to outlive the call. `enter_fd` names this
        // ring, which is registered on this thread, the only one to use it, until `drop`. The
        // memory that entries name is valid by the contract of `push`.
        let done = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                unsubmitted,
                enter.want,
                flags.bits(),
                address,
                len,
            )
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Registers one file, which entries name as `Fixed(0)`.
    pub(crate) fn register_file(&self, fd: RawFd) -> io::Result<()> {
        self.ring.submitter().register_files(&[fd])
    }

    /// Registers memory as fixed buffers.
    ///
    /// # Safety
    /// The memory must stay mapped until [`Self::unregister`] or the end of the ring.
    pub(crate) unsafe fn register_buffers(&self, pieces: &[libc::iovec]) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.ring.submitter().register_buffers(pieces) }
    }

    /// Makes room for this many fixed buffers without registering any (5.19).
    pub(crate) fn register_no_buffers(&self, count: u32) -> io::Result<()> {
        self.ring.submitter().register_buffers_sparse(count)
    }

    /// Registers memory in a free slot of the fixed buffer table.
    ///
    /// # Safety
    /// As [`Self::register_buffers`].
    pub(crate) unsafe fn register_buffer(&self, index: u32, piece: libc::iovec) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.ring.submitter().register_buffers_update(index, &[piece], None) }
    }

    pub(crate) fn register_event(&self, event: RawFd) -> Result<()> {
        self.ring
            .submitter()
            .register_eventfd(event)
            .map_err(|cause| Error::os(cause, "registering an event with the ring"))
    }

    /// Unregisters memory and files now.
    ///
    /// The kernel destroys a ring some time after it is closed. Until then the memory would count
    /// against the limit, and the file would stay open and locked.
    pub(crate) fn unregister(&self) {
        let _ = self.ring.submitter().unregister_buffers();
        let _ = self.ring.submitter().unregister_files();
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Drop for Ring<S, C> {
    fn drop(&mut self) {
        if self.registered {
            let mut update = RingFdUpdate { offset: self.enter_fd as u32, reserved: 0, data: 0 };
            // Otherwise the thread would hold the ring open until it ends.
            // SAFETY: as in `register_self`.
            unsafe {
                libc::syscall(
                    libc::SYS_io_uring_register,
                    self.ring.as_raw_fd(),
                    UNREGISTER_RING_FDS,
                    &raw mut update,
                    1,
                )
            };
        }
    }
}
