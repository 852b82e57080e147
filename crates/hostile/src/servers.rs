//! Hostile servers, and a driver that connects to them.

use qpair_memory::locks::Mutex;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use qpair_block::{Error, ErrorKind, Result};
use qpair_memory::{DmaMemory, Mapping};
use qpair_nvme::{ControllerOptions, WaitMode};
use qpair_nvme_wire::registers::DOORBELLS;
use qpair_pci::{Listened, PciDevice, PciWrapper, Stepped};
use qpair_softdev::{SoftNvme, SoftNvmeOptions};
use qpair_vfio_user::codec::{Command, Header};
use qpair_vfio_user::{Client, ClientOptions, Host, Idle, Server, ServerOptions};

use crate::driver::Driver;
use crate::raw::memory;
use crate::served::said;

const BELLS_BYTES: u64 = 0x2000;

/// The outcome of a session with a hostile server.
#[derive(Default)]
pub(super) struct Session {
    /// Whether the driver did I/O.
    pub(super) is_driven: bool,
    /// Whether the driver left a buffer to a device that could not be stopped. Its memory is never
    /// freed.
    pub(super) is_buffer_lost: bool,
}

/// Runs one attack. The session may fail, but nothing outside it may.
pub(super) fn attack(
    random: &mut Rng,
    name: impl Fn(&str),
) -> std::result::Result<Session, String> {
    let folder = std::env::temp_dir().join(format!("qpair-hostile-{}-s", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{folder:?}: {error}"))?;
    let path = folder.join("s");
    let seed = random.u64(..);
    let stop = Arc::new(AtomicBool::new(false));
    let thread = match random.u8(0..4) {
        0 => {
            name(&format!("a server of nonsense, seed {seed}"));
            nonsense(&path, seed, stop.clone())?
        }
        _ => {
            name(&format!("a lying device, seed {seed}"));
            lying_device(&path, seed, stop.clone())?
        }
    };
    let session = drive(&path, random);
    stop.store(true, Ordering::Relaxed);
    // Release a server that still waits for a driver.
    drop(UnixStream::connect(&path));
    thread.join().map_err(|_| "a thread of the server's panicked".to_owned())?;
    let _ = std::fs::remove_dir_all(&folder);
    Ok(session)
}

fn drive(path: &Path, random: &mut Rng) -> Session {
    let options = ClientOptions { timeout: Duration::from_millis(200), ..ClientOptions::default() };
    let Ok(client) = Client::connect(path, &options) else { return Session::default() };
    let wait = if random.bool() { WaitMode::Poll } else { WaitMode::Sleep };
    let options = ControllerOptions {
        wait,
        timeout_ms: 20,
        ready_timeout_ms: Some(50),
        ..ControllerOptions::default()
    };
    let Ok(mut driver) = Driver::open(client, options) else { return Session::default() };
    for _ in 0..random.usize(1..40) {
        let block = random.u64(0..driver.blocks.max(1));
        // The data read can be anything.
        let done = if random.bool() {
            driver.write(block, random.u64(..))
        } else {
            driver.read(block).map(|_| ())
        };
        if done == Err(qpair_block::IoError::GONE) {
            break;
        }
    }
    Session { is_driven: true, is_buffer_lost: driver.is_buffer_lost }
}

type Thread = std::thread::JoinHandle<()>;

/// Answers with random messages, after a few answers that are valid or empty.
fn nonsense(path: &Path, seed: u64, stop: Arc<AtomicBool>) -> std::result::Result<Thread, String> {
    let listener = UnixListener::bind(path).map_err(|error| format!("{path:?}: {error}"))?;
    Ok(std::thread::spawn(move || {
        let mut random = Rng::with_seed(seed);
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        let mut message = vec![0; 70_000];
        while !stop.load(Ordering::Relaxed) {
            let Ok(bytes) = stream.read(&mut message) else { continue };
            let Some(asked) = Header::parse(&message[..bytes]) else { return };
            let payload: Vec<u8> = (0..random.usize(0..128)).map(|_| random.u8(0..4)).collect();
            let is_greeting = asked.command == Command::Version as u16;
            let answer = match random.u8(0..10) {
                _ if is_greeting && random.u8(..) < 200 => asked.reply(4).message(&[0; 4]),
                0 => (0..random.usize(0..64)).map(|_| random.u8(..)).collect(),
                1 => asked.error(random.u32(..)).message(&[]),
                2 => return,
                3 => Vec::new(),
                4 => Header::command(3, Command::DmaRead, 16).message(&[0; 16]),
                5 => asked.reply(payload.len() + 100).message(&payload),
                // Return the request itself, because its sizes are right.
                6 | 7 => asked.reply(bytes - 16).message(&message[16..bytes]),
                _ => asked.reply(payload.len()).message(&payload),
            };
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }))
}

fn lying_device(
    path: &Path,
    seed: u64,
    stop: Arc<AtomicBool>,
) -> std::result::Result<Thread, String> {
    let options = SoftNvmeOptions::parse("size=1MiB,queues=2").map_err(said)?;
    let device = Arc::new(Liar::new(SoftNvme::new(options).map_err(said)?, seed)?);
    let server = Server::bind(path, device.clone(), ServerOptions::default()).map_err(said)?;
    Ok(std::thread::spawn(move || {
        let mut host = Host::new(vec![(device, server)], Idle::Nap(Duration::from_micros(100)));
        while !stop.load(Ordering::Relaxed) {
            host.run_for(Duration::from_millis(1));
        }
    }))
}

/// A soft drive that sometimes returns wrong data, and writes to its driver's memory.
struct Liar {
    soft: Arc<SoftNvme>,
    random: Mutex<Rng>,
    /// The number of wrong answers in 65536 accesses.
    lies: u16,
    /// The number of writes to the driver's memory in 65536 steps.
    scribbles: u16,
    memory: Mutex<Vec<DmaMemory>>,
    /// Doorbells that it can truncate.
    bells: Option<(OwnedFd, Arc<Mapping>)>,
    seen: Mutex<[u32; 16]>,
}

impl Liar {
    fn new(soft: Arc<SoftNvme>, seed: u64) -> std::result::Result<Self, String> {
        let mut random = Rng::with_seed(seed);
        let pick = |random: &mut Rng, of: [u16; 4]| of[random.usize(0..4)];
        let lies = pick(&mut random, [0, 0, 50, 2000]);
        let scribbles = pick(&mut random, [0, 20, 200, 4000]);
        let bells = match random.bool() {
            true => {
                let file = memory(BELLS_BYTES)?;
                let mapping = Mapping::of_file(file.as_fd(), 0, BELLS_BYTES as usize, true)
                    .map_err(|error| format!("mapping: {error}"))?;
                Some((file, mapping))
            }
            false => None,
        };
        Ok(Self {
            soft,
            random: Mutex::new(random),
            lies,
            scribbles,
            memory: Mutex::default(),
            bells,
            seen: Mutex::default(),
        })
    }

    fn lies(&self) -> bool {
        self.random.lock().u16(..) < self.lies
    }

    fn garble(&self, bytes: &mut [u8]) {
        let mut random = self.random.lock();
        match random.u8(0..4) {
            0 => bytes.fill(0xFF),
            1 => bytes.fill(0),
            2 => bytes.fill_with(|| random.u8(..)),
            _ => {
                let at = random.usize(0..bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.u8(0..8);
                }
            }
        }
    }

    /// Does something that no device may do.
    fn misbehave(&self) {
        let mut random = self.random.lock();
        if random.u16(..) >= self.scribbles {
            return;
        }
        if let Some((file, _)) = self.bells.as_ref().filter(|_| random.u8(..) < 20) {
            let _ = rustix::fs::ftruncate(file, [0, 4096][random.usize(0..2)]);
        }
        let memory = self.memory.lock();
        let Some(memory) = memory.get(random.usize(0..memory.len().max(1))) else { return };
        let bytes = memory.bytes();
        // The queues are usually at the beginning.
        let end = if random.bool() { bytes.len().min(32 << 10) } else { bytes.len() };
        let at = random.usize(0..end.max(1)) & !15;
        for word in 0..4 {
            // Make a value like a completion: small numbers, either phase, mostly no error.
            let value = match word {
                3 => random.u32(0..64) | random.u32(0..2) << 16,
                _ => random.u32(0..64),
            };
            bytes.store_u32(at + 4 * word, value);
        }
    }

    /// Forwards doorbells to the soft drive.
    fn pass_bells_on(&self) {
        let Some((_, bells)) = &self.bells else { return };
        let mut seen = self.seen.lock();
        for (number, seen) in seen.iter_mut().enumerate() {
            let value = bells.bytes().load_u32_acquire(4 * number);
            if std::mem::replace(seen, value) != value {
                self.wrapped().write_bar(0, DOORBELLS + 4 * number as u64, &value.to_le_bytes());
            }
        }
    }
}

impl PciWrapper for Liar {
    fn wrapped(&self) -> &impl PciDevice {
        &*self.soft
    }

    fn read_config(&self, offset: u32, into: &mut [u8]) -> bool {
        let read = self.wrapped().read_config(offset, into);
        if self.lies() {
            self.garble(into);
        }
        read
    }

    fn bar_bytes(&self, bar: u8) -> u64 {
        match self.lies() {
            true => {
                let mut random = self.random.lock();
                random.u64(..) >> random.u32(0..64)
            }
            false => self.wrapped().bar_bytes(bar),
        }
    }

    fn read_bar(&self, bar: u8, offset: u64, into: &mut [u8]) -> bool {
        let read = self.wrapped().read_bar(bar, offset, into);
        if self.lies() {
            self.garble(into);
        }
        read
    }

    fn write_bar(&self, bar: u8, offset: u64, bytes: &[u8]) -> bool {
        self.lies() || self.wrapped().write_bar(bar, offset, bytes)
    }

    fn shared_file(&self, bar: u8) -> Result<OwnedFd> {
        match &self.bells {
            Some((file, _)) => file.try_clone().map_err(|cause| Error::os(cause, "a descriptor")),
            None => self.wrapped().shared_file(bar),
        }
    }

    // Doorbells in its own memory announce nothing.
    fn listen(&self) -> Listened {
        Listened::Unsignalled
    }

    fn map_dma(&self, iova: u64, memory: DmaMemory) -> Result<()> {
        self.memory.lock().push(memory.clone());
        self.wrapped().map_dma(iova, memory)
    }

    fn unmap_dma(&self, iova: u64, len: u64) -> Result<()> {
        if self.lies() {
            return Err(Error::new(ErrorKind::Invalid, "it keeps what it has"));
        }
        self.wrapped().unmap_dma(iova, len)
    }

    fn unmap_all(&self) {
        self.memory.lock().clear();
        self.wrapped().unmap_all();
    }

    fn reset(&self) {
        if !self.lies() {
            self.wrapped().reset();
        }
    }

    fn end_session(&self) {
        self.memory.lock().clear();
        self.wrapped().end_session();
    }

    fn step_all(&self) -> Stepped {
        self.misbehave();
        self.pass_bells_on();
        self.wrapped().step_all()
    }
}
