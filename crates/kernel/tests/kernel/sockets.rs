//! Stream sockets by `io_uring`: system calls, sends that are taken in parts, buffers that run out,
//! and ends while operations are under way.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use qpair_block::{Arena, ArenaOptions, ErrorKind};
use qpair_kernel::{Outgoing, SocketEvent, SocketRing};
use rustix::event::{PollFd, PollFlags, poll};

type Events = Vec<(usize, SocketEvent)>;

/// Opens a ring; `None` if this machine has none for sockets.
#[allow(clippy::print_stderr, reason = "a skip is reported")]
fn ring() -> Option<SocketRing> {
    match SocketRing::open() {
        Ok(ring) => Some(ring),
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Denied) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn connect(ring: &mut SocketRing, number: usize) -> UnixStream {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    ring.add(number, Arc::new(OwnedFd::from(near)));
    far
}

fn text(bytes: &[u8]) -> Outgoing {
    let mut outgoing = Outgoing::default();
    outgoing.push(bytes, None);
    outgoing
}

/// Waits for completions, as a program that sleeps on the event.
fn wait(ring: &mut SocketRing) -> Events {
    let mut events = Events::new();
    ring.submit();
    while !ring.collect(&mut events) {
        poll(&mut [PollFd::from_borrowed_fd(ring.event(), PollFlags::IN)], None).unwrap();
    }
    events
}

fn bytes(event: SocketEvent) -> Vec<u8> {
    match event {
        SocketEvent::Received(Ok(Some(bytes))) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_system_call_serves_many_sockets() {
    let Some(mut ring) = ring() else { return };
    let mut far: Vec<_> = (0..12).map(|number| connect(&mut ring, number)).collect();
    for (number, far) in far.iter_mut().enumerate() {
        assert!(ring.send(number, text(&[number as u8; 3])).is_ok());
        assert!(ring.send(number, text(b"second")).is_err(), "one send is under way");
        far.write_all(&[number as u8; 5]).unwrap();
        ring.receive(number, usize::MAX);
    }
    assert_eq!(ring.enters(), 0);
    let mut events = wait(&mut ring);
    while events.len() < 24 {
        events.extend(wait(&mut ring));
    }
    assert!(ring.enters() <= 2, "{} system calls", ring.enters());
    for (number, event) in events {
        match event {
            SocketEvent::Sent(rest, sent) => {
                assert_eq!((rest.is_empty(), sent.unwrap()), (true, 3));
            }
            event => assert_eq!(bytes(event), [number as u8; 5]),
        }
    }
    for (number, far) in far.iter_mut().enumerate() {
        let mut said = [0; 3];
        far.read_exact(&mut said).unwrap();
        assert_eq!(said, [number as u8; 3]);
    }
}

/// More sockets than buffers have bytes at once; those without one get theirs later.
#[test]
fn sockets_share_the_buffers() {
    let Some(mut ring) = ring() else { return };
    let mut far: Vec<_> = (0..40).map(|number| connect(&mut ring, number)).collect();
    for (number, far) in far.iter_mut().enumerate() {
        far.write_all(&[number as u8; 100]).unwrap();
        ring.receive(number, 60);
    }
    let mut came = vec![Vec::new(); 40];
    while came.iter().any(|bytes| bytes.len() < 100) {
        let events = wait(&mut ring);
        for (number, event) in events {
            match event {
                SocketEvent::Received(Ok(None)) => {}
                event => came[number].extend(bytes(event)),
            }
            ring.receive(number, 60);
        }
    }
    assert!(came.iter().enumerate().all(|(number, bytes)| *bytes == [number as u8; 100]));
}

/// A peer that reads slowly: the send takes several steps, and blocks come free in between.
#[test]
fn a_send_is_taken_in_parts() {
    let Some(mut ring) = ring() else { return };
    let mut far = connect(&mut ring, 0);
    let arena = Arena::new(1 << 20, 4, ArenaOptions::ordinary_pages()).unwrap();
    let mut outgoing = Outgoing::default();
    let mut expected = Vec::new();
    for number in 0..4u8 {
        let mut block = arena.lease().unwrap();
        block.copy_from(0, &vec![number; 1 << 20]);
        outgoing.push(&[100 + number], Some((block, 1 << 20)));
        expected.push(100 + number);
        expected.extend(vec![number; 1 << 20]);
    }
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; expected.len()];
        far.read_exact(&mut all).unwrap();
        assert!(all == expected);
        far
    });
    let mut steps = 0;
    while !outgoing.is_empty() {
        assert!(ring.send(0, outgoing).is_ok());
        let mut events = wait(&mut ring);
        while let Some((_, SocketEvent::Moved(_))) = events.last() {
            events = wait(&mut ring);
        }
        let Some((0, SocketEvent::Sent(rest, sent))) = events.pop() else { panic!("{events:?}") };
        sent.unwrap();
        outgoing = rest;
        steps += 1;
    }
    assert!(steps > 1);
    drop(reader.join().unwrap());
    assert_eq!((0..4).filter_map(|_| arena.lease()).count(), 4);
}

/// Large data over loopback, which the kernel copies also when it is asked not to.
#[test]
fn data_over_tcp_arrives() {
    let Some(mut ring) = ring() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    ring.add(3, Arc::new(OwnedFd::from(near)));
    let arena = Arena::new(64 << 10, 1, ArenaOptions::ordinary_pages()).unwrap();
    for round in 0..5u8 {
        let mut block = arena.lease().unwrap();
        block.copy_from(0, &[round; 64 << 10]);
        let mut outgoing = Outgoing::default();
        outgoing.push(b"head", Some((block, 64 << 10)));
        while !outgoing.is_empty() {
            assert!(ring.send(3, outgoing).is_ok());
            outgoing = loop {
                match wait(&mut ring).pop() {
                    Some((3, SocketEvent::Sent(rest, sent))) => {
                        sent.unwrap();
                        break rest;
                    }
                    Some((3, SocketEvent::Moved(_))) => {}
                    other => panic!("{other:?}"),
                }
            };
        }
        let mut said = vec![0; 4 + (64 << 10)];
        far.read_exact(&mut said).unwrap();
        assert!(said[4..].iter().all(|&byte| byte == round) && said[..4] == *b"head");
    }
}

#[test]
fn a_socket_is_removed_when_its_operations_have_ended() {
    let Some(mut ring) = ring() else { return };
    let mut far = connect(&mut ring, 0);
    let arena = Arena::new(4 << 20, 1, ArenaOptions::ordinary_pages()).unwrap();
    let mut outgoing = Outgoing::default();
    outgoing.push(b"", Some((arena.lease().unwrap(), 4 << 20)));
    ring.receive(0, usize::MAX);
    assert!(ring.send(0, outgoing).is_ok());
    // Takes a part, and waits for the rest.
    let Some((0, SocketEvent::Sent(rest, _))) = wait(&mut ring).pop() else { panic!() };
    assert!(ring.send(0, rest).is_ok());
    ring.submit();
    assert!(!ring.remove(0));
    let mut ends = 0;
    while !ring.remove(0) {
        ends += wait(&mut ring).len();
    }
    assert_eq!(ends, 2);
    assert!(arena.lease().is_some(), "the block is free");
    let mut rest = Vec::new();
    far.read_to_end(&mut rest).unwrap();
    // The number is free, and events of the next socket are its own.
    let mut far = connect(&mut ring, 0);
    far.write_all(b"next").unwrap();
    ring.receive(0, usize::MAX);
    assert_eq!(bytes(wait(&mut ring).pop().unwrap().1), b"next");
}

#[test]
fn a_ring_that_is_dropped_waits_for_its_memory() {
    let Some(mut ring) = ring() else { return };
    let mut far: Vec<_> = (0..3).map(|number| connect(&mut ring, number)).collect();
    let arena = Arena::new(4 << 20, 3, ArenaOptions::ordinary_pages()).unwrap();
    for number in 0..3 {
        let mut outgoing = Outgoing::default();
        outgoing.push(b"", Some((arena.lease().unwrap(), 4 << 20)));
        assert!(ring.send(number, outgoing).is_ok());
        ring.receive(number, usize::MAX);
    }
    ring.submit();
    drop(ring);
    assert_eq!((0..3).filter_map(|_| arena.lease()).count(), 3);
    for far in &mut far {
        // The sockets are closed.
        std::io::copy(far, &mut std::io::sink()).unwrap();
    }
}
