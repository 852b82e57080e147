//! The HTTP server of the metrics: it answers one request, then closes the connection.
//!
//! The server serves one client at a time, for about one second at most. A client that holds its
//! connection open delays others no longer than that.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use qpair_block::{Error, Result};
use qpair_socket::Listener;
use rustix::event::{PollFd, PollFlags};

use super::text::text;
use crate::service::{Service, Stop};
use crate::target::Target;

/// The longest time that a client may take.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum size of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// The address at which to listen: `127.0.0.1:9100`, `[::1]:9100` or the path of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// A socket in the file system.
    Path(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.parse() {
            Ok(address) => Ok(Self::Tcp(address)),
            Err(_) if text.contains('/') => Ok(Self::Path(text.into())),
            Err(_) => Err(format!(
                "{text} is not an address: write an address with a port, or a path with a slash"
            )),
        }
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

enum Door {
    Path(Listener),
    Tcp(TcpListener),
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Path(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// An HTTP server with one page. Dropping it closes its socket.
pub struct MetricsServer {
    address: MetricsAddress,
    _service: Service,
}

impl MetricsServer {
    /// Starts to listen at an address. `more` returns metrics that the target does not know, in the
    /// same format; they follow the target's own.
    ///
    /// # Errors
    /// The error of binding the socket or of starting the thread.
    pub fn start(
        address: &MetricsAddress,
        target: &Arc<Target>,
        more: impl Fn() -> String + Send + 'static,
    ) -> Result<Self> {
        let failed = |cause| Error::os(cause, format!("{address}: listening"));
        let (door, address) = match address {
            MetricsAddress::Path(path) => {
                let listener = Listener::bind(path)?;
                let path = listener.path().to_owned();
                (Door::Path(listener), MetricsAddress::Path(path))
            }
            MetricsAddress::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?;
                (Door::Tcp(listener), MetricsAddress::Tcp(address))
            }
        };
        let target = Arc::downgrade(target);
        let serve = move |stop: &Stop| run(&door, stop, &target, &more);
        let service = Service::start("qpair-metrics", "a socket for metrics", serve)?;
        Ok(Self { address, _service: service })
    }

    /// Returns the address at which the server listens, with the port that the kernel chose if port
    /// 0 was asked for.
    #[must_use]
    pub fn address(&self) -> &MetricsAddress {
        &self.address
    }
}

fn run(door: &Door, stop: &Stop, target: &Weak<Target>, more: &dyn Fn() -> String) {
    while !stop.is_over() {
        let mut fds = [PollFd::new(door, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        // The server checks for a new client even if the wait fails.
        let _ = rustix::event::poll(&mut fds, None);
        let Some(target) = target.upgrade() else { return };
        // An error means that the client has disconnected.
        let _ = match door {
            Door::Path(listener) => listener.accept().map_or(Ok(()), |stream| {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                answer(stream, &target, more)
            }),
            Door::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                answer(stream, &target, more)
            }),
        };
    }
}

fn answer(
    mut stream: impl Read + Write,
    target: &Target,
    more: &dyn Fn() -> String,
) -> io::Result<()> {
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    let until = Instant::now() + TIMEOUT;
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut part)?;
        if count == 0 || request.len() > REQUEST_BYTES_MAX || Instant::now() > until {
            return Ok(());
        }
        request.extend_from_slice(&part[..count]);
    }
    let (status, kind, body) = match request.starts_with(b"GET ") {
        true => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", text(target) + &more()),
        false => ("405 Method Not Allowed", "text/plain", "only GET is supported\n".to_owned()),
    };
    let len = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
    )?;
    stream.flush()
}
