//! Hosts that prove who they are, at our own target over loopback.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{
    Arena, BlockDevice, ChannelOptions, ErrorKind, RamDevice, RamOptions, Request, WaitOptions,
};
use qpair_nvme_auth::{Group, Hash, HostKeys, Policy, Secret};
use qpair_nvme_tcp::wire::{Digests, End, InitReq, Pdu, Receiver, Step, put};
use qpair_nvme_tcp::{HostPort, NvmeTcpDevice, NvmeTcpOptions};
use qpair_nvme_wire::fabrics::{
    ANY_CONTROLLER, AUTHENTICATION_REQUIRED, Connect, ConnectData, Sgl, sgl,
};
use qpair_nvme_wire::{Command, Status};
use qpair_serve::{Disk, Target, TargetOptions};

const NQN: &str = "nqn.2026-11.invalid.example:proved";
const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const OTHER: &str =
    "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

struct Rig {
    device: Arc<dyn BlockDevice>,
    folder: PathBuf,
    target: Option<Target>,
    address: HostPort,
}

impl Drop for Rig {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

impl Rig {
    /// Serves a device to a host that has these keys.
    fn new(name: &str, host: &str, controller: Option<&str>) -> Self {
        let folder = std::env::temp_dir().join(format!("qpair-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (file, key) in [("key", KEY), ("other", OTHER)] {
            std::fs::write(folder.join(file), key).unwrap();
            let owner = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(folder.join(file), owner).unwrap();
        }
        let options = RamOptions { size_bytes: 1 << 20, growable: false, ..RamOptions::default() };
        let device: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(options).unwrap());
        let address = HostPort { host: "127.0.0.1".into(), port: 0 };
        let mut rig = Self { device, folder, target: None, address };
        rig.start(host, controller);
        rig
    }

    fn start(&mut self, host: &str, controller: Option<&str>) {
        self.target = None;
        let target = Target::new(TargetOptions { workers: 2, ..TargetOptions::default() }).unwrap();
        let disk = Disk::new("disk", self.device.clone());
        self.address = target.serve_nvme_tcp(&self.address, NQN, &[disk]).unwrap();
        let keys = HostKeys {
            host: Secret::parse(host).unwrap(),
            controller: controller.map(|text| Secret::parse(text).unwrap()),
        };
        target.set_nvme_tcp_keys(NQN, &NvmeTcpOptions::default().host, Some(keys)).unwrap();
        self.target = Some(target);
    }

    /// Opens the device with the keys in these files.
    fn open(&self, key: &str, controller: &str) -> Result<NvmeTcpDevice, ErrorKind> {
        let path = |file: &str| match file {
            "" => String::new(),
            file => self.folder.join(file).display().to_string(),
        };
        let options = NvmeTcpOptions {
            dhchap_key: path(key),
            dhchap_ctrlr_key: path(controller),
            ..NvmeTcpOptions::default()
        };
        let name = format!("{}/{NQN}", self.address);
        NvmeTcpDevice::open(&name, options).map_err(|error| {
            assert!(!error.to_string().contains("AAEC"), "{error}");
            error.kind()
        })
    }
}

fn write(device: &NvmeTcpDevice, times: usize, mut between: impl FnMut(usize)) {
    let arena = Arena::new(4096, 1, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    let mut done = Vec::new();
    for time in 0..times {
        between(time);
        channel.submit(Request::write(0, 4096, arena.lease().unwrap(), 0)).unwrap();
        let once = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
        channel.wait(&mut done, once);
        done.pop().unwrap().result.unwrap();
    }
}

#[test]
fn keys_decide_who_connects() {
    let rig = Rig::new("auth-keys", KEY, Some(OTHER));
    for hash in Hash::ALL {
        for group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
            let policy = Policy { hashes: vec![hash], groups: vec![group] };
            rig.target.as_ref().unwrap().set_nvme_tcp_policy(policy);
            write(&rig.open("key", "").unwrap(), 2, |_| {});
            write(&rig.open("key", "other").unwrap(), 2, |_| {});
        }
    }
    assert_eq!(rig.open("other", "").unwrap_err(), ErrorKind::Denied);
    assert_eq!(rig.open("", "").unwrap_err(), ErrorKind::Denied);
    assert_eq!(rig.open("key", "key").unwrap_err(), ErrorKind::Denied, "the target's key");
    assert_eq!(rig.open("", "key").unwrap_err(), ErrorKind::Invalid);
    assert_eq!(rig.open("none", "").unwrap_err(), ErrorKind::NotFound);
    write(&rig.open("key", "other").unwrap(), 2, |_| {});
}

#[test]
fn a_target_that_does_not_authenticate_is_refused() {
    let rig = Rig::new("auth-open", KEY, None);
    assert_eq!(rig.open("key", "other").unwrap_err(), ErrorKind::Denied);
    let target = rig.target.as_ref().unwrap();
    target.set_nvme_tcp_keys(NQN, &NvmeTcpOptions::default().host, None).unwrap();
    // An impostor would not ask.
    assert_eq!(rig.open("key", "other").unwrap_err(), ErrorKind::Denied);
    write(&rig.open("key", "").unwrap(), 1, |_| {});
    write(&rig.open("", "").unwrap(), 1, |_| {});
}

#[test]
fn a_host_authenticates_again_when_it_reconnects() {
    let mut rig = Rig::new("auth-again", KEY, Some(OTHER));
    let device = rig.open("key", "other").unwrap();
    write(&device, 6, |time| {
        if time % 2 == 1 {
            rig.start(KEY, Some(OTHER));
        }
    });
    assert!(device.resets() >= 2);
}

/// Sends bytes on a connection, and returns the answers until it ends or is silent.
fn answers(stream: &mut TcpStream, bytes: &[u8], count: usize) -> Vec<(Status, u32)> {
    stream.write_all(bytes).unwrap();
    let mut receiver = Receiver::new(End::Host, 1 << 16);
    let (mut input, mut found) = (Vec::new(), Vec::new());
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

#[test]
fn nothing_is_carried_out_before_the_proof() {
    let rig = Rig::new("auth-raw", KEY, None);
    let plain = Digests::default();
    let data = ConnectData {
        host_id: NvmeTcpOptions::default().host_id,
        controller_id: ANY_CONTROLLER,
        subsystem: NQN.into(),
        host: NvmeTcpOptions::default().host,
    };
    let connect = Connect { last_entry: 31, ..Connect::default() };
    let mut bytes = Vec::new();
    put::init_req(&mut bytes, &InitReq::default());
    put::command(&mut bytes, plain, &connect.command(), ConnectData::BYTES as u32);
    bytes.extend(data.encode());
    let command = |mut command: Command, data: &[u8]| {
        let kind = if data.is_empty() { sgl::TRANSPORT } else { sgl::IN_CAPSULE };
        command.set_sgl(Sgl { address: 0, len_bytes: data.len().max(4096) as u32, kind });
        let mut bytes = Vec::new();
        put::command(&mut bytes, plain, &command, data.len() as u32);
        bytes.extend(data);
        bytes
    };
    let before = [
        command(Command::property_get(0, true), &[]),
        command(Command::property_set(0x14, 0x46_0001), &[]),
        command(Command::identify(1, 0, 0), &[]),
        command(Command::new(0x18, 0), &[]),
        command(Command::new(0x81, 0), &[9; 4096]),
    ];
    let mut stream = TcpStream::connect((rig.address.host.as_str(), rig.address.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let all = [bytes, before.concat()].concat();
    let found = answers(&mut stream, &all, 6);
    assert_eq!(found[0].0, Status::SUCCESS);
    assert!(found[0].1 & AUTHENTICATION_REQUIRED != 0);
    assert_eq!(found.len(), 6);
    assert!(found[1..].iter().all(|it| it.0 == Status::AUTHENTICATION_REQUIRED), "{found:?}");
    drop(stream);
    write(&rig.open("key", "").unwrap(), 1, |_| {});
}
