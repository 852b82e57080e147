//! The host at our own target, over loopback.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod rig;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qpair_block::{
    Arena, BlockDevice, ChannelOptions, ErrorKind, RamDevice, RamOptions, Request, WaitOptions,
};
use qpair_conformance::{Options, run};
use qpair_nvme_tcp::wire::{DataPdu, Digests, End, InitReq, Pdu, Receiver, Step, fes, put};
use qpair_nvme_tcp::{HostPort, NvmeTcpDevice, NvmeTcpOptions};
use qpair_nvme_wire::Command;
use qpair_serve::{Disk, Target};
use rig::target;

const NQN: &str = "nqn.2026-11.invalid.example:test";

fn ram() -> Arc<dyn BlockDevice> {
    let options = RamOptions { size_bytes: 16 << 20, growable: false, ..RamOptions::default() };
    Arc::new(RamDevice::new(options).unwrap())
}

/// Serves devices at a port; 0 chooses one.
fn serve(port: u16, devices: &[Arc<dyn BlockDevice>]) -> (Target, HostPort) {
    let target = target();
    let disk = |(number, device): (usize, &Arc<dyn BlockDevice>)| {
        Disk::new(&format!("disk{number}"), device.clone())
    };
    let disks: Vec<_> = devices.iter().enumerate().map(disk).collect();
    let address = HostPort { host: "127.0.0.1".into(), port };
    let address = target.serve_nvme_tcp(&address, NQN, &disks).unwrap();
    (target, address)
}

fn options(bits: u8) -> NvmeTcpOptions {
    NvmeTcpOptions { digests: Digests::of(bits), ..NvmeTcpOptions::default() }
}

fn conforms(options: &NvmeTcpOptions) {
    let (target, address) = serve(0, &[ram()]);
    let name = format!("{address}/{NQN}");
    let make = || -> Arc<dyn BlockDevice> {
        Arc::new(NvmeTcpDevice::open(&name, options.clone()).unwrap())
    };
    run(make, Options { rounds: 40, ..Options::default() }).assert_passed();
    for _ in 0..300 {
        if target.nvme_tcp_clients() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} connections are left", target.nvme_tcp_clients());
}

#[test]
fn conforms_polled() {
    conforms(&NvmeTcpOptions { polls: true, ..options(0) });
}

#[test]
fn conforms_without_digests() {
    conforms(&options(0));
}

#[test]
fn conforms_with_digests() {
    conforms(&options(3));
}

/// A build without TLS for NVMe/TCP says so, and does not go on in the open.
#[cfg(not(feature = "nvme-tls"))]
#[test]
fn tls_is_refused_in_a_build_without_it() {
    use qpair_block::Error;
    use std::os::unix::fs::PermissionsExt;
    let is_said = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(format!("{error:?} {error}").contains("nvme-tls"), "{error}");
    };
    let (target, address) = serve(0, &[ram()]);
    let path = std::env::temp_dir().join(format!("qpair-no-tls-{}", std::process::id()));
    let key = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    std::fs::write(&path, key).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let options = NvmeTcpOptions { tls_psk: path.display().to_string(), ..options(0) };
    is_said(NvmeTcpDevice::open(&format!("{address}/{NQN}"), options).unwrap_err());
    std::fs::remove_file(&path).unwrap();
    let address = HostPort { host: "127.0.0.1".into(), port: 0 };
    is_said(
        target.serve_nvme_tcp_by_tls(&address, "nqn.2026-11.invalid.example:tls", &[]).unwrap_err(),
    );
}

#[test]
fn names_find_namespaces() {
    let (_target, address) = serve(0, &[ram(), ram()]);
    let open = |name: String| NvmeTcpDevice::open(&name, options(0)).map_err(|it| it.kind());
    assert_eq!(open(format!("{address}/{NQN}/ns2")).unwrap().size_bytes(), 16 << 20);
    assert_eq!(open(format!("{address}/{NQN}")).unwrap_err(), ErrorKind::Invalid);
    assert_eq!(open(format!("{address}/{NQN}/ns3")).unwrap_err(), ErrorKind::NotFound);
    assert_eq!(open(format!("{address}/{NQN}x")).unwrap_err(), ErrorKind::NotFound);
}

/// Writes and reads blocks while the target is ended and started again.
#[test]
fn a_target_that_restarts_loses_nothing() {
    let device = ram();
    let (target, address) = serve(0, std::slice::from_ref(&device));
    let name = format!("{address}/{NQN}");
    let is_over = Arc::new(AtomicBool::new(false));
    let load = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            const BYTES: u32 = 32 << 10;
            let device = NvmeTcpDevice::open(&name, options(0)).unwrap();
            let arena = Arena::new(BYTES as usize, 8, device.info().arena_options()).unwrap();
            let options = ChannelOptions { depth: 8, arenas: vec![arena.clone()], wake: None };
            let mut channel = device.open_channel(&options).unwrap();
            let (mut round, mut done) = (0u64, Vec::new());
            while !is_over.load(Ordering::Relaxed) || round % 2 == 1 {
                for slot in 0..8 {
                    // Small writes go in the capsule, large ones by R2T.
                    let len = if slot % 2 == 0 { 4096 } else { BYTES };
                    let at = (round / 2 % 32 * 8 + slot) * u64::from(BYTES);
                    let (mut buffer, fill) = (arena.lease().unwrap(), (round / 2 + slot) as u8);
                    let request = if round % 2 == 0 {
                        buffer.copy_from(0, &vec![fill; len as usize]);
                        Request::write(at, len, buffer, fill.into())
                    } else {
                        Request::read(at, len, buffer, u64::from(fill) | u64::from(len) << 8)
                    };
                    channel.submit(request).unwrap();
                }
                let all = WaitOptions { want: 8, linger: Duration::ZERO, timeout: None };
                while done.len() < 8 {
                    channel.wait(&mut done, all);
                }
                for it in done.drain(..) {
                    it.result.unwrap();
                    let (buffer, len) = (it.buffer.unwrap(), (it.tag >> 8) as usize);
                    let is_right = |byte: &u8| u64::from(*byte) == it.tag & 0xFF;
                    assert!(buffer.as_slice()[..len].iter().all(is_right));
                }
                round += 1;
            }
            device.resets()
        }
    });
    let mut target = Some(target);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        drop(target.take());
        std::thread::sleep(Duration::from_millis(100));
        target = Some(serve(address.port, std::slice::from_ref(&device)).0);
    }
    std::thread::sleep(Duration::from_millis(400));
    is_over.store(true, Ordering::Relaxed);
    assert!(load.join().unwrap() >= 3);
}

/// Sends bytes, and returns the last PDU that the target sends before it disconnects.
fn last_answer(address: &HostPort, bytes: &[u8]) -> Option<Pdu> {
    let mut stream = TcpStream::connect((address.host.as_str(), address.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(bytes).unwrap();
    let (mut receiver, mut answers) = (Receiver::new(End::Host, 8192), Vec::new());
    // A reset is as good as an end.
    let _ = stream.read_to_end(&mut answers);
    let (mut rest, mut last) = (&answers[..], None);
    while let Ok(Step::Pdu(pdu)) = receiver.next(&mut rest) {
        if let Pdu::InitResp(answer) = pdu {
            receiver.initialize(answer.digests);
        }
        last = Some(pdu);
    }
    last
}

#[test]
fn hosts_that_break_the_protocol_are_told_why() {
    let (target, address) = serve(0, &[ram()]);
    let told = |bytes: &[u8]| match last_answer(&address, bytes) {
        Some(Pdu::Term(term)) => term.status,
        other => panic!("{other:?}"),
    };
    let plain = Digests::default();
    let mut early = Vec::new();
    put::command(&mut early, plain, &Command::default(), 0);
    assert_eq!(told(&early), fes::SEQUENCE);
    let mut aligned = Vec::new();
    put::init_req(&mut aligned, &InitReq { alignment: 1, ..InitReq::default() });
    assert_eq!(told(&aligned), fes::UNSUPPORTED);
    let mut unexpected = Vec::new();
    put::init_req(&mut unexpected, &InitReq::default());
    put::h2c_data(&mut unexpected, plain, &DataPdu { len: 8, ..DataPdu::default() });
    assert_eq!(told(&[&unexpected[..], &[0; 8]].concat()), fes::SEQUENCE);
    let mut long = Vec::new();
    put::init_req(&mut long, &InitReq::default());
    put::command(&mut long, plain, &Command::default(), 1 << 30);
    assert_eq!(told(&long), fes::HEADER_FIELD);
    assert_eq!(told(&[5; 200]), fes::HEADER_FIELD);
    drop(target);
}

/// Many connections that are in the middle of something disturb no other host, and leave nothing.
#[test]
fn a_crowd_disturbs_nobody() {
    let (target, address) = serve(0, &[ram()]);
    let device = NvmeTcpDevice::open(&format!("{address}/{NQN}"), options(3)).unwrap();
    let arena = Arena::new(4096, 1, device.info().arena_options()).unwrap();
    let channel = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&channel).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let (mut crowd, mut done) = (Vec::new(), Vec::new());
    for number in 0..300u32 {
        let mut bytes = Vec::new();
        put::init_req(&mut bytes, &InitReq { digests: Digests::of(3), ..InitReq::default() });
        if number % 3 == 0 {
            // Noise in place of Connect.
            bytes.extend((0..64).map(|_| random.u8(..)));
        }
        bytes.truncate(random.usize(1..=bytes.len()));
        let mut stream = TcpStream::connect((address.host.as_str(), address.port)).unwrap();
        stream.write_all(&bytes).unwrap();
        crowd.push(stream);
        let (fill, buffer) = (number as u8, arena.lease());
        let mut buffer = buffer.unwrap();
        buffer.copy_from(0, &[fill; 4096]);
        let at = u64::from(number) * 4096;
        let once = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
        channel.submit(Request::write(at, 4096, buffer, 0)).unwrap();
        channel.wait(&mut done, once);
        let it = done.pop().unwrap();
        it.result.unwrap();
        channel.submit(Request::read(at, 4096, it.buffer.unwrap(), 0)).unwrap();
        channel.wait(&mut done, once);
        let it = done.pop().unwrap();
        it.result.unwrap();
        assert!(it.buffer.unwrap().as_slice().iter().all(|byte| *byte == fill));
    }
    drop(crowd);
    for _ in 0..500 {
        if target.nvme_tcp_clients() == 2 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} connections are left", target.nvme_tcp_clients());
}
