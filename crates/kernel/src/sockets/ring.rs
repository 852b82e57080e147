//! The ring: one receive and one send under way for each socket.
//!
//! Invariants:
//! - a socket that has something under way stays in `sockets`, with its descriptor and the memory
//!   of its send, until the kernel has completed it; `under_way` counts these completions;
//! - a send without a copy ends with its notification, after which the kernel has let go of the
//!   memory.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use qpair_block::{Error, ErrorKind, Result};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{Shutdown, connect_unspec, shutdown};

use super::buffers::{BUFFER_BYTES, Buffers, GROUP, Received};
use super::outgoing::Outgoing;
use crate::interface::Interface;
use crate::io_uring::ring::{Enter, Ring};
use crate::mode::{Mode, TaskRun};

/// The number of entries of the submission queue.
const ENTRIES: u32 = 256;
/// Data of fewer bytes is copied in any case: pinning its pages would take longer.
const ZERO_COPY_BYTES: usize = 16 << 10;
/// `IORING_SEND_ZC_REPORT_USAGE` and `IORING_NOTIF_USAGE_ZC_COPIED`, linux/io_uring.h.
const REPORT_USAGE: u16 = 1 << 3;
const USAGE_COPIED: u32 = 1 << 31;
/// The lowest bit of user data: a send.
const SEND: u64 = 1;
/// The number of waits, and the length of one, for the last completions of a ring that is dropped.
const LAST_WAITS: u32 = 50;
const LAST_WAIT: Duration = Duration::from_millis(100);

/// A completion for a socket.
#[derive(Debug)]
pub enum SocketEvent {
    /// The end of a receive: bytes, none at the end of the stream, or `None` if it is to be
    /// repeated.
    Received(io::Result<Option<Received>>),
    /// The number of bytes that a send has moved, which the kernel still refers to.
    Moved(usize),
    /// The end of a send, with the bytes that it has not sent, and the number of those that it has.
    Sent(Outgoing, io::Result<usize>),
}

/// A send under way. The addresses in it stay valid when it is moved: they are those of its heap
/// memory and of its blocks.
struct Flight {
    outgoing: Outgoing,
    pieces: Box<[libc::iovec]>,
    header: libc::msghdr,
    /// Whether the kernel was asked not to copy.
    avoids_copies: bool,
    /// The result, if the kernel still refers to the memory.
    result: Option<i32>,
}

struct Socket {
    fd: Arc<OwnedFd>,
    receives: bool,
    flight: Option<Box<Flight>>,
    may_avoid_copies: bool,
    is_cut: bool,
}

/// The memory that the kernel may access.
struct Memory {
    buffers: Buffers,
    sockets: Vec<Option<Socket>>,
}

/// A ring for the stream sockets of one thread, which their owner numbers.
pub struct SocketRing {
    ring: Ring,
    event: OwnedFd,
    memory: ManuallyDrop<Memory>,
    under_way: usize,
    /// The system calls so far.
    enters: u64,
}

impl std::fmt::Debug for SocketRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SocketRing with {} operations under way", self.under_way)
    }
}

impl SocketRing {
    /// Opens a ring.
    ///
    /// # Errors
    /// `Unsupported` if the kernel is too old or offers no `io_uring`; `Denied` if it is forbidden;
    /// `Limit` without memory or descriptors.
    pub fn open() -> Result<Self> {
        let mode = Mode { task_run: TaskRun::Defer, ..Mode::new(Interface::IoUring) };
        let mut ring = Ring::open(ENTRIES, &mode).map_err(refused)?;
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|cause| Error::os(cause.into(), "creating an event for sockets"))?;
        ring.register_event(event.as_raw_fd())?;
        let buffers = Buffers::register(&mut ring).map_err(refused)?;
        let memory = ManuallyDrop::new(Memory { buffers, sockets: Vec::new() });
        Ok(Self { ring, event, memory, under_way: 0, enters: 0 })
    }

    /// Returns the event that is signalled when [`SocketRing::collect`] may find something. It is
    /// never reset: watch it edge-triggered.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Returns the number of system calls so far.
    #[must_use]
    pub fn enters(&self) -> u64 {
        self.enters
    }

    /// Adds a socket under a number that no other socket has.
    pub fn add(&mut self, number: usize, fd: Arc<OwnedFd>) {
        let sockets = &mut self.memory.sockets;
        if sockets.len() <= number {
            sockets.resize_with(number + 1, || None);
        }
        debug_assert!(sockets[number].is_none(), "a number of a socket is free when it is used");
        let socket =
            Socket { fd, receives: false, flight: None, may_avoid_copies: true, is_cut: false };
        sockets[number] = Some(socket);
    }

    /// Removes a socket if nothing is under way. Otherwise shuts it down, so that all completions
    /// come soon, and returns false: then call this again after its next event.
    pub fn remove(&mut self, number: usize) -> bool {
        let Some(place) = self.memory.sockets.get_mut(number) else { return true };
        let Some(socket) = place else { return true };
        if socket.receives || socket.flight.is_some() {
            socket.cut();
            return false;
        }
        *place = None;
        true
    }

    /// Begins a receive of at most `len_max` bytes, unless one is under way.
    pub fn receive(&mut self, number: usize, len_max: usize) {
        let Memory { sockets, buffers } = &mut *self.memory;
        let Some(Some(socket)) = sockets.get_mut(number) else { return };
        if socket.receives || socket.is_cut {
            return;
        }
        buffers.replenish();
        let len = len_max.min(BUFFER_BYTES) as u32;
        let entry = opcode::Recv::new(Fd(socket.fd.as_raw_fd()), std::ptr::null_mut(), len)
            .buf_group(GROUP)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT)
            .user_data((number as u64) << 1);
        // SAFETY: the kernel writes to a buffer of `buffers` that is in its ring.
        if unsafe { self.ring.push(&entry) }.is_ok() {
            socket.receives = true;
            self.under_way += 1;
        }
    }

    /// Begins to send, if nothing is being sent, as much as one send takes.
    ///
    /// # Errors
    /// The bytes, if a send is under way or the kernel takes none.
    pub fn send(&mut self, number: usize, outgoing: Outgoing) -> std::result::Result<(), Outgoing> {
        let Some(Some(socket)) = self.memory.sockets.get_mut(number) else { return Err(outgoing) };
        if socket.flight.is_some() || socket.is_cut || outgoing.is_empty() {
            return Err(outgoing);
        }
        let mut flight = Box::new(Flight::new(outgoing));
        let fd = Fd(socket.fd.as_raw_fd());
        let header = &raw const flight.header;
        flight.avoids_copies = socket.may_avoid_copies
            && flight.outgoing.has_data()
            && flight.len() >= ZERO_COPY_BYTES;
        let flags = libc::MSG_NOSIGNAL as u32;
        let entry = match flight.avoids_copies {
            true => opcode::SendMsgZc::new(fd, header).flags(flags).ioprio(REPORT_USAGE).build(),
            false => opcode::SendMsg::new(fd, header).flags(flags).build(),
        };
        let entry = entry.user_data((number as u64) << 1 | SEND);
        // SAFETY: the header, the pieces, the headers of the bytes and their blocks belong to the
        // flight, which stays in the socket, unchanged, until `reap` has taken its last completion.
        if unsafe { self.ring.push(&entry) }.is_err() {
            return Err(std::mem::take(&mut flight.outgoing));
        }
        socket.flight = Some(flight);
        self.under_way += 1;
        Ok(())
    }

    /// Begins all operations with one system call. Returns whether there was one.
    pub fn submit(&mut self) -> bool {
        if self.ring.unsubmitted() == 0 {
            return false;
        }
        self.memory.buffers.replenish();
        self.enter(Enter { collect: true, ..Enter::default() });
        true
    }

    /// Whether [`SocketRing::submit`] or [`SocketRing::collect`] has something to do.
    pub fn is_busy(&mut self) -> bool {
        self.ring.unsubmitted() > 0 || self.ring.has_completions() || self.ring.has_hidden_work()
    }

    /// Takes completions, with the numbers of their sockets. Returns whether there was one.
    pub fn collect(&mut self, events: &mut Vec<(usize, SocketEvent)>) -> bool {
        let before = events.len();
        self.reap(events);
        if events.len() == before && self.ring.has_hidden_work() {
            self.enter(Enter { collect: true, ..Enter::default() });
            self.reap(events);
        }
        events.len() > before
    }

    fn enter(&mut self, enter: Enter) {
        self.enters += 1;
        // What was not submitted now is submitted by the next call.
        let _ = self.ring.enter(enter);
    }

    fn reap(&mut self, events: &mut Vec<(usize, SocketEvent)>) {
        let Memory { sockets, buffers } = &mut *self.memory;
        for entry in self.ring.queues().completion() {
            let number = (entry.user_data() >> 1) as usize;
            let Some(Some(socket)) = sockets.get_mut(number) else { continue };
            let (result, flags) = (entry.result(), entry.flags());
            let event = match entry.user_data() & SEND {
                SEND => socket.sent(result, flags),
                _ => {
                    socket.receives = false;
                    Some(received(buffers, result, flags))
                }
            };
            let Some(event) = event else { continue };
            if !matches!(event, SocketEvent::Moved(_)) {
                self.under_way -= 1;
            }
            events.push((number, event));
        }
    }
}

fn refused(cause: Error) -> Error {
    // The advice below is on files.
    let (cause, _) = cause.take_way_out();
    let hint = match cause.kind() {
        ErrorKind::Unsupported => "Linux 6.1 or later is needed; use epoll",
        ErrorKind::Denied => {
            "allow io_uring_setup, io_uring_enter and io_uring_register, and see sysctl kernel.io_uring_disabled; or use epoll"
        }
        _ => "raise ulimit -l and ulimit -n, or use epoll",
    };
    let what = "io_uring cannot be used for sockets";
    Error::new(cause.kind(), what).caused_by(cause).hint(hint)
}

/// Returns the event of a receive that has ended.
fn received(buffers: &mut Buffers, result: i32, flags: u32) -> SocketEvent {
    let len = usize::try_from(result).unwrap_or(0);
    let received = cqueue::buffer_select(flags).and_then(|number| buffers.take(number, len));
    SocketEvent::Received(match (result, received) {
        (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
        (1.., received) => Ok(received),
        // Without a buffer, the receive is repeated when others have given theirs back.
        _ if is_transient(result) || result == -libc::ENOBUFS => Ok(None),
        _ => Err(io::Error::from_raw_os_error(-result)),
    })
}

fn is_transient(result: i32) -> bool {
    matches!(-result, libc::EAGAIN | libc::EINTR)
}

impl Flight {
    fn new(mut outgoing: Outgoing) -> Self {
        let piece = |bytes: &io::IoSlice<'_>| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let pieces: Box<[_]> = outgoing.pieces().iter().map(piece).collect();
        // SAFETY: all fields are integers or pointers, for which zero is valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = pieces.as_ptr().cast_mut();
        header.msg_iovlen = pieces.len() as _;
        Self { outgoing, pieces, header, avoids_copies: false, result: None }
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.iov_len).sum()
    }
}

impl Socket {
    /// Takes a completion of the send; `None` if nothing is being sent.
    fn sent(&mut self, result: i32, flags: u32) -> Option<SocketEvent> {
        let flight = self.flight.as_mut()?;
        let is_notice = cqueue::notif(flags);
        if cqueue::more(flags) && !is_notice {
            flight.result = Some(result);
            return Some(SocketEvent::Moved(usize::try_from(result).unwrap_or(0)));
        }
        let result = match flight.result {
            Some(sent) if is_notice => {
                // The way to this peer copies all the same, as over loopback, and pins pages first.
                self.may_avoid_copies &= result.cast_unsigned() & USAGE_COPIED == 0;
                sent
            }
            _ => result,
        };
        let mut flight = self.flight.take()?;
        let mut outgoing = std::mem::take(&mut flight.outgoing);
        let result = match usize::try_from(result) {
            Ok(sent) => {
                outgoing.advance(sent);
                Ok(sent)
            }
            Err(_) if is_transient(result) => Ok(0),
            // The socket or the kernel offers no sends without a copy.
            Err(_) if flight.avoids_copies && is_refusal(result) => {
                self.may_avoid_copies = false;
                Ok(0)
            }
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        };
        Some(SocketEvent::Sent(outgoing, result))
    }

    /// Makes all operations end.
    fn cut(&mut self) {
        if self.is_cut {
            return;
        }
        self.is_cut = true;
        // The other end may have closed the connection, so these may fail.
        let _ = shutdown(&self.fd, Shutdown::Both);
        if self.flight.is_some() {
            // Forgets what was sent and not acknowledged: the kernel would refer to it for minutes.
            let _ = connect_unspec(&self.fd);
        }
    }
}

fn is_refusal(result: i32) -> bool {
    matches!(-result, libc::EOPNOTSUPP | libc::EINVAL | libc::ENOMEM)
}

impl Drop for SocketRing {
    fn drop(&mut self) {
        self.memory.sockets.iter_mut().flatten().for_each(Socket::cut);
        let mut events = Vec::new();
        for _ in 0..LAST_WAITS {
            self.reap(&mut events);
            events.clear();
            if self.under_way == 0 {
                break;
            }
            let timeout = Some(LAST_WAIT);
            self.enter(Enter { want: 1, collect: true, timeout, ..Enter::default() });
        }
        if self.under_way == 0 && Buffers::unregister(&mut self.ring) {
            // SAFETY: nothing is under way and the buffers are not registered, so the kernel
            // accesses this memory no longer. It is not used again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
        // Otherwise the memory is leaked.
    }
}
