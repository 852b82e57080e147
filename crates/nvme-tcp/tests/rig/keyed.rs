//! A target that serves a device to hosts which have keys, and the keys in files.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    Arena, BlockDevice, ChannelOptions, ErrorKind, RamDevice, RamOptions, Request, WaitOptions,
};
use qpair_nvme_tcp::wire::{Digests, End, InitReq, Pdu, Receiver, Step, put};
use qpair_nvme_tcp::{HostPort, NvmeTcpDevice, NvmeTcpOptions};
use qpair_nvme_wire::Status;
use qpair_nvme_wire::fabrics::{ANY_CONTROLLER, Connect, ConnectData};
use qpair_serve::{Disk, Target, TargetOptions};

pub(crate) const NQN: &str = "nqn.2026-11.invalid.example:keyed";
/// Keys by which hosts prove who they are.
pub(crate) const PROOF: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
pub(crate) const OTHER_PROOF: &str =
    "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
/// Keys of TLS.
pub(crate) const SMALL: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
pub(crate) const LARGE: &str =
    "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
pub(crate) const PLAIN: &str = "NVMeTLSkey-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
/// The files of the keys.
const FILES: [(&str, &str); 5] = [
    ("proof", PROOF),
    ("other", OTHER_PROOF),
    ("small", SMALL),
    ("large", LARGE),
    ("plain", PLAIN),
];

pub(crate) struct Rig {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) address: HostPort,
    folder: PathBuf,
    target: Option<Target>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

/// Returns the name of this program's host.
pub(crate) fn host() -> String {
    NvmeTcpOptions::default().host
}

impl Rig {
    /// Makes a target, and serves a disk at an address as `serve` does.
    pub(crate) fn new(
        name: &str,
        serve: impl FnOnce(&Target, &HostPort, Arc<Disk>) -> HostPort,
    ) -> Self {
        let folder = std::env::temp_dir().join(format!("qpair-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in FILES {
            std::fs::write(folder.join(file), text).unwrap();
            let owner = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(folder.join(file), owner).unwrap();
        }
        let options = RamOptions { size_bytes: 16 << 20, growable: false, ..RamOptions::default() };
        let device: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(options).unwrap());
        let address = HostPort { host: "127.0.0.1".into(), port: 0 };
        let mut rig = Self { device, address, folder, target: None };
        rig.start(serve);
        rig
    }

    /// Ends the target, and makes another one at its address.
    pub(crate) fn start(&mut self, serve: impl FnOnce(&Target, &HostPort, Arc<Disk>) -> HostPort) {
        self.target = None;
        let target = Target::new(TargetOptions { workers: 2, ..TargetOptions::default() }).unwrap();
        self.address = serve(&target, &self.address, Disk::new("disk", self.device.clone()));
        self.target = Some(target);
    }

    pub(crate) fn target(&self) -> &Target {
        self.target.as_ref().unwrap()
    }

    /// Returns the path of a key's file, or nothing for "".
    pub(crate) fn path(&self, file: &str) -> String {
        match file {
            "" => String::new(),
            file => self.folder.join(file).display().to_string(),
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("{}/{NQN}", self.address)
    }

    pub(crate) fn open(&self, options: NvmeTcpOptions) -> Result<NvmeTcpDevice, ErrorKind> {
        NvmeTcpDevice::open(&self.name(), options).map_err(|error| {
            assert!(!error.to_string().contains("AAEC"), "{error}");
            error.kind()
        })
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((self.address.host.as_str(), self.address.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        stream
    }
}

/// Writes and reads blocks of many sizes, and compares them.
pub(crate) fn verify(device: &NvmeTcpDevice, rounds: usize, mut between: impl FnMut(usize)) {
    const BYTES: usize = 256 << 10;
    let arena = Arena::new(BYTES, 2, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 2, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    let once = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
    let mut done = Vec::new();
    for round in 0..rounds {
        between(round);
        let len = [4096, 16 << 10, 20 << 10, BYTES][round % 4];
        let data: Vec<u8> = (0..len).map(|at| ((at * 31 + round * 7) >> 4) as u8).collect();
        let mut buffer = arena.lease().unwrap();
        buffer.copy_from(0, &data);
        channel.submit(Request::write(0, len as u32, buffer, 0)).unwrap();
        channel.wait(&mut done, once);
        done.pop().unwrap().result.unwrap();
        channel.submit(Request::read(0, len as u32, arena.lease().unwrap(), 0)).unwrap();
        channel.wait(&mut done, once);
        let read = done.pop().unwrap();
        read.result.unwrap();
        assert!(read.buffer.unwrap().as_slice()[..len] == data, "round {round}");
    }
}

/// Returns the messages by which a host connects its admin queue.
pub(crate) fn connect(host: &str, subsystem: &str) -> Vec<u8> {
    let data = ConnectData {
        host_id: [7; 16],
        controller_id: ANY_CONTROLLER,
        subsystem: subsystem.into(),
        host: host.into(),
    };
    let connect = Connect { last_entry: 31, ..Connect::default() };
    let mut bytes = Vec::new();
    put::init_req(&mut bytes, &InitReq::default());
    put::command(&mut bytes, Digests::default(), &connect.command(), ConnectData::BYTES as u32);
    bytes.extend(data.encode());
    bytes
}

/// Sends bytes on a new connection. Returns so many answers, or those until it ends or is silent.
pub(crate) fn answers(
    stream: &mut (impl Read + Write),
    bytes: &[u8],
    count: usize,
) -> Vec<(Status, u32)> {
    let (mut input, mut found) = (Vec::new(), Vec::new());
    if stream.write_all(bytes).is_err() {
        return found;
    }
    let mut receiver = Receiver::new(End::Host, 1 << 16);
    let mut room = [0; 4096];
    while found.len() < count {
        let got = stream.read(&mut room).unwrap_or(0);
        if got == 0 {
            break;
        }
        input.extend(&room[..got]);
        let mut rest = &input[..];
        loop {
            match receiver.next(&mut rest).unwrap() {
                Step::Incomplete => break,
                Step::Pdu(Pdu::InitResp(_)) => receiver.initialize(Digests::default()),
                Step::Pdu(Pdu::Response(it, _)) => found.push((it.status, it.result)),
                _ => {}
            }
        }
        let taken = input.len() - rest.len();
        input.drain(..taken);
    }
    found
}
