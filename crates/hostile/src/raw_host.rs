//! A host of NVMe/TCP that sends arbitrary PDUs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use fastrand::Rng;
use qpair_nvme_tcp::HostPort;
use qpair_nvme_tcp::wire::{Digests, End, InitReq, Pdu, Receiver, Step, crc32c, put};
use qpair_nvme_wire::Command;
use qpair_nvme_wire::command::feature;
use qpair_nvme_wire::fabrics::{ANY_CONTROLLER, Connect, ConnectData, NO_FLOW_CONTROL, Sgl, sgl};
use qpair_nvme_wire::registers::{CC, CC_RUN};

/// The subsystem that hostile hosts change, and the one of the well-behaved host.
pub(super) const ATTACKED: &str = "nqn.2026-11.invalid.example:attacked";
pub(super) const QUIET: &str = "nqn.2026-11.invalid.example:quiet";
/// The name of hostile hosts.
pub(super) const HOST: &str = "nqn.2026-11.invalid.example:hostile";

pub(super) struct RawHost {
    pub(super) stream: TcpStream,
    pub(super) digests: Digests,
    receiver: Receiver,
    input: Vec<u8>,
}

/// The connections of an attack that stay open after it.
pub(super) type Kept = Result<Vec<RawHost>, String>;

/// The names that a hostile host gives to Connect.
#[derive(Clone)]
pub(super) struct Names {
    pub(super) subsystem: String,
    pub(super) host_id: [u8; 16],
}

impl Names {
    pub(super) fn data(&self, controller_id: u16) -> ConnectData {
        ConnectData {
            host_id: self.host_id,
            controller_id,
            subsystem: self.subsystem.clone(),
            host: HOST.into(),
        }
    }
}

/// Returns random bytes, fewer than `most`.
pub(super) fn bytes(random: &mut Rng, most: usize) -> Vec<u8> {
    (0..random.usize(1..most)).map(|_| random.u8(..)).collect()
}

/// Names data of a command that R2T or C2HData moves.
pub(super) fn moved(mut command: Command, len_bytes: u32) -> Command {
    command.set_sgl(Sgl { address: 0, len_bytes, kind: sgl::TRANSPORT });
    command
}

impl RawHost {
    pub(super) fn open(address: &HostPort) -> Result<Self, String> {
        let stream = TcpStream::connect((address.host.as_str(), address.port))
            .map_err(|error| format!("connecting to the NVMe/TCP target: {error}"))?;
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(Duration::from_millis(500)));
        let _ = stream.set_write_timeout(Some(Duration::from_millis(20)));
        // Closed connections would occupy all ports after some crowds.
        let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        let receiver = Receiver::new(End::Host, 1 << 20);
        Ok(Self { stream, digests: Digests::default(), receiver, input: Vec::new() })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Option<()> {
        self.stream.write_all(bytes).ok()
    }

    /// Agrees on digests.
    pub(super) fn greet(&mut self, digests: Digests) -> Option<()> {
        let mut output = Vec::new();
        put::init_req(&mut output, &InitReq { digests, ..InitReq::default() });
        self.send(&output)?;
        let Pdu::InitResp(answer) = self.next()? else { return None };
        self.digests = answer.digests;
        self.receiver.initialize(answer.digests);
        Some(())
    }

    /// Sends a command, with data in its capsule.
    pub(super) fn command(&mut self, command: &Command, data: &[u8]) -> Option<()> {
        let mut output = Vec::new();
        put::command(&mut output, self.digests, command, data.len() as u32);
        self.put_data(&mut output, data);
        self.send(&output)
    }

    pub(super) fn put_data(&self, output: &mut Vec<u8>, data: &[u8]) {
        output.extend(data);
        if self.digests.data && !data.is_empty() {
            output.extend(crc32c(data).to_le_bytes());
        }
    }

    /// Connects a queue of 128 entries. Returns the number of its controller.
    pub(super) fn join(
        &mut self,
        (queue, keep_alive_ms): (u16, u32),
        data: &ConnectData,
    ) -> Option<u16> {
        let flags = NO_FLOW_CONTROL;
        let connect = Connect { format: 0, queue, last_entry: 127, flags, keep_alive_ms };
        self.command(&connect.command(), &data.encode())?;
        match self.next()? {
            Pdu::Response(it, _) if it.status.is_success() => Some(it.result as u16),
            _ => None,
        }
    }

    /// Waits for the next PDU, and skips data.
    pub(super) fn next(&mut self) -> Option<Pdu> {
        let mut bytes = [0; 16 << 10];
        loop {
            let mut rest = &self.input[..];
            let step = self.receiver.next(&mut rest).ok()?;
            let pdu = match step {
                Step::Pdu(pdu) => Some(pdu),
                _ => None,
            };
            let is_short = step == Step::Incomplete;
            let taken = self.input.len() - rest.len();
            self.input.drain(..taken);
            if pdu.is_some() {
                return pdu;
            }
            if is_short {
                let count = self.stream.read(&mut bytes).ok().filter(|count| *count > 0)?;
                self.input.extend(&bytes[..count]);
            }
        }
    }
}

/// An admin queue of an enabled controller.
pub(super) fn admin(
    address: &HostPort,
    digests: Digests,
    names: &Names,
    keep_alive_ms: u32,
) -> Result<Option<(RawHost, u16)>, String> {
    let mut host = RawHost::open(address)?;
    let begin = |host: &mut RawHost| {
        host.greet(digests)?;
        let controller = host.join((0, keep_alive_ms), &names.data(ANY_CONTROLLER))?;
        host.command(&Command::property_set(CC, CC_RUN), &[])?;
        host.next()?;
        host.command(
            &moved(Command::set_features(feature::NUMBER_OF_QUEUES, 3 | 3 << 16), 0),
            &[],
        )?;
        host.next()?;
        Some(controller)
    };
    Ok(begin(&mut host).map(|controller| (host, controller)))
}

/// An I/O queue of a controller.
pub(super) fn queue(
    address: &HostPort,
    digests: Digests,
    names: &Names,
    (controller, number): (u16, u16),
) -> Result<Option<RawHost>, String> {
    let mut host = RawHost::open(address)?;
    let begin = |host: &mut RawHost| {
        host.greet(digests)?;
        host.join((number, 0), &names.data(controller))
    };
    Ok(begin(&mut host).map(|_| host))
}
