//! The ring itself: set-up with the best flags the kernel has, and the one system call.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, squeue};
use qpair_block::{Error, ErrorKind, Result};

/// `IORING_REGISTER_RING_FDS` and its undoing, linux/io_uring.h.
const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// `struct io_uring_rsrc_update`, linux/io_uring.h.
#[repr(C)]
struct RingFdUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// One `io_uring_enter`.
#[derive(Clone, Copy, Default)]
pub(super) struct Enter {
    /// Completions to wait for.
    pub(super) want: u32,
    /// Run the kernel's deferred work and collect completions, also without waiting.
    pub(super) collect: bool,
    /// After this long one completion is enough. Only where [`Ring::has_min_wait`].
    pub(super) min_wait: Duration,
    /// Give up after this long.
    pub(super) timeout: Option<Duration>,
}

/// A ring of one thread.
pub(super) struct Ring {
    ring: IoUring,
    /// What `io_uring_enter` is given: the ring's number among this thread's registered rings, or its descriptor.
    enter_fd: RawFd,
    registered: bool,
    has_min_wait: bool,
    mode: String,
}

impl Ring {
    /// Sets up a ring of at least `entries`.
    pub(super) fn new(entries: u32) -> Result<Self> {
        Self::with(entries, SetUp::ALL, true)
    }

    /// Sets up a ring with the first of `set_ups` that the kernel takes, and min-wait only if wanted.
    pub(super) fn with(entries: u32, set_ups: &[SetUp], min_wait: bool) -> Result<Self> {
        let (ring, flags) = set_up(entries, set_ups).map_err(unavailable)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(Error::new(ErrorKind::Unsupported, "this kernel's io_uring is too old")
                .hint("Linux 5.11 or later is needed; use libaio"));
        }
        let has_min_wait = min_wait && ring.params().is_feature_min_timeout();
        let fd = ring.as_raw_fd();
        let mut ring =
            Self { ring, enter_fd: fd, registered: false, has_min_wait, mode: flags.to_owned() };
        ring.register_self();
        if ring.registered {
            ring.mode.push_str(", registered ring");
        }
        ring.mode.push_str(if has_min_wait { ", min-wait" } else { ", no min-wait" });
        Ok(ring)
    }

    /// Registers the ring with this thread, which spares the kernel a look-up on every call. A thread
    /// has 16 places; without one, nothing but that look-up changes.
    fn register_self(&mut self) {
        let fd = self.ring.as_raw_fd();
        let mut update = RingFdUpdate { offset: u32::MAX, reserved: 0, data: fd as u64 };
        // SAFETY: one update of the kernel's layout, alive for the call; the descriptor is this ring's.
        let done = unsafe {
            libc::syscall(libc::SYS_io_uring_register, fd, REGISTER_RING_FDS, &raw mut update, 1)
        };
        if let (1, Ok(index)) = (done, RawFd::try_from(update.offset)) {
            self.enter_fd = index;
            self.registered = true;
        }
    }

    /// The set-up, in words for reports.
    pub(super) fn mode(&self) -> &str {
        &self.mode
    }

    /// Whether the kernel (6.12) can wait for several for a while and then for one.
    #[inline]
    pub(super) fn has_min_wait(&self) -> bool {
        self.has_min_wait
    }

    /// The ring's queues, for the channel.
    #[inline]
    pub(super) fn queues(&mut self) -> &mut IoUring {
        &mut self.ring
    }

    /// Entries pushed that the kernel has not taken.
    #[inline]
    pub(super) fn unsubmitted(&mut self) -> u32 {
        self.ring.submission().len() as u32
    }

    /// Whether a system call would bring completions that are not in the queue yet.
    #[inline]
    pub(super) fn has_hidden_work(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Pushes an entry, submitting first if the queue is full.
    ///
    /// # Safety
    /// The memory that `entry` names must stay valid, and the kernel's, until its completion has been taken.
    #[inline]
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.enter(Enter::default())?;
        }
    }

    /// Submits all that was pushed, and waits and collects as `enter` says: one system call.
    #[inline]
    pub(super) fn enter(&mut self, enter: Enter) -> io::Result<()> {
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
        let (address, len) = match enter.want {
            0 => (std::ptr::null(), 0),
            _ => ((&raw const args).cast::<libc::c_void>(), size_of_val(&args)),
        };
        let unsubmitted = self.unsubmitted();
        // SAFETY: `args` and the time it points to live past the call; `enter_fd` names this ring (registered on
        // this thread, which is the only one to use it, until `drop`); what the entries name is under
        // the promise made to `push`.
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

    /// Registers one file, to be named `Fixed(0)`.
    pub(super) fn register_file(&self, fd: RawFd) -> io::Result<()> {
        self.ring.submitter().register_files(&[fd])
    }

    /// Registers memory as fixed buffers.
    ///
    /// # Safety
    /// The memory must stay mapped until [`Self::unregister`] or the end of the ring.
    pub(super) unsafe fn register_buffers(&self, pieces: &[libc::iovec]) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.ring.submitter().register_buffers(pieces) }
    }

    /// Has the kernel signal an eventfd for every completion.
    pub(super) fn register_event(&self, event: RawFd) -> Result<()> {
        self.ring
            .submitter()
            .register_eventfd(event)
            .map_err(|cause| Error::os(cause, "registering an event with the ring"))
    }

    /// Lets go of registered memory and files now. The kernel takes a ring down some time after it was closed; until
    /// then the memory would count against the limit, and the file stay open, with its lock.
    pub(super) fn unregister(&self) {
        let _ = self.ring.submitter().unregister_buffers();
        let _ = self.ring.submitter().unregister_files();
    }
}

impl Drop for Ring {
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

/// A set of flags to set a ring up with.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetUp {
    words: &'static str,
    prepare: fn(&mut Builder),
}

impl SetUp {
    /// All of them, the newest kernels' first.
    pub(super) const ALL: &[Self] = &[
        Self {
            words: "SINGLE_ISSUER|DEFER_TASKRUN|NO_SQARRAY",
            prepare: |builder| {
                defer_task_work(builder);
                builder.setup_no_sqarray();
            },
        },
        Self { words: "SINGLE_ISSUER|DEFER_TASKRUN", prepare: defer_task_work },
        Self {
            words: "COOP_TASKRUN",
            prepare: |builder| {
                builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
            },
        },
        Self { words: "no set-up flags (old kernel)", prepare: |_| {} },
    ];
}

/// Completions are made when this thread asks for them, not when an interrupt finds it.
fn defer_task_work(builder: &mut Builder) {
    builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
}

fn set_up(entries: u32, set_ups: &[SetUp]) -> io::Result<(IoUring, &'static str)> {
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for set_up in set_ups {
        let mut builder = IoUring::builder();
        (set_up.prepare)(&mut builder);
        // A forked child must not touch the queues.
        match builder.dontfork().build(entries) {
            Ok(ring) => return Ok((ring, set_up.words)),
            Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) => refused = cause,
            Err(cause) => return Err(cause),
        }
    }
    Err(refused)
}

/// Why there is no io_uring, and the way out.
fn unavailable(cause: io::Error) -> Error {
    let errno = cause.raw_os_error();
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let disabled = matches!(setting.as_deref().map(str::trim), Ok("1" | "2"));
    match errno {
        Some(libc::EPERM) if disabled => {
            Error::new(ErrorKind::Denied, "io_uring is switched off on this machine")
                .caused_by(cause)
                .hint("sysctl kernel.io_uring_disabled=0 switches it on; libaio does without")
        }
        Some(libc::EPERM | libc::EACCES) => {
            Error::new(ErrorKind::Denied, "io_uring is forbidden to this process")
                .caused_by(cause)
                .hint("a container's seccomp profile does that: allow io_uring_setup, io_uring_enter and io_uring_register there, or use libaio")
        }
        Some(libc::ENOSYS) => Error::new(ErrorKind::Unsupported, "this kernel offers no io_uring")
            .caused_by(cause)
            .hint("it is not built in, or a container hides it; use libaio"),
        Some(libc::ENOMEM) => Error::new(ErrorKind::Limit, "no memory for an io_uring")
            .caused_by(cause)
            .hint("raise the limit on locked memory (ulimit -l), or use libaio"),
        Some(libc::EMFILE | libc::ENFILE) => {
            Error::os(cause, "no descriptor left for an io_uring").hint("raise ulimit -n")
        }
        _ => Error::os(cause, "setting up an io_uring"),
    }
}
