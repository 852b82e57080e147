//! Sessions over sockets: what one end sends, the other receives, and strangers are refused.

#![cfg(feature = "rustls")]
#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use qpair_tls::{ClientFiles, ServerFiles, Session, TlsClient, TlsServer};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name)
}

fn server(client_ca: Option<&str>) -> TlsServer {
    let (certificate, key) = (file("server.pem"), file("server.key"));
    TlsServer::new(&ServerFiles { certificate, key, client_ca: client_ca.map(file) }).unwrap()
}

fn client(ca: &str, identity: Option<&str>) -> TlsClient {
    let pair = |name: &str| (file(&format!("{name}.pem")), file(&format!("{name}.key")));
    TlsClient::new(&ClientFiles { ca: file(ca), identity: identity.map(pair) }).unwrap()
}

/// Receives as a server that waits by turns, until `count` bytes are there.
fn receive(session: &mut Session, socket: &UnixStream, count: usize) -> io::Result<Vec<u8>> {
    let (mut all, mut room) = (Vec::new(), vec![0; 64 << 10]);
    while all.len() < count {
        match session.receive(socket, &mut room)? {
            None => thread::sleep(Duration::from_millis(1)),
            Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Some(count) => all.extend(&room[..count]),
        }
    }
    Ok(all)
}

/// Lets a client do the handshake and send a byte, which the server receives. Returns both results.
fn meet(server: &TlsServer, client: TlsClient, name: &str) -> (io::Result<()>, io::Result<()>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut session = server.session().unwrap();
    let name = name.to_owned();
    let other = thread::spawn(move || {
        let mut session = client.session(&name)?;
        session.handshake(&mut theirs)?;
        session.blocking(&mut theirs).write_all(b"x")?;
        // A server refuses a client after the client's handshake.
        session.blocking(&mut theirs).read_exact(&mut [0])
    });
    let got = receive(&mut session, &ours, 1).map(|_| ());
    if got.is_ok() {
        session.send(&ours, &[IoSlice::new(b"y")]).unwrap();
    }
    drop(ours);
    (got, other.join().unwrap())
}

#[test]
fn strangers_are_refused() {
    let open = server(None);
    let met = |server: &TlsServer, ca: &str, identity, name: &str| {
        let (ours, theirs) = meet(server, client(ca, identity), name);
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{ours:?} {theirs:?}");
        ours.is_ok()
    };
    assert!(met(&open, "ca.pem", None, "localhost"));
    assert!(met(&open, "ca.pem", Some("client"), "127.0.0.1"));
    assert!(!met(&open, "other.pem", None, "localhost"));
    assert!(!met(&open, "ca.pem", None, "elsewhere"));
    let closed = server(Some("ca.pem"));
    assert!(met(&closed, "ca.pem", Some("client"), "localhost"));
    assert!(!met(&closed, "ca.pem", None, "localhost"));
    assert!(!met(&closed, "ca.pem", Some("stranger"), "localhost"));
    assert!(client("ca.pem", None).session("not a name").is_err());
}

#[test]
fn much_data_arrives_whole_in_both_directions() {
    const BYTES: usize = 3 << 20;
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let data: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
    let expected = data.clone();
    let other = thread::spawn(move || {
        let mut session = client("ca.pem", None).session("localhost").unwrap();
        session.handshake(&mut theirs).unwrap();
        let mut stream = session.blocking(&mut theirs);
        stream.write_all(&expected).unwrap();
        let mut back = vec![0; BYTES];
        stream.read_exact(&mut back).unwrap();
        assert!(back == expected);
        let mut session = session;
        session.close(&theirs);
    });
    let mut session = server(None).session().unwrap();
    let got = receive(&mut session, &ours, BYTES).unwrap();
    assert!(got == data);
    let mut sent = 0;
    while sent < BYTES || session.has_output() {
        // In pieces, as replies have them.
        let rest = &data[sent..];
        let (one, two) = rest.split_at(rest.len().min(1000));
        let taken = session.send(&ours, &[IoSlice::new(one), IoSlice::new(two)]).unwrap();
        sent += taken;
        if taken == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(receive(&mut session, &ours, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    other.join().unwrap();
}

#[test]
fn bytes_in_the_open_are_refused() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut session = server(None).session().unwrap();
    theirs.write_all(b"IHAVEOPT in the open, where a handshake begins").unwrap();
    assert_eq!(receive(&mut session, &ours, 1).unwrap_err().kind(), ErrorKind::InvalidData);
}

#[test]
fn files_of_another_kind_are_named() {
    let files = |certificate, key| ServerFiles {
        certificate: file(certificate),
        key: file(key),
        client_ca: None,
    };
    for (certificate, key, named) in [
        ("server.pem", "client.key", "server.pem"),
        ("server.pem", "ca.pem", "ca.pem"),
        ("server.key", "server.key", "server.key"),
        ("none.pem", "server.key", "none.pem"),
    ] {
        let error = TlsServer::new(&files(certificate, key)).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}
