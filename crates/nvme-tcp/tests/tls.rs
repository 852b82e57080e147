//! TLS by keys that both ends have: hosts at our own target over loopback.
#![cfg(feature = "nvme-tls")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod rig {
    pub(crate) mod keyed;
}

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use qpair_block::{BlockDevice, ErrorKind};
use qpair_conformance::{Options, run};
use qpair_nvme_auth::psk::{InterchangeKey, Version};
use qpair_nvme_auth::{HostKeys, Names, Secret};
use qpair_nvme_tcp::wire::Digests;
use qpair_nvme_tcp::{HostPort, NvmeTcpDevice, NvmeTcpOptions};
use qpair_nvme_wire::Status;
use qpair_nvme_wire::fabrics::DISCOVERY_NQN;
use qpair_serve::{Disk, Target};
use qpair_tls::{Key, KeyHash, PskClient, Session};
use rig::keyed::{LARGE, NQN, PLAIN, PROOF, Rig, SMALL, answers, connect, host, verify};

const OTHER_NQN: &str = "nqn.2026-11.invalid.example:other";
const OTHER_HOST: &str = "nqn.2026-11.invalid.example:host";

fn key(text: &str) -> InterchangeKey {
    InterchangeKey::parse(text).unwrap()
}

/// Serves a disk by TLS to a host that has this key.
fn serve(text: &str) -> impl Fn(&Target, &HostPort, Arc<Disk>) -> HostPort {
    move |target, address, disk| {
        let address = target.serve_nvme_tcp_by_tls(address, NQN, &[disk]).unwrap();
        target.set_nvme_tcp_tls_key(NQN, &host(), Some(key(text))).unwrap();
        address
    }
}

fn options(rig: &Rig, file: &str) -> NvmeTcpOptions {
    NvmeTcpOptions { tls_psk: rig.path(file), ..NvmeTcpOptions::default() }
}

/// Opens the device with the key in this file.
fn open(rig: &Rig, file: &str) -> Result<NvmeTcpDevice, ErrorKind> {
    rig.open(options(rig, file))
}

#[test]
fn keys_decide_who_connects() {
    for (file, text) in [("small", SMALL), ("large", LARGE), ("plain", PLAIN)] {
        let rig = Rig::new(&format!("tls-keys-{file}"), serve(text));
        verify(&open(&rig, file).unwrap(), 4, |_| {});
        for other in ["small", "large", "plain"].iter().filter(|it| **it != file) {
            assert_eq!(open(&rig, other).unwrap_err(), ErrorKind::Denied, "{other} at {file}");
        }
        assert!(open(&rig, "").is_err(), "a host in the open at a portal with TLS");
        assert_eq!(open(&rig, "none").unwrap_err(), ErrorKind::NotFound);
        assert_eq!(open(&rig, "proof").unwrap_err(), ErrorKind::Invalid);
        rig.target().set_nvme_tcp_tls_key(NQN, &host(), None).unwrap();
        assert_eq!(open(&rig, file).unwrap_err(), ErrorKind::Denied);
    }
}

#[test]
fn a_target_without_tls_is_refused() {
    let rig = Rig::new("tls-open", serve(SMALL));
    let address = HostPort { host: "127.0.0.1".into(), port: 0 };
    let disk = Disk::new("other", rig.device.clone());
    let address = rig.target().serve_nvme_tcp(&address, OTHER_NQN, &[disk]).unwrap();
    let name = format!("{address}/{OTHER_NQN}");
    let since = Instant::now();
    let error = NvmeTcpDevice::open(&name, options(&rig, "small")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(since.elapsed() < Duration::from_secs(10));
    NvmeTcpDevice::open(&name, options(&rig, "")).unwrap();
    // Somebody without the key who has this host's name.
    rig.target().set_nvme_tcp_tls_key(OTHER_NQN, &host(), Some(key(SMALL))).unwrap();
    let error = NvmeTcpDevice::open(&name, options(&rig, "")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    // A portal has TLS for all subsystems or for none.
    let disk = Disk::new("third", rig.device.clone());
    let third = "nqn.2026-11.invalid.example:third";
    let error = rig.target().serve_nvme_tcp_by_tls(&address, third, &[disk]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// A target that says nothing at all.
#[test]
fn a_silent_target_takes_no_longer_than_the_time_limit() {
    let rig = Rig::new("tls-silent", serve(SMALL));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("{}/{NQN}", listener.local_addr().unwrap());
    let options = NvmeTcpOptions { timeout: Duration::from_millis(300), ..options(&rig, "small") };
    let since = Instant::now();
    NvmeTcpDevice::open(&name, options).unwrap_err();
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(250) && took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn conforms_by_tls() {
    for bits in [0, 3] {
        let rig = Rig::new(&format!("tls-conforms-{bits}"), serve(LARGE));
        let make = || -> Arc<dyn BlockDevice> {
            let digests = Digests::of(bits);
            let options = NvmeTcpOptions { digests, ..options(&rig, "large") };
            Arc::new(NvmeTcpDevice::open(&rig.name(), options).unwrap())
        };
        run(make, Options { rounds: 40, ..Options::default() }).assert_passed();
        let until = Instant::now() + Duration::from_secs(3);
        while rig.target().nvme_tcp_clients() > 0 {
            assert!(Instant::now() < until, "connections are left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_host_comes_back_by_tls_and_by_its_key_of_authentication() {
    let mut rig = Rig::new("tls-again", serve(SMALL));
    let keys = || HostKeys { host: Secret::parse(PROOF).unwrap(), controller: None };
    rig.target().set_nvme_tcp_keys(NQN, &host(), Some(keys())).unwrap();
    assert_eq!(open(&rig, "small").unwrap_err(), ErrorKind::Denied, "without the second key");
    let dhchap_key = rig.path("proof");
    let options = NvmeTcpOptions { dhchap_key, ..options(&rig, "small") };
    let device = NvmeTcpDevice::open(&rig.name(), options).unwrap();
    verify(&device, 9, |round| {
        if round % 3 == 2 {
            rig.start(serve(SMALL));
            rig.target().set_nvme_tcp_keys(NQN, &host(), Some(keys())).unwrap();
        }
    });
    assert!(device.resets() >= 2);
}

fn of_tls(host: &str, subsystem: &str, version: Version) -> Key {
    let names = Names { host: host.into(), subsystem: subsystem.into() };
    let key = key(SMALL).derive(&names, version).unwrap();
    Key { identity: key.identity.into_bytes(), secret: key.key, hash: KeyHash::Sha256 }
}

/// Connects by the key of one host and subsystem under the names of others. Returns the status.
fn connect_as(rig: &Rig, key: Key, host: &str, subsystem: &str) -> Option<Status> {
    let mut stream = rig.connect();
    let mut session: Session = PskClient::new(&[key]).unwrap().session().unwrap();
    session.handshake(&mut stream).ok()?;
    let mut stream = session.blocking(&mut stream);
    answers(&mut stream, &connect(host, subsystem), 1).first().map(|it| it.0)
}

#[test]
fn a_key_is_good_for_its_host_and_subsystem_alone() {
    let rig = Rig::new("tls-names", serve(SMALL));
    let disk = Disk::new("other", rig.device.clone());
    rig.target().serve_nvme_tcp_by_tls(&rig.address, OTHER_NQN, &[disk]).unwrap();
    let mine = host();
    rig.target().set_nvme_tcp_tls_key(NQN, OTHER_HOST, Some(key(SMALL))).unwrap();
    rig.target().set_nvme_tcp_tls_key(OTHER_NQN, &mine, Some(key(SMALL))).unwrap();
    let right = Some(Status::SUCCESS);
    let wrong = Some(Status::CONNECT_INVALID_HOST);
    for version in [Version::V0, Version::V1] {
        let own = || of_tls(&mine, NQN, version);
        assert_eq!(connect_as(&rig, own(), &mine, NQN), right, "{version:?}");
        assert_eq!(connect_as(&rig, own(), OTHER_HOST, NQN), wrong);
        assert_eq!(connect_as(&rig, own(), &mine, OTHER_NQN), wrong);
        assert_eq!(connect_as(&rig, own(), &mine, DISCOVERY_NQN), wrong);
        let log = || of_tls(&mine, DISCOVERY_NQN, version);
        assert_eq!(connect_as(&rig, log(), &mine, DISCOVERY_NQN), right);
        assert_eq!(connect_as(&rig, log(), &mine, NQN), wrong);
        // An identity that the target does not know.
        assert_eq!(connect_as(&rig, of_tls(OTHER_HOST, OTHER_NQN, version), &mine, NQN), None);
    }
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The first message of a host's handshake.
fn hello(host: &str) -> Vec<u8> {
    let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let client = PskClient::new(&[of_tls(host, NQN, Version::V1)]).unwrap();
    let mut session = client.session().unwrap();
    session.send(&there, &[]).unwrap();
    drop((session, there));
    let mut bytes = Vec::new();
    here.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn handshakes_that_are_none_end_and_cost_little() {
    let rig = Rig::new("tls-stalls", serve(SMALL));
    let hello = hello(&host());
    let garbage: [&[u8]; 5] = [
        &[0; 128],
        b"GET / HTTP/1.1\r\n\r\n",
        &[22, 3, 1, 64, 1, 1, 0, 0, 1, 0],
        &[23, 3, 3, 0, 5, 1, 2, 3, 4, 5],
        &[255; 9000],
    ];
    for bytes in garbage {
        let mut stream = rig.connect();
        // It may be gone before the last byte.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.len() < 100, "{} bytes after {bytes:?}", said.len());
    }
    for at in (0..hello.len()).step_by(7) {
        let mut changed = hello.clone();
        changed[at] ^= 0x41;
        let mut stream = rig.connect();
        let _ = stream.write_all(&changed);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // Many that stop, before and after the first message.
    let before = memory_kib();
    let mut held = Vec::new();
    for count in 0..1000 {
        let mut stream = rig.connect();
        let len = if count % 2 == 0 { hello.len() } else { hello.len() / 2 };
        let _ = stream.write_all(&hello[..len]);
        held.push(stream);
    }
    std::thread::sleep(Duration::from_millis(300));
    let grown = memory_kib().saturating_sub(before);
    assert!(grown < 160 << 10, "{grown} KiB for 1000 handshakes");
    verify(&open(&rig, "small").unwrap(), 4, |_| {});
    // All are ended at the latest after 10 s.
    let until = Instant::now() + Duration::from_secs(13);
    while rig.target().nvme_tcp_clients() > 0 {
        assert!(Instant::now() < until, "{} are left", rig.target().nvme_tcp_clients());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(held);
    println!("1000 handshakes took {grown} KiB");
}

/// Passes connections on, and changes a byte of what goes one way each time that it is told to.
struct Relay {
    address: HostPort,
    changed: Arc<AtomicUsize>,
    is_on: Arc<AtomicBool>,
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    changed: Option<(Arc<AtomicUsize>, Arc<AtomicBool>)>,
) {
    let (mut bytes, mut total) = (vec![0; 64 << 10], 0);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        total += count;
        if let Some((changed, is_on)) = &changed
            && total > 5000
            && is_on.swap(false, Ordering::Relaxed)
        {
            bytes[count / 2] ^= 0x10;
            changed.fetch_add(1, Ordering::Relaxed);
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

impl Relay {
    fn start(to: &HostPort, is_to_target: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (changed, is_on) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (to, shared) = (to.clone(), (changed.clone(), is_on.clone()));
        std::thread::spawn(move || {
            for here in listener.incoming().flatten() {
                let Ok(there) = TcpStream::connect((to.host.as_str(), to.port)) else { continue };
                let (back, forth) = (there.try_clone().unwrap(), here.try_clone().unwrap());
                let (up, down) = match is_to_target {
                    true => (Some(shared.clone()), None),
                    false => (None, Some(shared.clone())),
                };
                std::thread::spawn(move || pass(here, there, up));
                std::thread::spawn(move || pass(back, forth, down));
            }
        });
        Self { address: HostPort { host: "127.0.0.1".into(), port }, changed, is_on }
    }
}

#[test]
fn bytes_that_are_changed_on_the_way_end_the_connection_and_harm_no_data() {
    for is_to_target in [true, false] {
        let rig = Rig::new(&format!("tls-changed-{is_to_target}"), serve(SMALL));
        let relay = Relay::start(&rig.address, is_to_target);
        let name = format!("{}/{NQN}", relay.address);
        let device = NvmeTcpDevice::open(&name, options(&rig, "small")).unwrap();
        verify(&device, 12, |round| {
            relay.is_on.store(round < 10, Ordering::Relaxed);
        });
        let changed = relay.changed.load(Ordering::Relaxed);
        assert!(changed > 0 && device.resets() > 0, "{changed} changed");
    }
}
