//! Commands and their answers.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use qpair_block::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use tracing::warn;

use super::{ClientOptions, errors};
use crate::codec::{Command, Header, RegionAccess};
use crate::{Incoming, Message};
use qpair_socket::{MESSAGE_FDS_MAX, Received, send};

/// The maximum number of bytes after the header of an answer: this client asks for nothing longer.
const PAYLOAD_BYTES_MAX: usize = (64 << 10) + RegionAccess::BYTES;

/// The interval at which the timeout policy is asked.
const SLICE: Duration = Duration::from_millis(50);

pub(super) struct Connection {
    /// The socket; `None` once closed.
    stream: Option<UnixStream>,
    name: String,
    options: ClientOptions,
    incoming: Incoming,
    next_id: u16,
    /// Whether commands were sent that want no reply.
    has_posted: bool,
    /// Whether the connection was closed because the device truncated shared memory.
    is_cut_short: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, name: String, options: &ClientOptions) -> Self {
        let incoming = Incoming::new(PAYLOAD_BYTES_MAX, MESSAGE_FDS_MAX);
        let options = options.clone();
        Self {
            stream: Some(stream),
            name,
            options,
            incoming,
            next_id: 0,
            has_posted: false,
            is_cut_short: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn call(
        &mut self,
        command: Command,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Message> {
        self.exchange(command, payload, fds).map_err(|end| match end {
            End::Refused(errno) => errors::refused(&self.name, command, errno),
            other => self.close(command, other),
        })
    }

    /// Sends a command and waits for no reply.
    pub(super) fn post(&mut self, command: Command, payload: &[u8]) -> Result<()> {
        let posted = match &self.stream {
            None => Err(End::Before),
            Some(stream) => {
                let turn = Turn { name: &self.name, options: &self.options, start: Instant::now() };
                self.next_id = self.next_id.wrapping_add(1);
                self.has_posted = true;
                let header = Header::command(self.next_id, command, payload.len()).posted();
                send_all(stream, &header.message(payload), &[], &turn)
            }
        };
        posted.map_err(|end| self.close(command, end))
    }

    /// Closes the connection, because the device cut short memory that is shared with it.
    pub(super) fn cut_short(&mut self) -> Error {
        warn!(name: "lost", device = self.name, "the device cut short memory that is shared with it");
        self.stream = None;
        self.is_cut_short = true;
        errors::cut_short(&self.name)
    }

    /// Makes the first call, with an error of its own for a peer that speaks another protocol.
    pub(super) fn greet(&mut self, payload: &[u8]) -> Result<Message> {
        let command = Command::Version;
        self.exchange(command, payload, &[]).map_err(|end| match end {
            End::Refused(errno) => errors::refused(&self.name, command, errno),
            End::Wrong(why) => {
                self.stream = None;
                errors::not_vfio_user(&self.name, &why)
            }
            End::Closed => {
                self.stream = None;
                errors::not_vfio_user(&self.name, "it closed the connection instead of a greeting")
            }
            other => self.close(command, other),
        })
    }

    fn close(&mut self, command: Command, end: End) -> Error {
        let is_first = !matches!(end, End::Before);
        if is_first {
            self.stream = None;
        }
        let error = match end {
            End::Closed => errors::closed(&self.name, command),
            End::TooSlow => errors::too_slow(&self.name, command, self.options.timeout),
            End::Stopped => errors::stopped(&self.name, command),
            End::Before if self.is_cut_short => errors::cut_short(&self.name),
            End::Before => errors::gone(&self.name),
            End::Refused(errno) => errors::refused(&self.name, command, errno),
            End::Wrong(why) => errors::nonsense(&self.name, command).caused_by(why),
        };
        if is_first {
            warn!(name: "lost", device = self.name, ?command, %error, "the connection is closed");
        }
        error
    }

    fn exchange(
        &mut self,
        command: Command,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> std::result::Result<Message, End> {
        let Some(stream) = &self.stream else { return Err(End::Before) };
        let turn = Turn { name: &self.name, options: &self.options, start: Instant::now() };
        self.next_id = self.next_id.wrapping_add(1);
        let header = Header::command(self.next_id, command, payload.len());
        send_all(stream, &header.message(payload), fds, &turn)?;
        loop {
            match self.incoming.poll(stream).map_err(|error| End::Wrong(error.to_string()))? {
                Received::NotYet => wait(stream, PollFlags::IN, &turn)?,
                Received::Closed(_) => return Err(End::Closed),
                Received::Message(message) if !message.header.is_reply() => {
                    refuse(stream, &message, &turn)?;
                }
                Received::Message(message) => {
                    let reply = message.header;
                    // Some servers answer even commands that want no reply.
                    let was_posted = reply.command == Command::RegionWrite as u16;
                    if self.has_posted && was_posted && reply.id != header.id {
                        continue;
                    }
                    if (reply.id, reply.command) != (header.id, header.command) {
                        return Err(End::Wrong("it answers what was not asked".to_owned()));
                    }
                    if reply.is_error() {
                        return Err(End::Refused(reply.errno));
                    }
                    return Ok(message);
                }
            }
        }
    }
}

struct Turn<'a> {
    name: &'a str,
    options: &'a ClientOptions,
    start: Instant,
}

/// The reason why a call has no successful answer.
enum End {
    Refused(u32),
    Closed,
    TooSlow,
    /// The timeout policy ended the wait.
    Stopped,
    Wrong(String),
    /// The connection was closed before the call.
    Before,
}

fn send_all(
    stream: &UnixStream,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    turn: &Turn<'_>,
) -> std::result::Result<(), End> {
    let mut sent_bytes = 0;
    while sent_bytes < bytes.len() {
        let fds = if sent_bytes == 0 { fds } else { &[] };
        match send(stream, &bytes[sent_bytes..], fds) {
            Ok(bytes) => sent_bytes += bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => wait(stream, PollFlags::OUT, turn)?,
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                    return Err(End::Closed);
                }
                _ => return Err(End::Wrong(error.to_string())),
            },
        }
    }
    Ok(())
}

/// Refuses a command of the device: memory can be accessed only by mapping it.
fn refuse(stream: &UnixStream, message: &Message, turn: &Turn<'_>) -> std::result::Result<(), End> {
    if message.header.wants_no_reply() {
        return Ok(());
    }
    let errno = rustix::io::Errno::OPNOTSUPP.raw_os_error() as u32;
    send_all(stream, &message.header.error(errno).message(&[]), &[], turn)
}

fn wait(stream: &UnixStream, events: PollFlags, turn: &Turn<'_>) -> std::result::Result<(), End> {
    let at_most = turn.options.timeout;
    let left = at_most.saturating_sub(turn.start.elapsed());
    if left.is_zero() {
        return Err(End::TooSlow);
    }
    if turn.options.timeout_policy.is_over(turn.name, "to answer", turn.start, at_most) {
        return Err(End::Stopped);
    }
    let slice = left.min(SLICE);
    let slice = Timespec { tv_sec: slice.as_secs() as _, tv_nsec: slice.subsec_nanos().into() };
    // Whatever the result, the next attempt notices it.
    let _ = rustix::event::poll(&mut [PollFd::new(stream, events)], Some(&slice));
    Ok(())
}
