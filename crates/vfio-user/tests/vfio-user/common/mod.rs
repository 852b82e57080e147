//! Shared parts of the tests: a simple device, a thread that serves it, and a raw client.

#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::{DmaMemory, Mapping};
use qpair_pci::{IrqEvent, PciDevice, SharedArea, Stepped};
use qpair_vfio_user::codec::{Command, HEADER_BYTES, Header, Version};
use qpair_vfio_user::{Client, ClientOptions, Counters, Server, ServerOptions};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// A device with 4096 bytes of memory as registers, and a shared page of doorbells.
///
/// When the first doorbell changes, its value is added to the eight bytes at the address in the
/// register at [`TestDevice::TARGET`], and vector 0 signals.
pub struct TestDevice {
    registers: Mutex<Vec<u8>>,
    config: Mutex<Vec<u8>>,
    doorbells: Arc<Mapping>,
    file: Mutex<OwnedFd>,
    /// A file to pass instead of the file of the doorbells.
    pub other_file: Mutex<Option<OwnedFd>>,
    seen: AtomicU64,
    pub dma: Mutex<Vec<(u64, DmaMemory)>>,
    pub irqs: Mutex<Vec<Option<IrqEvent>>>,
    pub resets: AtomicU64,
}

impl TestDevice {
    pub const TARGET: u64 = 0x40;
    pub const VECTORS: u32 = 4;

    pub fn new() -> Arc<Self> {
        let (doorbells, file) = Mapping::new_file(0x2000).unwrap();
        let mut config = vec![0; 256];
        config[..4].copy_from_slice(&[0x36, 0x1B, 0x10, 0x00]);
        // Its command register, as a driver left it; one capability, that of messages.
        (config[4], config[6], config[0x34]) = (0x02, 0x10, 0x40);
        config[0x40..0x44].copy_from_slice(&[0x11, 0x00, 0x03, 0x40]);
        Arc::new(Self {
            registers: Mutex::new((0..0x1000).map(|at| at as u8).collect()),
            config: Mutex::new(config),
            doorbells,
            file: Mutex::new(file),
            other_file: Mutex::default(),
            seen: AtomicU64::new(0),
            dma: Mutex::default(),
            irqs: Mutex::new((0..Self::VECTORS).map(|_| None).collect()),
            resets: AtomicU64::new(0),
        })
    }

    pub fn register(&self, offset: usize) -> u8 {
        self.registers.lock().unwrap()[offset]
    }

    fn access(bytes: &[u8], offset: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let end = usize::try_from(offset).ok()?.checked_add(len)?;
        (end <= bytes.len()).then_some(end - len..end)
    }
}

impl PciDevice for TestDevice {
    fn kind(&self) -> &'static str {
        "test"
    }

    fn config_bytes(&self) -> u32 {
        256
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        let config = self.config.lock().unwrap();
        let range = Self::access(&config, offset.into(), into.len());
        range.map(|range| into.copy_from_slice(&config[range])).is_some()
    }

    fn write_config(&self, offset: u32, bytes: &[u8]) -> bool {
        let mut config = self.config.lock().unwrap();
        let range = Self::access(&config, offset.into(), bytes.len());
        range.map(|range| config[range].copy_from_slice(bytes)).is_some()
    }

    fn bar_bytes(&self, bar: u8) -> u64 {
        if bar == 0 { 0x2000 } else { 0 }
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        if bar == 0 && offset >= 0x1000 {
            self.doorbells.bytes().copy_to(offset as usize, into);
            return true;
        }
        let registers = self.registers.lock().unwrap();
        let range = Self::access(&registers, offset, into.len()).filter(|_| bar == 0);
        range.map(|range| into.copy_from_slice(&registers[range])).is_some()
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        if bar == 0 && offset >= 0x1000 {
            self.doorbells.bytes().copy_from(offset as usize, bytes);
            return true;
        }
        let mut registers = self.registers.lock().unwrap();
        let range = Self::access(&registers, offset, bytes.len()).filter(|_| bar == 0);
        range.map(|range| registers[range].copy_from_slice(bytes)).is_some()
    }

    fn shared_area(&self, bar: u8) -> Option<SharedArea> {
        let (offset_bytes, len) = (0x1000, 0x1000);
        (bar == 0).then_some(SharedArea { offset_bytes, len, file_offset_bytes: 0x1000 })
    }

    fn shared_file(&self, _bar: u8) -> Result<OwnedFd> {
        let other = self.other_file.lock().unwrap();
        let file = self.file.lock().unwrap();
        Ok(other.as_ref().unwrap_or(&file).try_clone().unwrap())
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        let mut dma = self.dma.lock().unwrap();
        if dma.len() >= 8 {
            return Err(Error::new(ErrorKind::Limit, "too many"));
        }
        dma.push((iova, memory));
        Ok(())
    }

    fn unmap_dma(&self, iova: u64, _len: u64) -> Result<()> {
        self.dma.lock().unwrap().retain(|(start, _)| *start != iova);
        Ok(())
    }

    fn unmap_all(&self) {
        self.dma.lock().unwrap().clear();
    }

    fn irq_count(&self) -> u32 {
        Self::VECTORS
    }

    fn set_irq(&self, vector: u32, event: Option<IrqEvent>) -> bool {
        let mut irqs = self.irqs.lock().unwrap();
        irqs.get_mut(vector as usize).map(|irq| *irq = event).is_some()
    }

    fn reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
        self.registers.lock().unwrap().fill(0);
    }

    fn end_session(&self) {
        self.unmap_all();
        self.irqs.lock().unwrap().fill_with(|| None);
        *self.file.lock().unwrap() = self.doorbells.renew().unwrap();
        self.seen.store(0, Ordering::Relaxed);
        self.registers.lock().unwrap().fill(0);
    }

    fn step(&self, _queue: u16) -> Stepped {
        let rung = u64::from(self.doorbells.bytes().load_u32(0x1000));
        if self.seen.swap(rung, Ordering::Relaxed) == rung {
            return Stepped::default();
        }
        let mut target = [0; 8];
        self.read_bar(0, Self::TARGET, &mut target);
        let target = u64::from_le_bytes(target);
        for (start, memory) in &*self.dma.lock().unwrap() {
            let bytes = memory.bytes();
            if let Some(at) = target.checked_sub(*start).filter(|at| *at < bytes.len() as u64) {
                let old = bytes.load_u64(at as usize);
                bytes.store_u64(at as usize, old.wrapping_add(rung));
            }
        }
        if let Some(event) = &self.irqs.lock().unwrap()[0] {
            event.signal();
        }
        Stepped { progress: true, due: None }
    }

    fn step_all(&self) -> Stepped {
        self.step(0)
    }
}

/// A device that a thread serves; dropping it ends the thread.
pub struct Served {
    pub device: Arc<TestDevice>,
    pub path: PathBuf,
    server: Arc<Mutex<Server>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    folder: tempfile::TempDir,
}

pub fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("vu").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

impl Served {
    pub fn new() -> Self {
        Self::with(ServerOptions::default())
    }

    pub fn with(options: ServerOptions) -> Self {
        let folder = folder();
        let path = folder.path().join("s");
        let device = TestDevice::new();
        let server = Server::bind(&path, device.clone(), options).unwrap();
        let server = Arc::new(Mutex::new(server));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (server, device, stop) = (server.clone(), device.clone(), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let polled = server.lock().unwrap().poll();
                    if !polled && !device.step_all().progress {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                }
            }
        });
        Self { device, path, server, stop, thread: Some(thread), folder }
    }

    pub fn counters(&self) -> Counters {
        self.server.lock().unwrap().counters()
    }

    pub fn has_client(&self) -> bool {
        self.server.lock().unwrap().has_client()
    }

    pub fn wait_until_alone(&self) {
        wait_for("the server to be alone", || !self.has_client());
    }

    pub fn last_end(&self) -> String {
        let mut last = None;
        wait_for("the end of a session", || {
            last = self.server.lock().unwrap().take_ended();
            last.is_some()
        });
        last.unwrap().to_string()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

/// Waits until `happened` returns true. Panics after a limit of at least 20 s.
pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited in vain for {what}");
}

/// Connects to a server that may not have noticed yet that the previous client has gone.
pub fn connect(path: &Path) -> Client {
    let mut client = None;
    wait_for("the client before to be gone", || {
        match Client::connect(path, &ClientOptions::default()) {
            Ok(connected) => client = Some(connected),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
        client.is_some()
    });
    client.unwrap()
}

/// A client that sends any bytes it is given.
pub struct Raw {
    pub stream: UnixStream,
    next_id: u16,
}

#[derive(Debug)]
pub struct Answer {
    pub header: Header,
    pub payload: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

impl Answer {
    pub fn errno(&self) -> u32 {
        assert!(self.header.is_reply());
        assert_eq!(self.header.is_error(), self.header.errno != 0);
        if self.header.is_error() {
            assert_eq!(self.header.message_bytes as usize, HEADER_BYTES, "only a header");
        }
        self.header.errno
    }
}

impl Raw {
    pub fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, next_id: 100 }
    }

    /// Connects and agrees on the protocol without JSON, as SPDK does.
    pub fn agreed(path: &Path) -> Self {
        let mut raw = Self::connect(path);
        let answer = raw.ask(Command::Version, &[0, 0, 1, 0], &[]);
        assert_eq!(answer.errno(), 0);
        assert_eq!(Version::parse(&answer.payload).unwrap().capabilities.max_msg_fds, 16);
        raw
    }

    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut room = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let flags = SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, flags);
        assert_eq!(sent.unwrap(), bytes.len());
    }

    pub fn ask(&mut self, command: Command, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Answer {
        self.next_id += 1;
        let header = Header::command(self.next_id, command, payload.len());
        self.send(&header.message(payload), fds);
        let answer = self.answer().expect("an answer");
        assert_eq!((answer.header.id, answer.header.command), (header.id, header.command));
        answer
    }

    /// Receives the next answer; `None` if the server has closed.
    pub fn answer(&mut self) -> Option<Answer> {
        let mut fds = Vec::new();
        let head = self.receive(HEADER_BYTES, &mut fds)?;
        let header = Header::parse(&head).unwrap();
        let payload = self.receive(header.payload_bytes().unwrap(), &mut fds)?;
        Some(Answer { header, payload, fds })
    }

    fn receive(&mut self, len: usize, fds: &mut Vec<OwnedFd>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut have = 0;
        while have < len {
            let mut room = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
            let mut control = RecvAncillaryBuffer::new(&mut room);
            let mut into = [IoSliceMut::new(&mut bytes[have..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(&self.stream, &mut into, &mut control, flags) {
                Ok(got) if got.bytes == 0 => return None,
                Ok(got) => have += got.bytes,
                Err(rustix::io::Errno::CONNRESET) => return None,
                Err(error) => panic!("no answer: {error}"),
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    fds.extend(rights);
                }
            }
        }
        Some(bytes)
    }
}

pub fn memory_file(len: u64) -> OwnedFd {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("test", flags).unwrap();
    rustix::fs::ftruncate(&file, len).unwrap();
    file
}

pub fn event() -> OwnedFd {
    use rustix::event::EventfdFlags;
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Returns how often an event was signalled since the last call.
pub fn count_of(event: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(event, &mut count) {
        Ok(_) => u64::from_ne_bytes(count),
        Err(_) => 0,
    }
}
