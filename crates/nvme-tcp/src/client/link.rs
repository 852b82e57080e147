//! A connection that waits: for admin queues, and for the handshake of I/O queues.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use qpair_block::{Error, ErrorKind, Result};
use qpair_nvme_wire::fabrics::{Connect, ConnectData, NO_FLOW_CONTROL};
use qpair_nvme_wire::{Command, Completion, Status};
use qpair_socket::client::Wire;
use qpair_tls::{PskClient, Session};

use super::tls::{Timed, start};
use crate::address::HostPort;
use crate::wire::{Digests, End, InitReq, Pdu, Receiver, Step, crc32c, put};

/// The most data that a target may send for an admin command, bytes.
const DATA_BYTES_MAX: u32 = 64 << 10;
/// The most PDUs that are taken while one is waited for.
const PDUS_MAX: u32 = 1024;
/// The number of the command under way. Requests for events have others.
const CID: u16 = 1;
const EVENT_CID: u16 = 2;

/// The answer to a command.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) result: u64,
    pub(super) data: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    tls: Option<Box<Session>>,
    receiver: Receiver,
    input: Vec<u8>,
    /// The time limit of an answer, and the time by which the next one must have come as a whole.
    timeout: Duration,
    until: Instant,
    /// The most data of a PDU to the target, bytes.
    pub(super) data_bytes_max: u32,
    /// The result of a request for an event that was answered.
    pub(super) event: Option<u32>,
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn without_tls(address: &HostPort, cause: io::Error) -> Error {
    let context = format!("{address}: TLS with an NVMe/TCP target failed: {cause}");
    let is_refused = |kind| {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, InvalidData, UnexpectedEof};
        [BrokenPipe, ConnectionReset, InvalidData, UnexpectedEof].contains(&kind)
    };
    if is_refused(cause.kind()) {
        let hint = "the target must have TLS there, and the same key for this host";
        return Error::new(ErrorKind::Denied, context).hint(hint);
    }
    Error::os(cause, context)
}

fn open(address: &HostPort, timeout: Duration) -> io::Result<TcpStream> {
    let bare = address.host.trim_start_matches('[').trim_end_matches(']');
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for one in (bare, address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&one, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Link {
    /// Connects, by TLS if the host has a key of it, and agrees on parameters.
    ///
    /// # Errors
    /// The errors of connecting; `Denied` for a target that has no TLS or not this host's key;
    /// `Unsupported` for a target that refuses the parameters.
    pub(super) fn open(
        address: &HostPort,
        digests: Digests,
        timeout: Duration,
        tls: Option<&PskClient>,
    ) -> Result<Self> {
        let failed = |cause: io::Error| {
            let error = Error::os(cause, format!("{address}: connecting to an NVMe/TCP target"));
            error.hint("start the target, or correct the address")
        };
        let stream = open(address, timeout).map_err(failed)?;
        let until = Instant::now() + timeout;
        let tls = match tls.map(|tls| start(tls, &stream, until)).transpose() {
            Ok(tls) => tls,
            Err(cause) => return Err(without_tls(address, cause)),
        };
        let receiver = Receiver::new(End::Host, DATA_BYTES_MAX);
        let mut link = Self {
            stream,
            tls,
            receiver,
            input: Vec::new(),
            timeout,
            until: Instant::now() + timeout,
            data_bytes_max: 4096,
            event: None,
        };
        let mut output = Vec::new();
        put::init_req(&mut output, &InitReq { digests, ..InitReq::default() });
        let answer = link.write(&output).and_then(|()| link.next());
        let answer = match (answer, &link.tls) {
            (Ok(answer), _) => answer,
            // A target without the key may end the connection only now.
            (Err(cause), Some(_)) => return Err(without_tls(address, cause)),
            (Err(cause), None) if cause.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(failed(cause).hint("if the target requires TLS, give tls_psk=FILE"));
            }
            (Err(cause), None) => return Err(failed(cause)),
        };
        match answer {
            Pdu::InitResp(answer) if answer.format == 0 && answer.alignment == 0 => {
                if answer.digests != digests {
                    let context = format!("{address} does not agree to the digests asked for");
                    return Err(Error::new(ErrorKind::Unsupported, context));
                }
                link.data_bytes_max = answer.data_bytes_max;
            }
            _ => {
                let context = format!("{address} does not speak NVMe/TCP as it is known here");
                return Err(Error::new(ErrorKind::Unsupported, context));
            }
        }
        if link.data_bytes_max < 4096 || !link.data_bytes_max.is_multiple_of(4) {
            let context = format!("{address} takes data of {} bytes", link.data_bytes_max);
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        link.receiver.initialize(digests);
        Ok(link)
    }

    /// Makes the connection a queue of `entries` entries. Returns the answer: the controller's
    /// number, and flags.
    pub(super) fn connect(
        &mut self,
        (queue, entries): (u16, u32),
        keep_alive: Duration,
        data: &ConnectData,
    ) -> io::Result<std::result::Result<u32, (Status, u32)>> {
        let connect = Connect {
            format: 0,
            queue,
            last_entry: (entries - 1) as u16,
            flags: NO_FLOW_CONTROL,
            keep_alive_ms: u32::try_from(keep_alive.as_millis()).unwrap_or(u32::MAX),
        };
        let answer = self.call(connect.command(), Some(&data.encode()))?;
        Ok(match answer.status {
            Status::SUCCESS => Ok(answer.result as u32),
            status => Err((status, answer.result as u32)),
        })
    }

    /// Sends a command, with data in its capsule, and waits for the answer.
    ///
    /// # Errors
    /// The errors of the connection, or of a target that breaks the protocol.
    pub(super) fn call(&mut self, mut command: Command, data: Option<&[u8]>) -> io::Result<Answer> {
        command.set_cid(CID);
        self.until = Instant::now() + self.timeout;
        self.send(&command, data.unwrap_or_default())?;
        let mut answer = Answer { status: Status::SUCCESS, result: 0, data: Vec::new() };
        loop {
            match self.next()? {
                Pdu::C2hData(data) if data.cid == CID && data.tag == 0 => {
                    if data.offset as usize != answer.data.len() {
                        return Err(broken("the target sent data out of order"));
                    }
                    answer.data.extend(self.data()?);
                    if answer.data.len() > DATA_BYTES_MAX as usize {
                        return Err(broken("the target sent too much data"));
                    }
                    if data.is_last && data.is_success {
                        return Ok(answer);
                    }
                }
                Pdu::Response(Completion { cid: CID, status, result, .. }, high) => {
                    (answer.status, answer.result) =
                        (status, u64::from(result) | u64::from(high) << 32);
                    return Ok(answer);
                }
                Pdu::Response(Completion { cid: EVENT_CID, status, result, .. }, _) => {
                    self.event = (status == Status::SUCCESS).then_some(result);
                }
                Pdu::Term(_) => return Err(broken("the target has ended the connection")),
                _ => return Err(broken("the target answered no command")),
            }
        }
    }

    /// Asks for an event.
    pub(super) fn ask_for_event(&mut self) -> io::Result<()> {
        let mut command = Command::new(qpair_nvme_wire::command::admin::ASYNC_EVENT_REQUEST, 0);
        command.set_sgl(qpair_nvme_wire::fabrics::Sgl {
            kind: qpair_nvme_wire::fabrics::sgl::TRANSPORT,
            ..Default::default()
        });
        command.set_cid(EVENT_CID);
        self.event = None;
        self.send(&command, &[])
    }

    fn send(&mut self, command: &Command, data: &[u8]) -> io::Result<()> {
        let (digests, mut output) = (self.receiver.digests(), Vec::new());
        put::command(&mut output, digests, command, data.len() as u32);
        output.extend(data);
        if digests.data && !data.is_empty() {
            output.extend(crc32c(data).to_le_bytes());
        }
        self.write(&output)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(session) => session.blocking(&mut &self.stream).write_all(bytes),
            None => self.stream.write_all(bytes),
        }
    }

    /// Waits for the next PDU.
    fn next(&mut self) -> io::Result<Pdu> {
        for _ in 0..PDUS_MAX {
            match self.step()? {
                Some(Ok(pdu)) => return Ok(pdu),
                Some(Err(_)) => {}
                None => self.read()?,
            }
        }
        Err(broken("the target does not answer"))
    }

    /// Waits for all data of the last PDU.
    fn data(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            match self.step()? {
                Some(Err(Some(data))) => all.extend(data),
                Some(Err(None)) => return Ok(all),
                Some(Ok(_)) => return Err(broken("the target sent no data")),
                None => self.read()?,
            }
        }
    }

    /// Takes a PDU, data, or the end of data from what was read; `None` if more must be read.
    fn step(&mut self) -> io::Result<Option<std::result::Result<Pdu, Option<Vec<u8>>>>> {
        let mut rest = &self.input[..];
        let step = match self.receiver.next(&mut rest).map_err(|fault| broken(fault.why))? {
            Step::Incomplete => return Ok(None),
            Step::Pdu(pdu) => Ok(pdu),
            Step::Data(data) => Err(Some(data.to_vec())),
            Step::DataEnd(true) => Err(None),
            Step::DataEnd(false) => return Err(broken("the digest of data is wrong")),
        };
        let taken = self.input.len() - rest.len();
        self.input.drain(..taken);
        Ok(Some(step))
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 8192];
        let mut stream = Timed { stream: &self.stream, until: self.until };
        let count = match &mut self.tls {
            Some(session) => session.blocking(&mut stream).read(&mut bytes)?,
            None => stream.read(&mut bytes)?,
        };
        match count {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.input.extend(&bytes[..count]);
                Ok(())
            }
        }
    }

    /// Returns the connection, which does not block any more.
    pub(super) fn into_wire(self) -> io::Result<Wire> {
        if !self.input.is_empty() {
            return Err(broken("the target sent more than was asked for"));
        }
        self.stream.set_nonblocking(true)?;
        Ok(Wire { socket: self.stream.into(), tls: self.tls })
    }
}
