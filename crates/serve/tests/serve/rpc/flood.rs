//! Clients that never finish a request. A regression: 64 of them occupied the server, and each
//! further connection was reset.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use qpair_serve::{RpcLimits, RpcServer};
use serde_json::Value;

use crate::rig::{Rig, ram};

const HALF: &[u8] = br#"{"jsonrpc": "2.0", "id": 1, "method": "spdk_get"#;
const WHOLE: &[u8] = br#"{"jsonrpc": "2.0", "id": 1, "method": "spdk_get_version"}"#;

/// A client that sends a request at once and reads the answer.
fn ask(server: &RpcServer) -> Value {
    let mut stream = UnixStream::connect(server.path()).unwrap();
    stream.write_all(WHOLE).unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\n") {
        let mut part = [0; 512];
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "the connection was closed");
        bytes.extend_from_slice(&part[..count]);
    }
    serde_json::from_slice(&bytes).unwrap()
}

fn half(server: &RpcServer) -> UnixStream {
    let mut stream = UnixStream::connect(server.path()).unwrap();
    stream.write_all(HALF).unwrap();
    stream
}

#[test]
fn half_requests_keep_nobody_out() {
    let rig = Rig::start(&ram());
    let limits = RpcLimits { clients_max: 64, ..RpcLimits::default() };
    let path = rig.folder.path().join("flood.sock");
    let server = RpcServer::start_with(&path, rig.manager.clone(), limits).unwrap();
    // A client that connected long ago, and is idle.
    let mut idle = UnixStream::connect(server.path()).unwrap();
    idle.write_all(WHOLE).unwrap();
    let mut part = [0; 512];
    assert!(idle.read(&mut part).unwrap() > 0);
    let mut halves: Vec<UnixStream> = (0..200).map(|_| half(&server)).collect();
    for _ in 0..50 {
        assert!(ask(&server)["result"]["version"].is_string());
    }
    // The idle client was not disconnected in favour of new ones.
    idle.write_all(WHOLE).unwrap();
    assert!(idle.read(&mut part).unwrap() > 0);
    let counters = server.counters();
    // All clients that were accepted, except 64 and those that disconnected by themselves.
    let (accepted, timed_out) =
        (counters.accepted.load(Ordering::Relaxed), counters.timed_out.load(Ordering::Relaxed));
    assert_eq!(accepted, 251);
    assert!((137..=200).contains(&timed_out), "{timed_out} of {accepted}");
    // Disconnected clients got the reason.
    let mut said = String::new();
    halves[0].read_to_string(&mut said).unwrap();
    assert!(said.contains("not finished"), "{said}");
}

#[test]
fn half_requests_end_and_have_little_memory() {
    let rig = Rig::start(&ram());
    let timeout = Duration::from_millis(20);
    let limits = RpcLimits { timeout, unfinished_bytes_max: 70 << 10, ..RpcLimits::default() };
    let path = rig.folder.path().join("late.sock");
    let server = RpcServer::start_with(&path, rig.manager.clone(), limits).unwrap();
    let mut late = half(&server);
    let mut said = String::new();
    late.read_to_string(&mut said).unwrap();
    assert!(said.contains("not finished"), "{said}");
    assert_eq!(server.counters().timed_out.load(Ordering::Relaxed), 1);
    // Even without a time-out, the oldest client is disconnected when there are too many bytes.
    let limits = RpcLimits { timeout: Duration::from_secs(3600), ..limits };
    let path = rig.folder.path().join("long.sock");
    let server = RpcServer::start_with(&path, rig.manager.clone(), limits).unwrap();
    let mut all: Vec<UnixStream> = (0..5).map(|_| half(&server)).collect();
    for stream in &mut all {
        stream.write_all(&[b'x'; 16 << 10]).unwrap();
    }
    said.clear();
    all[0].read_to_string(&mut said).unwrap();
    assert!(said.contains("not finished"), "{said}");
    assert!(ask(&server)["result"].is_object());
    assert_eq!(server.counters().timed_out.load(Ordering::Relaxed), 1);
    // A slow client is not late before its time-out.
    all[4].write_all(br#"", "params": null}"#).unwrap();
    let mut part = [0; 512];
    let count = all[4].read(&mut part).unwrap();
    assert!(String::from_utf8_lossy(&part[..count]).contains("Method not found"));
}
