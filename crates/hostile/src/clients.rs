//! Hostile clients.

use qpair_memory::locks::Mutex;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fastrand::Rng;
use qpair_memory::Mapping;
use qpair_nvme::Controller;
use qpair_nvme_wire::registers::{ACQ, AQA, ASQ, CC, CC_RUN, DOORBELLS};
use qpair_pci::PciFunction;
use qpair_vfio_user::codec::{Command, Header, RegionAccess, RegionInfo};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_setfl, ftruncate};

use crate::driver::{Driver, connect, options};
use crate::raw::{Raw, memory};
use crate::served::said;

pub(super) const KINDS: usize = 12;
/// The maximum number of doorbells that are kept after their session.
const STALE_MAX: usize = 8;
const IOVA: u64 = 1 << 32;
const MEMORY_BYTES: u64 = 256 << 10;

pub(super) struct Clients {
    path: PathBuf,
    stale: Arc<Mutex<Vec<Arc<Mapping>>>>,
    stop: Arc<AtomicBool>,
    bells: Option<JoinHandle<()>>,
    /// Connections that have sent half of their first message.
    half: Vec<UnixStream>,
}

impl Clients {
    pub(super) fn new(path: &Path) -> Self {
        let stale: Arc<Mutex<Vec<Arc<Mapping>>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let bells = std::thread::spawn({
            let (stale, stop) = (stale.clone(), stop.clone());
            move || {
                for value in (0..16).cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    for bells in &*stale.lock() {
                        for at in (0..64).step_by(4) {
                            bells.bytes().store_u32_release(at, value);
                        }
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        Self { path: path.to_owned(), stale, stop, bells: Some(bells), half: Vec::new() }
    }

    /// Runs one attack. An error means that the server failed.
    pub(super) fn attack(&mut self, kind: usize, random: &mut Rng) -> Result<(), String> {
        match kind % KINDS {
            0 => self.noise(random),
            1 => self.broken(random),
            2 => self.keeps_its_bells(random),
            3 => self.full_interrupt(random),
            4 => self.odd_interrupts(),
            5 => self.grows_bells(),
            6 => self.cuts_memory(random),
            7 => self.half_greetings(random),
            8 => self.many_maps(random),
            9 => self.wild_commands(random),
            10 => self.reads_nothing(random),
            _ => self.many_descriptors(random),
        }
    }

    /// Drops the connections and doorbells that attacks have kept.
    pub(super) fn leave(&mut self) {
        self.half.clear();
        self.stale.lock().clear();
    }

    fn agreed(&self) -> Result<Raw, String> {
        Raw::agreed(&self.path).ok_or_else(|| "a client is kept out".to_owned())
    }

    fn noise(&self, random: &mut Rng) -> Result<(), String> {
        let raw = self.agreed()?;
        let fds = [memory(4096)?, event(EventfdFlags::NONBLOCK)?];
        for _ in 0..random.usize(1..60) {
            let payload: Vec<u8> = (0..random.usize(0..96))
                .map(|_| if random.u8(..) < 170 { 0 } else { random.u8(..) })
                .collect();
            let mut message = Header::command(1, Command::Reset, payload.len()).message(&payload);
            message[2] = random.u8(0..20);
            if random.u8(..) < 16 {
                let at = random.usize(0..message.len());
                message[at] = random.u8(..);
            }
            let fds: Vec<BorrowedFd<'_>> =
                fds.iter().take(random.usize(0..3)).map(AsFd::as_fd).collect();
            if !raw.send(&message, &fds) {
                break;
            }
        }
        Ok(())
    }

    fn broken(&self, random: &mut Rng) -> Result<(), String> {
        let Some(raw) = Raw::connect(&self.path) else { return Ok(()) };
        let bytes: Vec<u8> = (0..random.usize(1..200)).map(|_| random.u8(..)).collect();
        raw.send(&bytes, &[]);
        Ok(())
    }

    /// Runs a normal driver that continues to ring its doorbells after its session.
    fn keeps_its_bells(&self, random: &mut Rng) -> Result<(), String> {
        let client = connect(&self.path)?;
        let bells = client.map_bar(0, DOORBELLS, 0x2000).map_err(said)?;
        let mut driver = Driver::open(client, options()).map_err(said)?;
        for _ in 0..random.usize(1..40) {
            let block = random.u64(0..driver.blocks);
            driver.write(block, random.u64(..)).map_err(|error| error.to_string())?;
        }
        let mut stale = self.stale.lock();
        if stale.len() == STALE_MAX {
            stale.remove(random.usize(0..STALE_MAX));
        }
        stale.extend(bells);
        Ok(())
    }

    fn full_interrupt(&self, random: &mut Rng) -> Result<(), String> {
        let client = Arc::new(connect(&self.path)?);
        let full = event(EventfdFlags::empty())?;
        let fill = |event: &OwnedFd| {
            let _ = fcntl_setfl(event, OFlags::NONBLOCK);
            let _ = rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes());
            let _ = fcntl_setfl(event, OFlags::empty());
        };
        fill(&full);
        for vector in 0..client.irq_count() {
            client.set_irq(vector, Some(full.as_fd())).map_err(said)?;
        }
        let stop = AtomicBool::new(random.bool());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Empty and fill the event, and let it wait again, while the server signals it.
                while !stop.load(Ordering::Relaxed) {
                    let _ = fcntl_setfl(&full, OFlags::NONBLOCK);
                    let _ = rustix::io::read(&full, &mut [0; 8]);
                    fill(&full);
                }
            });
            let opened = Controller::open(client.clone(), options());
            stop.store(true, Ordering::Relaxed);
            opened.map(drop).map_err(said)
        })
    }

    fn odd_interrupts(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("making descriptors: {error}");
        let mut raw = self.agreed()?;
        let (_read, write) = std::io::pipe().map_err(failed)?;
        let (stream, _peer) = UnixStream::pair().map_err(failed)?;
        let folder = self.path.parent().unwrap_or(&self.path);
        let odd: [OwnedFd; 4] = [
            write.into(),
            stream.into(),
            std::fs::File::open(folder).map_err(failed)?.into(),
            memory(4096)?,
        ];
        for fd in &odd {
            if raw.set_irq(0, fd) == Some(0) {
                return Err("a descriptor that is no eventfd was taken for an interrupt".to_owned());
            }
        }
        Ok(())
    }

    fn grows_bells(&self) -> Result<(), String> {
        let mut raw = self.agreed()?;
        raw.ask(Command::GetRegionInfo, &RegionInfo::request(0, 4096), &[]);
        for file in &raw.fds {
            let grown = ftruncate(file, 512 << 20).is_ok()
                || fallocate(file, FallocateFlags::KEEP_SIZE, 0, 512 << 20).is_ok();
            if grown || ftruncate(file, 0).is_ok() {
                return Err("the size of the doorbells' memory can be changed".to_owned());
            }
        }
        Ok(())
    }

    fn ready(&self, raw: &mut Raw) -> Result<OwnedFd, String> {
        let file = memory(MEMORY_BYTES)?;
        raw.map(IOVA, MEMORY_BYTES, &file);
        raw.write(AQA, &0x001F_001Fu32.to_le_bytes());
        raw.write(ASQ, &IOVA.to_le_bytes());
        raw.write(ACQ, &(IOVA + 4096).to_le_bytes());
        raw.write(CC, &CC_RUN.to_le_bytes());
        Ok(file)
    }

    fn cuts_memory(&self, random: &mut Rng) -> Result<(), String> {
        let mut raw = self.agreed()?;
        let file = self.ready(&mut raw)?;
        let len = [0, 0, 4096, 8192][random.usize(0..4)];
        ftruncate(&file, len).map_err(|error| format!("cutting memory short: {error}"))?;
        for tail in 1..4u32 {
            raw.write(DOORBELLS, &tail.to_le_bytes());
        }
        Ok(())
    }

    fn half_greetings(&mut self, random: &mut Rng) -> Result<(), String> {
        self.half.clear();
        let greeting = Header::command(1, Command::Version, 4).message(&[0, 0, 1, 0]);
        for _ in 0..random.usize(1..24) {
            let Ok(mut stream) = UnixStream::connect(&self.path) else { break };
            let _ = stream.write_all(&greeting[..random.usize(0..greeting.len())]);
            self.half.push(stream);
        }
        Ok(())
    }

    fn many_maps(&self, random: &mut Rng) -> Result<(), String> {
        let mut raw = self.agreed()?;
        let file = memory(8192)?;
        // Request no answers, so that exceeding the limit takes little time.
        for number in 0..random.u64(1..5000) {
            if !raw.map_posted(IOVA + (number << 13), 8192, &file) {
                break;
            }
        }
        raw.ask(Command::Reset, &[], &[]);
        Ok(())
    }

    /// Sets a controller up and fills its queues with random data.
    fn wild_commands(&self, random: &mut Rng) -> Result<(), String> {
        let mut raw = self.agreed()?;
        let file = self.ready(&mut raw)?;
        let interrupt = event(EventfdFlags::NONBLOCK)?;
        raw.set_irq(0, &interrupt);
        let mapping = Mapping::of_file(file.as_fd(), 0, MEMORY_BYTES as usize, true)
            .map_err(|error| format!("mapping: {error}"))?;
        for _ in 0..random.usize(1..12) {
            for entry in 0..32 {
                let mut words = [0u32; 16];
                words.fill_with(|| if random.bool() { 0 } else { random.u32(..) });
                // Use existing opcodes, addresses that may be valid, and small numbers.
                words[0] = u32::from(random.u8(0..0x20)) | random.u32(..) << 16;
                words[1] = random.u32(0..3);
                words[6] = random.u32(0..MEMORY_BYTES as u32 / 4096) << 12;
                words[7] = (IOVA >> 32) as u32;
                words[10] = random.u32(0..8) | random.u32(0..32) << 16;
                for (number, word) in words.into_iter().enumerate() {
                    mapping.bytes().store_u32(entry * 64 + number * 4, word);
                }
            }
            let offset = match random.u8(0..4) {
                0 => random.u64(0..16) * 4,
                _ => DOORBELLS + random.u64(0..8) * 4,
            };
            if raw.write(offset, &random.u32(0..40).to_le_bytes()).is_none() {
                break;
            }
        }
        Ok(())
    }

    fn reads_nothing(&self, random: &mut Rng) -> Result<(), String> {
        let raw = self.agreed()?;
        let access = RegionAccess { offset_bytes: 0, region: 0, len: 8 };
        let payload = access.payload(&[]);
        let question = Header::command(1, Command::RegionRead, payload.len()).message(&payload);
        for _ in 0..random.usize(1..4000) {
            if !raw.send(&question, &[]) {
                break;
            }
        }
        Ok(())
    }

    fn many_descriptors(&self, random: &mut Rng) -> Result<(), String> {
        let raw = self.agreed()?;
        let file = memory(4096)?;
        let fds = vec![file.as_fd(); random.usize(1..60)];
        raw.send(&Header::command(1, Command::Reset, 0).message(&[]), &fds);
        Ok(())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(bells) = self.bells.take() {
            let _ = bells.join();
        }
    }
}

fn event(flags: EventfdFlags) -> Result<OwnedFd, String> {
    eventfd(0, flags | EventfdFlags::CLOEXEC).map_err(|error| format!("an eventfd: {error}"))
}
