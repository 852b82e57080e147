//! The client at a server that closes connections, is killed, or becomes silent.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, BlockDevice, ChannelOptions, Completion, ErrorKind, IoChannel, IoError, Op, Request,
    WaitOptions,
};
use qpair_nbd::server::{Export, Exports, Negotiation, Step};
use qpair_nbd::wire::handshake::BlockSizes;
use qpair_nbd::wire::reply::{put_end, put_simple};
use qpair_nbd::wire::request::header_bytes;
use qpair_nbd::wire::{Kind, Request as Message, Style};
use qpair_nbd::{NbdDevice, NbdOptions};

const SIZE: usize = 1 << 20;

struct One;

impl Exports for One {
    fn names(&self) -> Vec<String> {
        vec![String::new()]
    }

    fn find(&self, _: &str) -> Option<(usize, Export)> {
        let blocks = BlockSizes { min: 512, preferred: 4096, max: 1 << 20 };
        // Flags, flush and several connections.
        let flags = 1 | 1 << 2 | 1 << 8;
        Some((0, Export { size_bytes: SIZE as u64, flags, blocks, description: String::new() }))
    }
}

/// A server with a thread for each connection.
struct Server {
    socket: PathBuf,
    disk: Mutex<Vec<u8>>,
    /// The requests that may still be answered. The one after them ends the connection.
    answers: AtomicU64,
    is_silent: AtomicBool,
    connections: AtomicU64,
    open: Mutex<Vec<UnixStream>>,
}

impl Server {
    fn start(folder: &Path) -> Arc<Self> {
        let socket = folder.join("n.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = Arc::new(Self {
            socket,
            disk: Mutex::new(vec![0; SIZE]),
            answers: AtomicU64::new(u64::MAX),
            is_silent: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            open: Mutex::default(),
        });
        let all = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, server) = (stream.unwrap(), all.clone());
                server.open.lock().unwrap().push(stream.try_clone().unwrap());
                std::thread::spawn(move || server.serve(stream));
            }
        });
        server
    }

    fn open(&self, request_timeout: Duration) -> NbdDevice {
        let options = NbdOptions {
            timeout: Duration::from_millis(500),
            request_timeout,
            ..NbdOptions::default()
        };
        NbdDevice::open(&format!("unix:{}", self.socket.display()), options).unwrap()
    }

    /// Ends all connections in the middle of what they do.
    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn serve(&self, mut stream: UnixStream) -> Option<()> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let mut output = Vec::new();
        let mut negotiation = Negotiation::begin(&mut output);
        let mut byte = [0];
        let style = loop {
            if self.is_silent.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_secs(60));
            }
            stream.write_all(&std::mem::take(&mut output)).ok()?;
            stream.read_exact(&mut byte).ok()?;
            match negotiation.take(&mut &byte[..], &One, &mut output).ok()? {
                Step::Continues => {}
                Step::Settled(settled) => break settled.style,
                Step::StartsTls | Step::Ended => return None,
            }
        };
        stream.write_all(&output).ok()?;
        let mut head = vec![0; header_bytes(style == Style::Extended)];
        loop {
            stream.read_exact(&mut head).ok()?;
            let message = Message::decode(&head, style == Style::Extended)?;
            let (at, len) = (message.offset as usize, message.len as usize);
            let mut data = vec![0; if message.kind == Kind::Write { len } else { 0 }];
            stream.read_exact(&mut data).ok()?;
            let left = self.answers.fetch_sub(1, Ordering::Relaxed);
            if left == 0 {
                self.answers.store(u64::MAX, Ordering::Relaxed);
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return None;
            }
            if self.is_silent.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_secs(60));
            }
            let mut reply = Vec::new();
            let mut disk = self.disk.lock().unwrap();
            match message.kind {
                Kind::Write => disk[at..at + len].copy_from_slice(&data),
                Kind::Read if style == Style::Simple => {
                    put_simple(&mut reply, message.cookie, 0);
                    reply.extend(&disk[at..at + len]);
                }
                Kind::Read => {
                    let (offset, len) = (message.offset, message.len as u32);
                    let cookie = message.cookie;
                    qpair_nbd::wire::reply::put_data(&mut reply, style, true, cookie, offset, len);
                    reply.extend(&disk[at..at + len as usize]);
                }
                Kind::Disconnect => return None,
                _ => {}
            }
            drop(disk);
            if message.kind != Kind::Read {
                put_end(&mut reply, style, message.cookie, Ok(()));
            }
            stream.write_all(&reply).ok()?;
        }
    }
}

struct Load {
    channel: Box<dyn IoChannel>,
    arena: Arc<Arena>,
    blocks: Vec<u8>,
    random: u64,
}

impl Load {
    fn open(device: &dyn BlockDevice) -> Self {
        let arena = Arena::new(4096, 16, device.info().arena_options()).unwrap();
        let options = ChannelOptions { depth: 16, arenas: vec![arena.clone()], wake: None };
        let channel = device.open_channel(&options).unwrap();
        Self { channel, arena, blocks: vec![0; SIZE / 4096], random: 7 }
    }

    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 33
    }

    fn wait(&mut self, count: usize) -> Vec<Completion> {
        let mut done = Vec::new();
        let options = WaitOptions { want: count as u32, linger: Duration::ZERO, timeout: None };
        while done.len() < count {
            self.channel.wait(&mut done, options);
        }
        done
    }

    /// Writes to 8 blocks, and reads 8 others, all at once.
    fn round(&mut self) -> Result<(), IoError> {
        let first = self.next() as usize % (self.blocks.len() - 16);
        for number in 0..16 {
            let (block, mut buffer) = (first + number, self.arena.lease().unwrap());
            let at = block as u64 * 4096;
            let request = if number % 2 == 0 {
                self.blocks[block] = self.next() as u8;
                buffer.copy_from(0, &[self.blocks[block]; 4096]);
                Request::write(at, 4096, buffer, block as u64)
            } else {
                Request::read(at, 4096, buffer, block as u64)
            };
            self.channel.submit(request).unwrap();
        }
        self.channel.kick();
        for done in self.wait(16) {
            done.result?;
            let expected = self.blocks[done.tag as usize];
            if done.op == Op::Read {
                let buffer = done.buffer.unwrap();
                assert!(buffer.as_slice()[..4096].iter().all(|byte| *byte == expected));
            }
        }
        Ok(())
    }
}

#[test]
fn no_request_is_lost_with_a_connection() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let device = server.open(Duration::from_secs(20));
    let mut load = Load::open(&device);
    for round in 0..40 {
        match round % 4 {
            0 => server.answers.store(round % 16, Ordering::Relaxed),
            // Between two rounds nothing is in flight.
            2 => server.cut(),
            _ => {}
        }
        load.round().unwrap();
    }
    assert!(device.resets() >= 20, "{}", device.resets());
}

#[test]
fn a_flush_fails_once_writes_may_be_lost() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let device = server.open(Duration::from_secs(20));
    let (mut load, mut idle) = (Load::open(&device), Load::open(&device));
    let flush = |load: &mut Load| {
        load.channel.submit(Request::flush(0)).unwrap();
        load.channel.kick();
        load.wait(1).pop().unwrap().result
    };
    load.round().unwrap();
    flush(&mut load).unwrap();
    // All writes are covered: a lost connection loses nothing.
    server.cut();
    flush(&mut load).unwrap();
    idle.round().unwrap();
    server.cut();
    // The channel that wrote nothing since notices the loss, and knows of the other's writes.
    assert_eq!(flush(&mut load), Err(IoError::IO));
    assert_eq!(flush(&mut idle), Err(IoError::IO));
    load.round().unwrap();
    assert_eq!(flush(&mut load), Err(IoError::IO));
    // Who opens the device again has to write again what it needs.
    drop((load, idle));
    let device = server.open(Duration::from_secs(20));
    flush(&mut Load::open(&device)).unwrap();
}

#[test]
fn a_silent_server_ends_requests_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let device = server.open(Duration::from_millis(600));
    let mut load = Load::open(&device);
    load.round().unwrap();
    server.is_silent.store(true, Ordering::Relaxed);
    let start = Instant::now();
    assert_eq!(load.round(), Err(IoError::TIMED_OUT));
    // The connection was given up; later requests fail too, once the server had its time.
    assert!(load.round().is_err());
    assert_eq!(load.round().unwrap_err().kind, ErrorKind::Gone);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}
