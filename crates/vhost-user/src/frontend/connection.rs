//! One life of the socket: requests and replies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result};
use qpair_pci::TimeoutPolicy;
use qpair_socket::{Incoming, Received, SOCKET_PATH_BYTES_MAX, send};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::codec::{FDS_MAX, Header, PAYLOAD_BYTES_MAX, Request, parse_number};

/// The interval at which the timeout policy is asked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) struct Connection {
    stream: UnixStream,
    incoming: Incoming<Header>,
    name: String,
    timeout: Duration,
    timeout_policy: TimeoutPolicy,
    /// Whether the back end replies to a message that asks for a reply.
    pub(super) has_ack: bool,
}

impl Connection {
    pub(super) fn open(
        path: &Path,
        timeout: Duration,
        timeout_policy: TimeoutPolicy,
    ) -> Result<Self> {
        let name = format!("vhost-user:{}", path.display());
        let start = Instant::now();
        let stream = loop {
            match connect(path) {
                // The listener's queue is full.
                Err(cause)
                    if cause.kind() == io::ErrorKind::WouldBlock && start.elapsed() < timeout =>
                {
                    if timeout_policy.is_over(&name, "to accept the connection", start, timeout) {
                        let context = format!("{name}: connecting");
                        return Err(Error::new(ErrorKind::Interrupted, context));
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
                other => break other.map_err(|cause| cannot_connect(cause, &name))?,
            }
        };
        let incoming = Incoming::new(PAYLOAD_BYTES_MAX, FDS_MAX);
        Ok(Self { stream, incoming, name, timeout, timeout_policy, has_ack: false })
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    fn gone(&self) -> Error {
        Error::new(ErrorKind::Gone, format!("{}: the back end has gone", self.name))
    }

    fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Io, format!("{}: {what}", self.name))
            .hint("is it a back end of vhost-user-blk that listens there?")
    }

    fn wait(&self, flags: PollFlags, start: Instant, request: Request) -> Result<()> {
        let to = format!("to answer {request:?}");
        if start.elapsed() >= self.timeout {
            let waited = self.timeout.as_secs();
            let what = format!("it has not answered {request:?} for {waited} s");
            return Err(self.wrong(what));
        }
        if self.timeout_policy.is_over(&self.name, &to, start, self.timeout) {
            let context = format!("{}: waiting for it {to}", self.name);
            return Err(Error::new(ErrorKind::Interrupted, context));
        }
        let mut fds = [PollFd::new(&self.stream, flags)];
        let nap = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
        // Whether the wait fails or not, the next attempt notices it.
        let _ = rustix::event::poll(&mut fds, Some(&nap));
        Ok(())
    }

    fn send(&self, request: Request, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        let start = Instant::now();
        let mut sent = 0;
        while sent < bytes.len() {
            let fds = if sent == 0 { fds } else { &[] };
            match send(&self.stream, &bytes[sent..], fds) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT, start, request)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(self.gone()),
            }
        }
        Ok(())
    }

    /// Sends a request. Returns the payload of the reply.
    pub(super) fn ask(&mut self, request: Request, payload: &[u8]) -> Result<Vec<u8>> {
        let header = Header::request(request as u32, payload.len(), false);
        self.send(request, &header.message(payload), &[])?;
        self.answer(request)
    }

    pub(super) fn ask_number(&mut self, request: Request) -> Result<u64> {
        let payload = self.ask(request, &[])?;
        parse_number(&payload).ok_or_else(|| self.wrong(format!("it did not answer {request:?}")))
    }

    /// Sends a request that has no reply of its own. If the back end supports acknowledgements,
    /// waits for success.
    pub(super) fn tell(
        &mut self,
        request: Request,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let header = Header::request(request as u32, payload.len(), self.has_ack);
        self.send(request, &header.message(payload), fds)?;
        if !self.has_ack {
            return Ok(());
        }
        match parse_number(&self.answer(request)?) {
            Some(0) => Ok(()),
            _ => Err(self.wrong(format!("it refused {request:?}"))),
        }
    }

    fn answer(&mut self, request: Request) -> Result<Vec<u8>> {
        let start = Instant::now();
        loop {
            match self.incoming.poll(&self.stream) {
                Ok(Received::Message(message)) => {
                    let header = message.header;
                    if header.is_reply() && header.request == request as u32 {
                        return Ok(message.payload);
                    }
                    return Err(self.wrong(format!("it did not answer {request:?}")));
                }
                Ok(Received::Closed(_)) => return Err(self.gone()),
                Ok(Received::NotYet) => self.wait(PollFlags::IN, start, request)?,
                Err(error) => return Err(self.wrong(error)),
            }
        }
    }
}

/// Connects, and fails at once if the listener's queue is full.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let address = SocketAddrUnix::new(path)?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

fn cannot_connect(cause: io::Error, name: &str) -> Error {
    let context = format!("{name}: connecting");
    let (kind, errno) = (cause.kind(), cause.raw_os_error());
    let is = |known: Errno| errno == Some(known.raw_os_error());
    match kind {
        io::ErrorKind::NotFound => Error::os(cause, context)
            .hint("start the back end first: `qpair target`, qemu-storage-daemon"),
        io::ErrorKind::ConnectionRefused => Error::new(ErrorKind::Gone, context)
            .caused_by(cause)
            .hint("no process listens there, or it is not a socket: start the back end again"),
        io::ErrorKind::PermissionDenied => Error::os(cause, context).hint(
            "connecting takes write permission on the socket: run as the user who serves it, or let that user change its mode",
        ),
        io::ErrorKind::WouldBlock => Error::new(ErrorKind::Busy, context).caused_by(cause).hint(
            "others wait to be let in: most back ends serve one front end at a time",
        ),
        _ if is(Errno::NAMETOOLONG) || is(Errno::INVAL) => Error::new(ErrorKind::Invalid, context)
            .caused_by(cause)
            .hint(format!("the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes")),
        // One of datagrams.
        _ if is(Errno::PROTOTYPE) => Error::new(ErrorKind::Unsupported, context)
            .caused_by(cause)
            .hint("it is a socket of another kind, not of a back end of vhost-user-blk"),
        _ => Error::os(cause, context),
    }
}

pub(super) fn back_channel() -> Result<(UnixStream, OwnedFd)> {
    let failed = |cause| Error::os(cause, "creating a pair of sockets");
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    Ok((ours, theirs.into()))
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
