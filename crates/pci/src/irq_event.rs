//! Events that interrupt a driver.
//!
//! The events are eventfds that another process may have supplied. write(2) to a full eventfd
//! blocks, unless its open file is marked O_NONBLOCK. The owner shares that open file, and can fill
//! it or change the mark at any moment.
//!
//! Only the kernel's own signal never blocks, whatever the owner does. A signal is therefore an
//! asynchronous read of zero bytes that signals the event when it ends (IOCB_FLAG_RESFD). The
//! system call that submits the read returns after the read has ended.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_long, c_ulong};
use qpair_block::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;

/// The maximum number of signals whose results are not collected yet.
const REQUESTS: usize = 128;
/// The maximum number of attempts at one signal. Each attempt first collects the results of earlier
/// ones.
const TRIES: usize = 3;

/// An eventfd that interrupts a driver. Signalling never blocks.
pub struct IrqEvent {
    fd: OwnedFd,
    undelivered: Option<Arc<AtomicU64>>,
}

impl IrqEvent {
    /// Wraps an eventfd.
    ///
    /// # Errors
    /// `Invalid` for a descriptor that is not an eventfd; `Limit` or `Unsupported` if the kernel
    /// provides no asynchronous I/O.
    pub fn new(fd: OwnedFd) -> Result<Self> {
        let link = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())
            .map_err(|errno| Error::os(errno.into(), "reading the type of a descriptor"))?;
        if link.as_bytes() != b"anon_inode:[eventfd]" {
            let context = "an interrupt's descriptor is not an eventfd";
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        Signaller::get()?;
        Ok(Self { fd, undelivered: None })
    }

    /// Adds one to `count` for each signal that cannot be delivered.
    #[must_use]
    pub fn counting(self, count: Arc<AtomicU64>) -> Self {
        Self { undelivered: Some(count), ..self }
    }

    /// Returns the eventfd, for others to wait for.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Interrupts the driver. Returns false if the signal could not be delivered, most likely
    /// because the owner filled the event.
    pub fn signal(&self) -> bool {
        let delivered = self.has_room() && Signaller::get().is_ok_and(|it| it.signal(&self.fd));
        if let (false, Some(undelivered)) = (delivered, &self.undelivered) {
            undelivered.fetch_add(1, Ordering::Relaxed);
        }
        delivered
    }

    /// Whether the event can count one more signal. Advisory: a signal does not block even if this
    /// has changed meanwhile.
    fn has_room(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut fds, Some(&now));
        polled.is_ok() && fds[0].revents().contains(PollFlags::OUT)
    }
}

impl fmt::Debug for IrqEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IrqEvent {}", self.fd.as_raw_fd())
    }
}

/// A request in the kernel's ABI (linux/aio_abi.h). The two words whose order depends on the byte
/// order are 0.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key_and_rw_flags: u64,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

const OPCODE_READ: u16 = 0;
const FLAG_EVENT: u32 = 1;

/// The result of a request, in the kernel's ABI.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct End {
    words: [u64; 4],
}

const _: () = assert!(size_of::<Request>() == 64 && size_of::<End>() == 32);

/// A context of asynchronous I/O. All events of the process share one, because destroying a context
/// takes milliseconds.
struct Signaller {
    context: c_ulong,
    /// An empty file in memory: reading it ends at once.
    file: OwnedFd,
}

impl Signaller {
    fn get() -> Result<&'static Self> {
        static SIGNALLER: OnceLock<Signaller> = OnceLock::new();
        if let Some(signaller) = SIGNALLER.get() {
            return Ok(signaller);
        }
        let signaller = Self::new().map_err(|cause| {
            let is_limit = cause.raw_os_error() == Some(libc::EAGAIN);
            let error =
                Error::os(cause, "setting up asynchronous I/O, by which interrupts are signalled");
            if is_limit { error.hint("raise the limit: sysctl fs.aio-max-nr") } else { error }
        })?;
        Ok(SIGNALLER.get_or_init(|| signaller))
    }

    fn new() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("qpair-irq", MemfdFlags::CLOEXEC)?;
        let mut context: c_ulong = 0;
        // SAFETY: the kernel writes one word to `context`.
        checked(unsafe {
            libc::syscall(libc::SYS_io_setup, REQUESTS as c_ulong, &raw mut context)
        })?;
        Ok(Self { context, file })
    }

    fn signal(&self, event: &OwnedFd) -> bool {
        let word = |fd: RawFd| u32::try_from(fd).unwrap_or(u32::MAX);
        let mut request = Request {
            opcode: OPCODE_READ,
            fd: word(self.file.as_raw_fd()),
            flags: FLAG_EVENT,
            event_fd: word(event.as_raw_fd()),
            ..Request::default()
        };
        for _ in 0..TRIES {
            let list = [&raw mut request];
            // SAFETY: the kernel reads one pointer, reads that request and writes its key, all
            // within the call. The requested read has no bytes, so its address is not used.
            let submitted = checked(unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, 1 as c_long, list.as_ptr())
            });
            match submitted {
                Ok(count) => return count == 1,
                // Uncollected results of earlier signals take up the room.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => self.collect(),
                Err(_) => return false,
            }
        }
        false
    }

    fn collect(&self) {
        let mut ends = [End::default(); REQUESTS];
        // SAFETY: the kernel writes at most as many results as there is room for, and does not
        // wait. No time-out is passed.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0 as c_long,
                REQUESTS as c_long,
                ends.as_mut_ptr(),
                ptr::null_mut::<libc::timespec>(),
            )
        };
    }
}

impl Drop for Signaller {
    fn drop(&mut self) {
        // SAFETY: this context belongs to this value, and no other code uses it.
        let _ = unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

fn checked(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    const FULL: u64 = u64::MAX - 1;

    fn event(flags: EventfdFlags) -> (OwnedFd, IrqEvent) {
        let fd = eventfd(0, flags).unwrap();
        let event = IrqEvent::new(fd.try_clone().unwrap()).unwrap();
        (fd, event)
    }

    fn count(fd: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(fd, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    /// Fails if `work` does not end. Without the time limit, the test would hang.
    fn ends(work: impl FnOnce() + Send + 'static) {
        let (done, wait) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            work();
            done.send(()).unwrap();
        });
        if wait.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            panic!("a signal waits");
        }
        thread.join().unwrap();
    }

    #[test]
    fn each_signal_is_counted() {
        let (fd, event) = event(EventfdFlags::empty());
        for round in 1..=3 * REQUESTS as u64 {
            assert!(event.signal());
            if round % 100 == 0 {
                assert_eq!(count(&fd), 100);
            }
        }
        assert_eq!(count(&fd), 3 * REQUESTS as u64 % 100);
    }

    #[test]
    fn threads_signal_at_once() {
        let (fd, event) = event(EventfdFlags::empty());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| assert!(event.signal())));
            }
        });
        assert_eq!(count(&fd), 4000);
    }

    #[test]
    fn one_that_is_full_is_not_waited_for() {
        for flags in [EventfdFlags::empty(), EventfdFlags::SEMAPHORE, EventfdFlags::NONBLOCK] {
            let (fd, event) = event(flags);
            rustix::io::write(&fd, &FULL.to_ne_bytes()).unwrap();
            let undelivered = Arc::new(AtomicU64::new(0));
            let event = event.counting(undelivered.clone());
            ends(move || assert!(!event.signal() && !event.signal()));
            assert_eq!(undelivered.load(Ordering::Relaxed), 2);
        }
    }

    #[test]
    fn one_whose_owner_fills_it_and_marks_it_at_any_moment() {
        let (fd, event) = event(EventfdFlags::NONBLOCK);
        let done = Arc::new(AtomicBool::new(false));
        let owner = std::thread::spawn({
            let done = done.clone();
            move || {
                while !done.load(Ordering::Relaxed) {
                    fcntl_setfl(&fd, OFlags::NONBLOCK).unwrap();
                    let _ = rustix::io::write(&fd, &FULL.to_ne_bytes());
                    fcntl_setfl(&fd, OFlags::empty()).unwrap();
                    std::hint::spin_loop();
                    fcntl_setfl(&fd, OFlags::NONBLOCK).unwrap();
                    let _ = rustix::io::read(&fd, &mut [0; 8]);
                }
            }
        });
        ends(move || {
            for _ in 0..100_000 {
                let _ = event.signal();
            }
        });
        done.store(true, Ordering::Relaxed);
        owner.join().unwrap();
    }

    #[test]
    fn other_descriptors_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        // A file name that looks like an eventfd.
        let path = folder.path().join("anon_inode:[eventfd]");
        std::fs::write(&path, "").unwrap();
        let (stream, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let (read, write) = std::io::pipe().unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let memory = rustix::fs::memfd_create("anon_inode:[eventfd]", MemfdFlags::empty()).unwrap();
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::empty());
        let all: [OwnedFd; 7] = [
            stream.into(),
            read.into(),
            write.into(),
            file.into(),
            std::fs::File::open(folder.path()).unwrap().into(),
            memory,
            epoll.unwrap(),
        ];
        for fd in all {
            let error = IrqEvent::new(fd.as_fd().try_clone_to_owned().unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
    }
}
