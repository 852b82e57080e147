//! TLS by keys that both ends have: both ends together, over sockets.
#![cfg(feature = "psk")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use qpair_tls::{Key, KeyHash, KeySource, PskClient, PskServer, Session};

struct Keys(Vec<Key>);

impl KeySource for Keys {
    fn find(&self, identity: &[u8]) -> Option<Key> {
        self.0.iter().find(|key| key.identity == identity).cloned()
    }
}

fn key(identity: &str, byte: u8, hash: KeyHash) -> Key {
    let len = if hash == KeyHash::Sha256 { 32 } else { 48 };
    Key { identity: identity.into(), secret: vec![byte; len].into(), hash }
}

fn server(keys: &[Key]) -> PskServer {
    PskServer::new(Arc::new(Keys(keys.to_vec()))).unwrap()
}

/// Receives until `count` bytes have come; `None`: the connection has ended.
fn receive(session: &mut Session, socket: &UnixStream, count: usize) -> Option<Vec<u8>> {
    let (mut all, mut bytes) = (Vec::new(), vec![0; 256 << 10]);
    let until = Instant::now() + Duration::from_secs(60);
    while all.len() < count {
        assert!(Instant::now() < until, "nothing comes");
        match session.receive(socket, &mut bytes) {
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Ok(Some(0)) | Err(_) => return None,
            Ok(Some(got)) => all.extend(&bytes[..got]),
        }
    }
    Some(all)
}

fn send_all(session: &mut Session, socket: &UnixStream, bytes: &[u8]) {
    let mut sent = 0;
    while sent < bytes.len() || session.has_output() {
        // Pieces of many sizes, as messages have.
        let middle = (bytes.len() - sent).min(24);
        let pieces = bytes[sent..].split_at(middle);
        let pieces = [IoSlice::new(pieces.0), IoSlice::new(pieces.1)];
        sent += session.send(socket, &pieces).unwrap();
        thread::sleep(Duration::from_micros(50));
    }
}

/// Makes a connection, over which the client sends `bytes` and gets them back. Returns the
/// identity at the server.
fn talk(server: &[Key], client: &[Key], bytes: &[u8]) -> Option<Vec<u8>> {
    let (here, there) = UnixStream::pair().unwrap();
    let (server, len) = (crate::server(server), bytes.len());
    let thread = thread::spawn(move || {
        there.set_nonblocking(true).unwrap();
        let mut session = server.session().unwrap();
        let all = receive(&mut session, &there, len)?;
        send_all(&mut session, &there, &all);
        session.close(&there);
        session.psk_identity().map(<[u8]>::to_vec)
    });
    let mut session = PskClient::new(client).unwrap().session().unwrap();
    let is_open = session.handshake(&mut &here).is_ok();
    if is_open {
        // A part while the socket blocks.
        let first = bytes.len().min(100);
        session.blocking(&mut &here).write_all(&bytes[..first]).unwrap();
        here.set_nonblocking(true).unwrap();
        let mut rest = &bytes[first..];
        let mut back = Vec::<u8>::new();
        let mut room = vec![0; 256 << 10];
        let until = Instant::now() + Duration::from_secs(60);
        while back.len() < bytes.len() && Instant::now() < until {
            let sent = session.send(&here, &[IoSlice::new(rest)]);
            rest = &rest[sent.unwrap_or(rest.len())..];
            match session.receive(&here, &mut room) {
                Ok(None) => thread::sleep(Duration::from_micros(100)),
                Ok(Some(0)) | Err(_) => break,
                Ok(Some(got)) => back.extend(&room[..got]),
            }
        }
        // A client cannot know that the server does not want it until then.
        if back != bytes {
            drop(here);
            assert_eq!(thread.join().unwrap(), None);
            return None;
        }
    } else {
        drop(here);
    }
    thread.join().unwrap()
}

#[test]
fn both_ends_with_a_key_talk() {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    for hash in [KeyHash::Sha256, KeyHash::Sha384] {
        let keys = [key("other", 1, hash), key("host", 2, hash)];
        for len in [1, 100, 20_000, bytes.len()] {
            assert_eq!(talk(&keys, &keys[1..], &bytes[..len]).as_deref(), Some(&b"host"[..]));
        }
    }
}

#[test]
fn a_server_finds_the_one_of_several_keys_that_it_has() {
    let (small, large) = (key("v1", 1, KeyHash::Sha256), key("v0", 2, KeyHash::Sha384));
    let both = [small.clone(), large.clone()];
    for known in [&small, &large] {
        let found = talk(std::slice::from_ref(known), &both, b"hello");
        assert_eq!(found.as_ref(), Some(&known.identity));
    }
    // The same identity twice.
    assert_eq!(talk(&both, &both, b"hello").map(|it| it.len()), Some(2));
}

#[test]
fn nobody_talks_without_the_key() {
    let right = key("host", 1, KeyHash::Sha256);
    assert_eq!(talk(std::slice::from_ref(&right), &[key("host", 2, KeyHash::Sha256)], b"a"), None);
    assert_eq!(talk(std::slice::from_ref(&right), &[key("guest", 1, KeyHash::Sha256)], b"a"), None);
    assert_eq!(talk(std::slice::from_ref(&right), &[key("host", 1, KeyHash::Sha384)], b"a"), None);
    assert_eq!(talk(std::slice::from_ref(&right), &[], b"a"), None);
    assert_eq!(talk(&[], std::slice::from_ref(&right), b"a"), None);
    assert_eq!(talk(&[], &[], b"a"), None);
}

#[test]
fn bytes_that_are_no_tls_end_the_connection() {
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0, 128, 0, 128, 0, 0, 0], &[22, 3, 1, 255, 255, 1]]
    {
        let (mut here, there) = UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        here.write_all(garbage).unwrap();
        here.shutdown(std::net::Shutdown::Write).unwrap();
        let mut session = server(&[key("host", 1, KeyHash::Sha256)]).session().unwrap();
        assert_eq!(receive(&mut session, &there, 1), None);
        drop(there);
        let mut said = Vec::new();
        here.read_to_end(&mut said).unwrap_or_default();
    }
}

#[test]
fn a_record_that_was_changed_ends_the_connection() {
    let keys = [key("host", 1, KeyHash::Sha256)];
    let (here, relay_here) = UnixStream::pair().unwrap();
    let (relay_there, there) = UnixStream::pair().unwrap();
    // Passes everything on, and changes a bit of what comes after the handshake.
    let relay = thread::spawn(move || {
        let (mut back_from, mut back_to) =
            (relay_there.try_clone().unwrap(), relay_here.try_clone().unwrap());
        let back = thread::spawn(move || {
            let _ = std::io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(std::net::Shutdown::Both);
        });
        let (mut from, mut to, mut bytes) = (relay_here, relay_there, vec![0; 64 << 10]);
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if count > 5000 {
                bytes[4000] ^= 1;
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = back.join();
    });
    let server = server(&keys);
    let thread = thread::spawn(move || {
        there.set_nonblocking(true).unwrap();
        let mut session = server.session().unwrap();
        receive(&mut session, &there, 1)
    });
    let mut session = PskClient::new(&keys).unwrap().session().unwrap();
    session.handshake(&mut &here).unwrap();
    session.blocking(&mut &here).write_all(&[7; 8000]).unwrap();
    assert_eq!(thread.join().unwrap(), None);
    drop(here);
    relay.join().unwrap();
}

#[test]
fn no_output_has_a_secret() {
    let key = key("host", 0xAB, KeyHash::Sha256);
    let said = format!("{key:?} {:?}", PskClient::new(std::slice::from_ref(&key)).unwrap());
    assert!(
        said.contains("host") && !said.contains("171") && !said.to_lowercase().contains("ab, ab")
    );
}
