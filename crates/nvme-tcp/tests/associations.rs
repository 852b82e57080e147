//! Associations of hosts with our own target, over loopback, PDU by PDU.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod rig;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    Arena, BlockDevice, ChannelOptions, DelayDevice, DelayOptions, IoChannel, RamDevice,
    RamOptions, Request, WaitOptions,
};
use qpair_nvme_tcp::HostPort;
use qpair_nvme_tcp::wire::{
    DataPdu, Digests, End, InitReq, Pdu, R2t, Receiver, Step, crc32c, fes, put,
};
use qpair_nvme_wire::command::{feature, io};
use qpair_nvme_wire::fabrics::{ANY_CONTROLLER, Connect, ConnectData, NO_FLOW_CONTROL, Sgl, sgl};
use qpair_nvme_wire::registers::{CC, CC_RUN};
use qpair_nvme_wire::{Command, Completion, Status};
use qpair_serve::{Disk, Target};
use rig::target;

const NQN: &str = "nqn.2026-11.invalid.example:test";
const OTHER: &str = "nqn.2026-11.invalid.example:other";

fn ram() -> Arc<dyn BlockDevice> {
    let options = RamOptions { size_bytes: 4 << 20, growable: false, ..RamOptions::default() };
    Arc::new(RamDevice::new(options).unwrap())
}

fn serve(device: Arc<dyn BlockDevice>) -> (Target, HostPort) {
    let target = target();
    let address = HostPort { host: "127.0.0.1".into(), port: 0 };
    let disk = Disk::new("disk", device);
    let address = target.serve_nvme_tcp(&address, NQN, &[disk]).unwrap();
    (target, address)
}

/// A connection of a host that sends what a test wants.
struct Raw {
    stream: TcpStream,
    receiver: Receiver,
    input: Vec<u8>,
    data: Vec<u8>,
}

impl Raw {
    fn open(address: &HostPort) -> Self {
        Self::open_with(address, Digests::default())
    }

    fn open_with(address: &HostPort, digests: Digests) -> Self {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let receiver = Receiver::new(End::Host, 1 << 20);
        let mut raw = Self { stream, receiver, input: Vec::new(), data: Vec::new() };
        let mut output = Vec::new();
        put::init_req(&mut output, &InitReq { digests, ..InitReq::default() });
        raw.stream.write_all(&output).unwrap();
        assert!(matches!(raw.next(), Some(Pdu::InitResp(_))));
        raw.receiver.initialize(digests);
        raw
    }

    fn send(&mut self, command: &Command, data: &[u8]) {
        let (mut output, digests) = (Vec::new(), self.receiver.digests());
        put::command(&mut output, digests, command, data.len() as u32);
        output.extend(data);
        if digests.data && !data.is_empty() {
            output.extend(crc32c(data).to_le_bytes());
        }
        self.stream.write_all(&output).unwrap();
    }

    /// Returns the next PDU, whose data is in `data`; `None` at the connection's end.
    fn next(&mut self) -> Option<Pdu> {
        let mut found = None;
        self.data.clear();
        loop {
            let mut rest = &self.input[..];
            let (mut is_short, mut is_end) = (false, false);
            match self.receiver.next(&mut rest).unwrap() {
                Step::Incomplete => is_short = true,
                Step::Pdu(pdu @ Pdu::C2hData(_)) => found = Some(pdu),
                Step::Pdu(pdu) => {
                    (found, is_end) = (Some(pdu), true);
                }
                Step::Data(data) => self.data.extend(data),
                Step::DataEnd(_) => is_end = true,
            }
            let taken = self.input.len() - rest.len();
            self.input.drain(..taken);
            if is_end {
                return found;
            }
            if is_short {
                let mut bytes = [0; 4096];
                match self.stream.read(&mut bytes) {
                    Ok(0) => return None,
                    Ok(count) => self.input.extend(&bytes[..count]),
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                        return None;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn response(&mut self) -> Completion {
        match self.next() {
            Some(Pdu::Response(completion, _)) => completion,
            other => panic!("{other:?}"),
        }
    }

    fn call(&mut self, command: &Command) -> Completion {
        self.send(command, &[]);
        self.response()
    }

    fn connect(&mut self, entry: &Connect, data: &ConnectData) -> Completion {
        self.send(&entry.command(), &data.encode());
        self.response()
    }
}

fn data(controller_id: u16, host: u8) -> ConnectData {
    ConnectData {
        host_id: [host; 16],
        controller_id,
        subsystem: NQN.into(),
        host: format!("nqn.2026-11.invalid.example:host{host}"),
    }
}

fn entry(queue: u16, keep_alive_ms: u32) -> Connect {
    Connect { format: 0, queue, last_entry: 31, flags: NO_FLOW_CONTROL, keep_alive_ms }
}

fn moved(mut command: Command, len_bytes: u32) -> Command {
    command.set_sgl(Sgl { address: 0, len_bytes, kind: sgl::TRANSPORT });
    command
}

/// Makes an enabled controller. Returns its admin queue, and its number.
fn admin(address: &HostPort, host: u8, keep_alive_ms: u32) -> (Raw, u16) {
    let mut raw = Raw::open(address);
    let connected = raw.connect(&entry(0, keep_alive_ms), &data(ANY_CONTROLLER, host));
    assert_eq!(connected.status, Status::SUCCESS);
    assert_eq!(raw.call(&Command::property_set(CC, CC_RUN)).status, Status::SUCCESS);
    let queues = moved(Command::set_features(feature::NUMBER_OF_QUEUES, 3 | 3 << 16), 0);
    assert_eq!(raw.call(&queues).status, Status::SUCCESS);
    (raw, connected.result as u16)
}

/// Makes a controller with one I/O queue.
fn both(address: &HostPort, host: u8, keep_alive_ms: u32) -> (Raw, Raw, u16) {
    let (admin, controller) = admin(address, host, keep_alive_ms);
    let mut queue = Raw::open(address);
    assert_eq!(queue.connect(&entry(1, 0), &data(controller, host)).status, Status::SUCCESS);
    (admin, queue, controller)
}

/// A write with its data in the capsule.
fn write(cid: u16, block: u64, bytes: &[u8]) -> Command {
    let mut command = Command::blocks_of(io::WRITE, 1, block, bytes.len() as u32 / 512);
    command.set_cid(cid);
    let len_bytes = bytes.len() as u32;
    command.set_sgl(Sgl { address: 0, len_bytes, kind: sgl::IN_CAPSULE });
    command
}

/// A write whose data the target asks for.
fn granted(queue: &mut Raw, cid: u16, len: u32) -> R2t {
    let mut command = moved(Command::blocks_of(io::WRITE, 1, 0, len / 512), len);
    command.set_cid(cid);
    queue.send(&command, &[]);
    match queue.next() {
        Some(Pdu::R2t(r2t)) => r2t,
        other => panic!("{other:?}"),
    }
}

/// Returns the first bytes of a device.
fn first_bytes(device: &Arc<dyn BlockDevice>) -> Vec<u8> {
    let arena = Arena::new(4096, 1, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
    let mut channel: Box<dyn IoChannel> = device.open_channel(&options).unwrap();
    channel.submit(Request::read(0, 4096, arena.lease().unwrap(), 0)).unwrap();
    let mut done = Vec::new();
    channel.wait(&mut done, WaitOptions { want: 1, linger: Duration::ZERO, timeout: None });
    done.pop().unwrap().buffer.unwrap().as_slice().to_vec()
}

/// A host that says nothing for its keep alive time-out loses its controller. What it had at the
/// device has ended before the host's next Connect is answered, and what had not come never
/// happens.
#[test]
fn a_silent_host_is_let_go_before_it_comes_again() {
    let device = ram();
    let slow = DelayOptions { write_us: 1_500_000, ..DelayOptions::default() };
    let slow = DelayDevice::new(device.clone(), slow).unwrap();
    let (target, address) = serve(Arc::new(slow));
    let (mut admin, mut queue, controller) = both(&address, 1, 200);
    queue.send(&write(1, 0, &[7; 4096]), &[7; 4096]);
    // Half of the data of this one comes.
    let R2t { cid, tag, .. } = granted(&mut queue, 2, 64 << 10);
    let mut half = Vec::new();
    let pdu = DataPdu { cid, tag, len: 4096, ..DataPdu::default() };
    put::h2c_data(&mut half, Digests::default(), &pdu);
    half.extend([9; 4096]);
    queue.stream.write_all(&half).unwrap();
    // Bytes on the I/O queue are no signs of life.
    assert_eq!(admin.next(), None);
    let mut late = Raw::open(&address);
    let refused = late.connect(&entry(1, 0), &data(controller, 1)).status;
    assert_eq!(refused, Status::CONNECT_INVALID_PARAMETER, "a queue of a lost controller");
    let mut again = Raw::open(&address);
    let connected = again.connect(&entry(0, 0), &data(ANY_CONTROLLER, 1));
    assert_eq!(first_bytes(&device), [7; 4096], "the write ends after its host's next Connect");
    assert_eq!(connected.status, Status::SUCCESS);
    assert_ne!(connected.result as u16, controller);
    assert_eq!(queue.next(), None);
    drop(late);
    for _ in 0..3000 {
        if target.nvme_tcp_clients() == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} connections are left", target.nvme_tcp_clients());
}

/// Without a time-out, hosts may be silent; with one, others are not concerned.
#[test]
fn only_the_silent_host_is_let_go() {
    let (_target, address) = serve(ram());
    let (mut patient, mut queue, _) = both(&address, 1, 0);
    let (mut silent, _) = admin(&address, 2, 100);
    assert_eq!(silent.next(), None);
    let alive = moved(Command::new(qpair_nvme_wire::fabrics::KEEP_ALIVE, 0), 0);
    assert_eq!(patient.call(&alive).status, Status::SUCCESS);
    queue.send(&write(1, 0, &[7; 512]), &[7; 512]);
    assert_eq!(queue.response().status, Status::SUCCESS);
}

/// A change that makes the header of data wrong.
type Change<'c> = &'c dyn Fn(&mut DataPdu);

/// Data outside its transfer ends the connection, whatever is wrong with it (see the traps of
/// other targets: a tag of zero, sums that wrap, offsets out of order).
#[test]
fn data_outside_a_transfer_is_a_fault() {
    let (_target, address) = serve(ram());
    let (_admin, _, controller) = both(&address, 1, 0);
    let changes: [(Change<'_>, u16); 8] = [
        (&|it| it.tag ^= 1, fes::HEADER_FIELD),
        (&|it| it.tag = u16::MAX, fes::HEADER_FIELD),
        (&|it| it.cid ^= 1, fes::HEADER_FIELD),
        (&|it| it.offset = 4096, fes::DATA_RANGE),
        (&|it| it.offset = u32::MAX - 4095, fes::DATA_RANGE),
        (&|it| it.offset = u32::MAX, fes::DATA_RANGE),
        (&|it| it.len = (64 << 10) + 4, fes::DATA_RANGE),
        (&|it| it.len = (256 << 10) + 4, fes::HEADER_FIELD),
    ];
    for (change, expected) in changes {
        let mut queue = Raw::open(&address);
        let connected = queue.connect(&entry(2, 0), &data(controller, 1));
        assert_eq!(connected.status, Status::SUCCESS);
        let R2t { cid, tag, .. } = granted(&mut queue, 5, 64 << 10);
        let mut pdu = DataPdu { cid, tag, len: 4096, ..DataPdu::default() };
        change(&mut pdu);
        let mut output = Vec::new();
        put::h2c_data(&mut output, Digests::default(), &pdu);
        queue.stream.write_all(&output).unwrap();
        match queue.next() {
            Some(Pdu::Term(term)) => assert_eq!(term.status, expected, "{pdu:?}"),
            other => panic!("{pdu:?}: {other:?}"),
        }
    }
}

/// The matters in which Connect is refused.
#[test]
fn connect_is_strict() {
    let (target, address) = serve(ram());
    let (_admin, mut queue, controller) = both(&address, 1, 0);
    let refused = |entry: &Connect, data: &ConnectData| {
        let it = Raw::open(&address).connect(entry, data);
        assert_ne!(it.status, Status::SUCCESS, "{entry:?} {data:?}");
        (it.status, it.result)
    };
    let right = data(controller, 1);
    let parameter = Status::CONNECT_INVALID_PARAMETER;
    let in_data = |at: u32| (parameter, 1 << 16 | at);
    assert_eq!(refused(&entry(1, 0), &data(controller, 2)), in_data(16));
    assert_eq!(refused(&entry(1, 0), &data(controller + 1, 1)), in_data(16));
    assert_eq!(refused(&entry(0, 0), &right), in_data(16));
    let nameless = ConnectData { host: String::new(), ..right.clone() };
    assert_eq!(refused(&entry(1, 0), &nameless), in_data(512));
    let elsewhere = ConnectData { subsystem: OTHER.into(), ..right.clone() };
    assert_eq!(refused(&entry(1, 0), &elsewhere), in_data(256));
    assert_eq!(refused(&Connect { last_entry: 0, ..entry(2, 0) }, &right), (parameter, 44));
    assert_eq!(refused(&Connect { last_entry: 256, ..entry(2, 0) }, &right), (parameter, 44));
    assert_eq!(refused(&entry(9, 0), &right), (parameter, 42));
    let format = Connect { format: 1, ..entry(2, 0) };
    assert_eq!(refused(&format, &right).0, Status::CONNECT_FORMAT);
    // Its data must be in the capsule.
    let elsewhere = moved(entry(2, 0).command(), 1024);
    assert_eq!(Raw::open(&address).call(&elsewhere).status, Status::INVALID_SGL_TYPE);
    let empty = entry(2, 0).command();
    assert_eq!(Raw::open(&address).call(&empty).status, Status::INVALID_SGL_LENGTH);
    // Other commands come too early, and Connect comes once.
    let early = Raw::open(&address).call(&Command::property_get(CC, false)).status;
    assert_eq!(early, Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(queue.connect(&entry(1, 0), &right).status, Status::COMMAND_SEQUENCE_ERROR);
    drop(target);
}

/// A wrong sum of data fails its command and no other, and the device does not get the data.
#[test]
fn a_wrong_digest_of_data_fails_its_command() {
    let device = ram();
    let (_target, address) = serve(device.clone());
    let (_admin, _, controller) = both(&address, 1, 0);
    let mut queue = Raw::open_with(&address, Digests::of(3));
    let connected = queue.connect(&entry(2, 0), &data(controller, 1));
    assert_eq!(connected.status, Status::SUCCESS);
    queue.send(&write(1, 0, &[7; 4096]), &[7; 4096]);
    assert_eq!(queue.response().status, Status::SUCCESS);
    let mut output = Vec::new();
    put::command(&mut output, Digests::of(3), &write(2, 0, &[8; 4096]), 4096);
    output.extend([8; 4096]);
    output.extend([0; 4]);
    queue.stream.write_all(&output).unwrap();
    let failed = queue.response();
    assert_eq!((failed.cid, failed.status), (2, Status::TRANSIENT_TRANSPORT_ERROR));
    assert_eq!(first_bytes(&device), [7; 4096]);
    queue.send(&write(3, 0, &[9; 4096]), &[9; 4096]);
    assert_eq!(queue.response().status, Status::SUCCESS);
    // A wrong sum of a header ends the connection.
    let mut output = Vec::new();
    put::command(&mut output, Digests::of(3), &write(4, 0, &[8; 512]), 512);
    output[74] ^= 1;
    queue.stream.write_all(&output).unwrap();
    assert!(matches!(queue.next(), Some(Pdu::Term(term)) if term.status == fes::HEADER_DIGEST));
}

/// A queue has no more commands than entries, also while their data is missing.
#[test]
fn a_queue_that_is_full_takes_no_command() {
    let (_target, address) = serve(ram());
    let (_admin, mut queue, _) = both(&address, 1, 0);
    for cid in 0..40 {
        let mut command = moved(Command::blocks_of(io::WRITE, 1, 0, 128), 64 << 10);
        command.set_cid(cid);
        let mut output = Vec::new();
        put::command(&mut output, Digests::default(), &command, 0);
        // The target may have ended the connection already.
        let _ = queue.stream.write_all(&output);
    }
    let mut grants = 0;
    loop {
        match queue.next() {
            Some(Pdu::R2t(_)) => grants += 1,
            Some(Pdu::Term(term)) => break assert_eq!(term.status, fes::LIMIT),
            other => panic!("{other:?}"),
        }
    }
    assert!(grants <= 32);
}

/// A host that has sent more than the target reads is still told why its connection ends.
#[test]
fn the_last_message_arrives() {
    let (target, address) = serve(ram());
    for _ in 0..20 {
        let (_admin, mut queue, _) = both(&address, 1, 0);
        let mut output = Vec::new();
        put::h2c_data(&mut output, Digests::default(), &DataPdu { len: 4, ..DataPdu::default() });
        output.resize(1 << 20, 0);
        let _ = queue.stream.write_all(&output);
        assert!(matches!(queue.next(), Some(Pdu::Term(term)) if term.status == fes::HEADER_FIELD));
    }
    for _ in 0..3000 {
        if target.nvme_tcp_clients() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} connections are left", target.nvme_tcp_clients());
}

/// Logs end where they end, and larger data than a transfer is refused before memory is taken.
#[test]
fn logs_and_transfers_have_bounds() {
    let (_target, address) = serve(ram());
    let (mut admin, mut queue, _) = both(&address, 1, 0);
    let log = |page: u32, len: u32, offset: u64| {
        let mut command = moved(Command::new(2, u32::MAX), len);
        command.0[10] = page | (len / 4 - 1) << 16;
        command.0[11] = (len / 4 - 1) >> 16;
        (command.0[12], command.0[13]) = (offset as u32, (offset >> 32) as u32);
        command
    };
    assert_eq!(admin.call(&log(5, 4096, 4096)).status, Status::INVALID_FIELD);
    assert_eq!(admin.call(&log(5, 4096, u64::MAX - 3)).status, Status::INVALID_FIELD);
    assert_eq!(admin.call(&log(5, 4096, 2)).status, Status::INVALID_FIELD);
    assert_eq!(admin.call(&log(5, 1 << 30, 0)).status, Status::INVALID_FIELD);
    assert_eq!(admin.call(&log(0x70, 4096, 0)).status, Status::INVALID_LOG_PAGE);
    admin.send(&log(5, 4096, 4092), &[]);
    assert!(matches!(admin.next(), Some(Pdu::C2hData(DataPdu { len: 4096, .. }))));
    let huge = moved(Command::blocks_of(io::WRITE, 1, 0, 1 << 16), u32::MAX);
    assert_eq!(queue.call(&huge).status, Status::LBA_OUT_OF_RANGE);
    let large = moved(Command::blocks_of(io::WRITE, 1, 0, 1024), 512 << 10);
    assert_eq!(queue.call(&large).status, Status::INVALID_FIELD);
    let lying = moved(Command::blocks_of(io::WRITE, 1, 0, 8), 8192);
    assert_eq!(queue.call(&lying).status, Status::INVALID_SGL_LENGTH);
    let empty = moved(Command::blocks_of(io::READ, 1, 0, 8), 0);
    assert_eq!(queue.call(&empty).status, Status::INVALID_SGL_LENGTH);
    let mut capsule = Command::blocks_of(io::WRITE, 1, 0, 8);
    capsule.set_sgl(Sgl { address: 0, len_bytes: 4096, kind: sgl::IN_CAPSULE });
    assert_eq!(queue.call(&capsule).status, Status::INVALID_SGL_LENGTH, "no data in the capsule");
}
