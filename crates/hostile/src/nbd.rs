//! Hostile clients of an NBD server, which exports a disk that they change, and one that only a
//! well-behaved client changes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use qpair_block::{BlockDevice, RamDevice, RamOptions};
use qpair_nbd::wire::handshake::{option, put_option, put_text};
use qpair_nbd::wire::{Kind, Request};
use qpair_nbd::{NbdDevice, NbdOptions};
use qpair_serve::{Disk, NbdAddress, NbdExport, SocketWay, Target, TargetOptions};

use crate::driver::{Blocks, Driver};
use crate::served::said;

pub(super) const KINDS: usize = 11;
/// The maximum number of connections that are kept after their attack.
const KEPT_MAX: usize = 24;
/// The connections of a crowd: more than the server takes.
const CROWD: usize = 1100;
/// The time in which a request of the well-behaved client must end.
const PATIENT: Duration = Duration::from_secs(60);

pub(super) struct Nbd {
    target: Target,
    socket: PathBuf,
    folder: PathBuf,
    /// Clients that are in the middle of something.
    kept: Vec<UnixStream>,
    quiet: Blocks,
    driver: Driver,
}

fn disk(name: &str) -> Result<NbdExport, String> {
    let options = RamOptions { size_bytes: 8 << 20, growable: false, ..RamOptions::default() };
    let device = Arc::new(RamDevice::new(options).map_err(said)?);
    Ok(NbdExport { disk: Disk::new(name, device), read_only: false })
}

impl Nbd {
    pub(super) fn start(seed: u64, sockets: SocketWay) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("qpair-hostile-nbd-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{folder:?}: {error}"))?;
        let socket = folder.join("s");
        let target =
            Target::new(TargetOptions { sockets, ..TargetOptions::default() }).map_err(said)?;
        let exports = vec![disk("attacked")?, disk("quiet")?];
        target.serve_nbd(&NbdAddress::Unix(socket.clone()), exports, None).map_err(said)?;
        let driver = connect(&socket, "quiet")?;
        let (kept, quiet) = (Vec::new(), Blocks::new(seed));
        Ok(Self { target, socket, folder, kept, quiet, driver })
    }

    /// Runs one attack. An error means that the server failed.
    pub(super) fn attack(&mut self, kind: usize, random: &mut Rng) -> Result<(), String> {
        let stream = self.connect()?;
        let kept = match kind % KINDS {
            0 => noise(stream, random),
            1 => half_options(stream, random),
            2 => options_without_end(stream, random),
            3 => lying_options(stream, random),
            4 => wild_requests(stream, random),
            5 => half_write(stream, random),
            6 => reads_nothing(stream, random),
            7 => bytes_one_by_one(stream),
            8 => leaves_at_once(stream, random),
            9 => status_of_all(stream),
            _ => return self.crowd(random),
        };
        if let Some(stream) = kept {
            if self.kept.len() == KEPT_MAX {
                self.kept.swap_remove(random.usize(0..KEPT_MAX));
            }
            self.kept.push(stream);
        }
        Ok(())
    }

    /// Checks that the well-behaved client, which was connected before the attacks, and one that
    /// comes now read what they wrote. Returns the number of verified blocks.
    pub(super) fn clear(&mut self, random: &mut Rng) -> Result<u64, String> {
        let start = Instant::now();
        let mut verified = self.quiet.visit_with(&mut self.driver, "the quiet export", 16)?;
        let mut other = connect(&self.socket, "quiet")?;
        verified += self.quiet.visit_with(&mut other, "the quiet export, anew", 4)?;
        if random.u8(..) < 16 {
            self.driver = other;
        }
        match start.elapsed() {
            took if took > PATIENT => Err(format!("a well-behaved client of NBD took {took:?}")),
            _ => Ok(verified),
        }
    }

    /// Drops the kept connections, and waits until the server has noticed.
    pub(super) fn leave(&mut self) -> Result<(), String> {
        self.kept.clear();
        self.wait_for(1)
    }

    /// Waits until the server has so many clients at most.
    fn wait_for(&self, most: usize) -> Result<(), String> {
        let clients = || self.target.nbd_servers().iter().map(|it| it.clients).sum::<usize>();
        for _ in 0..30_000 {
            if clients() <= most {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(format!("the NBD server has {} clients, of {most}", clients()))
    }

    fn connect(&self) -> Result<UnixStream, String> {
        let stream = UnixStream::connect(&self.socket)
            .map_err(|error| format!("connecting to the NBD server: {error}"))?;
        // Attacks go on without an answer.
        let limit = Some(Duration::from_millis(20));
        let _ = stream.set_read_timeout(limit);
        let _ = stream.set_write_timeout(limit);
        Ok(stream)
    }

    /// Connects more often than the server allows, while another client works.
    fn crowd(&mut self, random: &mut Rng) -> Result<(), String> {
        let mut crowd = Vec::new();
        for _ in 0..CROWD {
            // A server may be slower to accept than its queue of connections allows.
            let Ok(mut stream) = self.connect() else { break };
            if random.bool() {
                let _ = stream.write_all(&[0, 0, 0]);
            }
            crowd.push(stream);
        }
        self.quiet.visit_with(&mut self.driver, "the quiet export in a crowd", 16)?;
        drop(crowd);
        self.wait_for(self.kept.len() + 1)
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn connect(socket: &std::path::Path, export: &str) -> Result<Driver, String> {
    let name = format!("unix:{}/{export}", socket.display());
    let device = NbdDevice::open(&name, NbdOptions::default()).map_err(said)?;
    let device: Box<dyn BlockDevice> = Box::new(device);
    Driver::over(device).map_err(said)
}

/// Negotiates the attacked export. `features` are options without data that come first.
fn settled(stream: &mut UnixStream, features: &[u32]) -> Option<()> {
    let mut output = vec![0, 0, 0, 3];
    features.iter().for_each(|feature| put_option(&mut output, *feature, &[]));
    let mut name = Vec::new();
    put_text(&mut name, "attacked");
    if !features.is_empty() {
        let mut context = name.clone();
        context.extend(1u32.to_be_bytes());
        put_text(&mut context, "base:allocation");
        put_option(&mut output, option::SET_META_CONTEXT, &context);
    }
    name.extend([0, 0]);
    put_option(&mut output, option::GO, &name);
    stream.write_all(&output).ok()?;
    let mut answers = [0; 512];
    let _ = stream.read(&mut answers);
    Some(())
}

fn bytes(random: &mut Rng, most: usize) -> Vec<u8> {
    (0..random.usize(1..most)).map(|_| random.u8(..)).collect()
}

fn request(kind: Kind, offset: u64, len: u64, cookie: u64) -> Vec<u8> {
    let mut output = Vec::new();
    Request { flags: 0, kind, cookie, offset, len }.put(&mut output, false);
    output
}

fn noise(mut stream: UnixStream, random: &mut Rng) -> Option<UnixStream> {
    if random.bool() {
        stream.write_all(&[0, 0, 0, 3]).ok()?;
    }
    stream.write_all(&bytes(random, 5000)).ok()?;
    None
}

fn half_options(mut stream: UnixStream, random: &mut Rng) -> Option<UnixStream> {
    let mut output = vec![0, 0, 0, 3];
    put_option(&mut output, option::GO, &bytes(random, 200));
    output.truncate(random.usize(1..output.len()));
    stream.write_all(&output).ok()?;
    Some(stream)
}

fn options_without_end(mut stream: UnixStream, random: &mut Rng) -> Option<UnixStream> {
    let mut output = vec![0, 0, 0, 3];
    let number = [option::LIST, option::STRUCTURED_REPLY, 77][random.usize(0..3)];
    for _ in 0..4096 {
        put_option(&mut output, number, &[]);
    }
    // Nothing is read, so the server must stop to take options at some time.
    for _ in 0..64 {
        if stream.write_all(&output).is_err() {
            break;
        }
        // The flags came first.
        output.drain(..output.len() % 16);
    }
    Some(stream)
}

fn lying_options(mut stream: UnixStream, random: &mut Rng) -> Option<UnixStream> {
    let mut output = vec![0, 0, 0, 3];
    for _ in 0..random.usize(1..20) {
        let mut data = bytes(random, 64);
        if random.bool() {
            // A name that is longer than its option.
            data.splice(0..0, random.u32(..).to_be_bytes());
        }
        let number = random.u32(0..12);
        put_option(&mut output, if number == 1 { 3 } else { number }, &data);
    }
    output.extend(0x4948_4156_454F_5054_u64.to_be_bytes());
    output.extend(option::LIST.to_be_bytes());
    output.extend(u32::MAX.to_be_bytes());
    output.extend(bytes(random, 5000));
    stream.write_all(&output).ok()?;
    Some(stream)
}

fn wild_requests(mut stream: UnixStream, random: &mut Rng) -> Option<UnixStream> {
    let features: &[u32] =
        [&[][..], &[option::STRUCTURED_REPLY], &[option::EXTENDED_HEADERS]][random.usize(0..3)];
    settled(&mut stream, features)?;
    let is_extended = features.contains(&option::EXTENDED_HEADERS);
    for cookie in 0..random.u64(1..400) {
        let kinds = [
            Kind::Read,
            Kind::Write,
            Kind::Flush,
            Kind::Trim,
            Kind::WriteZeroes,
            Kind::BlockStatus,
            Kind::Other(random.u16(8..)),
        ];
        let kind = kinds[random.usize(0..kinds.len())];
        let len = [512, 4096, 1 << 20, random.u64(0..1 << 16), u64::MAX][random.usize(0..5)];
        let offset = [0, 8 << 20, random.u64(..), random.u64(0..16384) * 512][random.usize(0..4)];
        let flags = if random.bool() { 0 } else { random.u16(0..64) };
        let mut output = Vec::new();
        Request { flags, kind, cookie, offset, len }.put(&mut output, is_extended);
        if kind == Kind::Write && len <= 1 << 20 {
            output.resize(output.len() + len as usize, 7);
        }
        stream.write_all(&output).ok()?;
    }
    Some(stream)
}

fn half_write(mut stream: UnixStream, random: &mut Rng) -> Option<UnixStream> {
    settled(&mut stream, &[])?;
    let len = [4096, 256 << 10, 8 << 20][random.usize(0..3)];
    stream.write_all(&request(Kind::Write, 0, len, 1)).ok()?;
    stream.write_all(&vec![1; random.usize(0..len as usize).min(300_000)]).ok()?;
    Some(stream)
}

fn reads_nothing(mut stream: UnixStream, random: &mut Rng) -> Option<UnixStream> {
    let features: &[u32] = if random.bool() { &[] } else { &[option::STRUCTURED_REPLY] };
    settled(&mut stream, features)?;
    let len = [4096, 1 << 20, 8 << 20][random.usize(0..3)];
    for cookie in 0..1000 {
        if stream.write_all(&request(Kind::Read, 0, len, cookie)).is_err() {
            break;
        }
    }
    Some(stream)
}

fn bytes_one_by_one(mut stream: UnixStream) -> Option<UnixStream> {
    let mut output = vec![0, 0, 0, 3];
    put_option(&mut output, option::LIST, &[]);
    for byte in output {
        stream.write_all(&[byte]).ok()?;
        std::thread::yield_now();
    }
    Some(stream)
}

fn leaves_at_once(mut stream: UnixStream, random: &mut Rng) -> Option<UnixStream> {
    settled(&mut stream, &[])?;
    for cookie in 0..random.u64(1..200) {
        stream.write_all(&request(Kind::Read, 0, 1 << 16, cookie)).ok()?;
    }
    if random.bool() {
        stream.write_all(&request(Kind::Disconnect, 0, 0, 0)).ok()?;
    }
    None
}

fn status_of_all(mut stream: UnixStream) -> Option<UnixStream> {
    settled(&mut stream, &[option::STRUCTURED_REPLY])?;
    for cookie in 0..20_000 {
        if stream.write_all(&request(Kind::BlockStatus, 0, 8 << 20, cookie)).is_err() {
            break;
        }
    }
    Some(stream)
}
