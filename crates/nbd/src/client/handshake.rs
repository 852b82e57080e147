//! The client's side of the negotiation, on a blocking stream.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};
use qpair_socket::client::Wire;
use qpair_tls::Session;
use qpair_wire::be;
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::peer::Peer;
use super::tls::Trust;
use crate::Address;
use crate::wire::handshake::{
    GREETING, GREETING_BYTES, OPTION, OPTION_REPLY, OPTION_REPLY_BYTES, answer, info, option,
    put_option, put_text,
};

/// The longest reply to an option that a client reads.
const ANSWER_BYTES_MAX: u32 = 64 << 10;
/// The most replies to one option.
const ANSWERS_MAX: u32 = 64;

/// The properties of an export, as a server tells them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    pub(super) size_bytes: u64,
    pub(super) flags: u16,
    pub(super) block_bytes: u32,
    pub(super) payload_bytes_max: u32,
    pub(super) structured: bool,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Connects to a server and chooses an export.
pub(super) fn connect(peer: &Peer) -> Result<(Wire, Facts)> {
    match &peer.address {
        Address::Unix(path) => choose(connect_unix(path, peer.timeout), peer),
        Address::Tcp(host, port) => choose(connect_tcp(host, *port, peer.timeout), peer),
    }
}

/// Chooses an export on a new connection.
fn choose<S: Read + Write + AsFd + Into<OwnedFd>>(
    connected: io::Result<S>,
    peer: &Peer,
) -> Result<(Wire, Facts)> {
    let Peer { address, export, timeout, .. } = peer;
    let failed = |cause: io::Error| {
        let error = Error::os(cause, format!("{address}: connecting to an NBD server"));
        error.hint("start the server, or correct the address")
    };
    let mut stream = connected.map_err(failed)?;
    for direction in [Timeout::Recv, Timeout::Send] {
        let set = set_socket_timeout(&stream, direction, Some(*timeout));
        set.map_err(|errno| failed(errno.into()))?;
    }
    let found = match &peer.trust {
        None => greet(&mut stream)
            .and_then(|()| exchange(&mut stream, export))
            .map(|facts| (None, facts)),
        Some(trust) => start_tls(&mut stream, trust).and_then(|mut session| {
            let facts = exchange(&mut session.blocking(&mut stream), export)?;
            Ok((Some(Box::new(session)), facts))
        }),
    };
    let (tls, facts) = found.map_err(|refusal| refused(address, export, refusal))?;
    ioctl_fionbio(&stream, true).map_err(|errno| failed(errno.into()))?;
    Ok((Wire { socket: stream.into(), tls }, facts))
}

/// Connects as `UnixStream::connect` does, and waits no longer than `timeout` for a server that
/// accepts no more connections.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn connect_tcp(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (bare, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return stream.set_nodelay(true).map(|()| stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn refused(address: &Address, export: &str, (kind, cause): Refusal) -> Error {
    let context = format!("{address}: negotiating the export '{export}': {cause}");
    let error = Error::new(kind, context);
    match kind {
        ErrorKind::NotFound => error.hint("nbdinfo --list shows the exports of a server"),
        _ => error,
    }
}

type Refusal = (ErrorKind, String);

fn lost(cause: io::Error) -> Refusal {
    (ErrorKind::Gone, cause.to_string())
}

fn wrong(what: &str) -> Refusal {
    (ErrorKind::Unsupported, what.to_owned())
}

/// Reads the server's greeting, and answers it.
fn greet(stream: &mut dyn Stream) -> std::result::Result<(), Refusal> {
    let mut greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut greeting).map_err(lost)?;
    if be::u64_at(&greeting, 0) != GREETING || be::u64_at(&greeting, 8) != OPTION {
        return Err(wrong("the server does not speak the newstyle protocol of NBD"));
    }
    let flags = be::u16_at(&greeting, 16);
    if flags & 1 == 0 {
        return Err(wrong("the server does not speak the fixed newstyle protocol"));
    }
    stream.write_all(&u32::from(flags & 3).to_be_bytes()).map_err(lost)
}

/// Starts TLS. A server without TLS, and one that an attacker lets look like that, is refused.
fn start_tls<S: Read + Write>(
    stream: &mut S,
    trust: &Trust,
) -> std::result::Result<Session, Refusal> {
    greet(stream)?;
    let mut output = Vec::new();
    put_option(&mut output, option::STARTTLS, &[]);
    stream.write_all(&output).map_err(lost)?;
    if answers(stream, option::STARTTLS, |_| {})? != answer::ACK {
        return Err(wrong("the server has no TLS, which tls_ca requires"));
    }
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            (ErrorKind::Denied, cause.to_string())
        }
        _ => (ErrorKind::Gone, format!("the handshake of TLS failed: {cause}")),
    };
    let mut session = trust.client.session(&trust.name).map_err(failed)?;
    session.handshake(stream).map_err(failed)?;
    Ok(session)
}

/// Chooses an export.
fn exchange(stream: &mut dyn Stream, export: &str) -> std::result::Result<Facts, Refusal> {
    let mut facts = Facts { block_bytes: 512, payload_bytes_max: 32 << 20, ..Facts::default() };
    let mut output = Vec::new();
    put_option(&mut output, option::STRUCTURED_REPLY, &[]);
    stream.write_all(&output).map_err(lost)?;
    facts.structured = answers(stream, option::STRUCTURED_REPLY, |_| {})? == answer::ACK;
    let mut data = Vec::new();
    put_text(&mut data, export);
    data.extend(1u16.to_be_bytes());
    data.extend(info::BLOCK_SIZE.to_be_bytes());
    output.clear();
    put_option(&mut output, option::GO, &data);
    stream.write_all(&output).map_err(lost)?;
    let mut is_told = false;
    let end = answers(stream, option::GO, |data| match be::u16_at(data, 0) {
        info::EXPORT if data.len() >= 12 => {
            is_told = true;
            (facts.size_bytes, facts.flags) = (be::u64_at(data, 2), be::u16_at(data, 10));
        }
        info::BLOCK_SIZE if data.len() >= 14 => {
            facts.block_bytes = be::u32_at(data, 2).max(512);
            facts.payload_bytes_max = be::u32_at(data, 10);
        }
        _ => {}
    })?;
    match end {
        answer::ACK if is_told => Ok(facts),
        answer::ACK => Err(wrong("the server did not tell the size of the export")),
        answer::UNKNOWN => {
            Err((ErrorKind::NotFound, "the server has no export of this name".into()))
        }
        answer::TLS_REQUIRED => Err(wrong("the server requires TLS: give tls_ca")),
        answer::POLICY => Err((ErrorKind::Denied, "the server refuses the export".into())),
        other => Err(wrong(&format!("the server answered NBD_OPT_GO with {other:#x}"))),
    }
}

/// Reads the replies to an option, and returns the type of the last.
fn answers(
    stream: &mut dyn Stream,
    number: u32,
    mut inform: impl FnMut(&[u8]),
) -> std::result::Result<u32, Refusal> {
    for _ in 0..ANSWERS_MAX {
        let mut head = [0; OPTION_REPLY_BYTES];
        stream.read_exact(&mut head).map_err(lost)?;
        let len = be::u32_at(&head, 16);
        let is_reply = be::u64_at(&head, 0) == OPTION_REPLY && be::u32_at(&head, 8) == number;
        if !is_reply || len > ANSWER_BYTES_MAX {
            break;
        }
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data).map_err(lost)?;
        match be::u32_at(&head, 12) {
            answer::INFO => inform(&data),
            end => return Ok(end),
        }
    }
    Err((ErrorKind::Io, "the server sent a reply that is not one of NBD".into()))
}
