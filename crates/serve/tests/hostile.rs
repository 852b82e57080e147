//! Hostile front ends: whatever they send, the target serves the others, and the next one at the
//! same socket.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, BlockDevice, ChannelOptions, RamDevice, RamOptions, Request as Io, WaitOptions,
};
use qpair_serve::{BlkOptions, Disk, Target, TargetOptions};
use qpair_socket::send;
use qpair_vhost_user::codec::{
    Header, InflightDescription, MemoryRegion, RegionMessage, Request, RingAddresses, RingFile,
    RingState, feature, number, protocol,
};
use qpair_vhost_user::{VhostUserBlk, VhostUserOptions};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};

const USER: u64 = 0x7000_0000;
const MEMORY_BYTES: u64 = 1 << 20;

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("vh").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn ram() -> Arc<dyn BlockDevice> {
    let options = RamOptions { size_bytes: 8 << 20, ..RamOptions::default() };
    Arc::new(RamDevice::new(options).unwrap())
}

fn memory() -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, MEMORY_BYTES).unwrap();
    file
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

struct Raw(UnixStream);

impl Raw {
    fn connect(path: &Path) -> Self {
        Self(UnixStream::connect(path).unwrap())
    }

    /// Sends a message. Returns whether it was sent, which fails once the target has disconnected
    /// this front end.
    fn tell(&self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let message = Header::request(request, payload.len(), false).message(payload);
        send(&self.0, &message, fds).is_ok()
    }

    /// Sets up a ring over new memory, and returns the memory.
    fn start(&self) -> OwnedFd {
        let file = memory();
        let tell = |request: Request, payload: &[u8], fds: &[BorrowedFd<'_>]| {
            assert!(self.tell(request as u32, payload, fds));
        };
        let features = feature::VERSION_1 | feature::PROTOCOL_FEATURES;
        tell(Request::SetFeatures, &number(features), &[]);
        tell(Request::SetProtocolFeatures, &number(protocol::CONFIG), &[]);
        let region =
            MemoryRegion { guest: 0, len_bytes: MEMORY_BYTES, user: USER, file_offset_bytes: 0 };
        tell(Request::SetMemTable, &MemoryRegion::table(&[region]), &[file.as_fd()]);
        let state = |number| RingState { ring: 0, number }.payload();
        tell(Request::SetVringNum, &state(16), &[]);
        tell(Request::SetVringBase, &state(0), &[]);
        let addresses = RingAddresses {
            ring: 0,
            flags: 0,
            descriptors: USER,
            used: USER + 0x2000,
            available: USER + 0x1000,
            log: 0,
        };
        tell(Request::SetVringAddr, &addresses.payload(), &[]);
        let file_of = RingFile { ring: 0, has_file: true }.payload();
        tell(Request::SetVringCall, &file_of, &[event().as_fd()]);
        tell(Request::SetVringKick, &file_of, &[event().as_fd()]);
        tell(Request::SetVringEnable, &state(1), &[]);
        file
    }
}

/// A well-behaved front end that checks the content of its disk.
struct Good {
    channel: Box<dyn qpair_block::IoChannel>,
    arena: Arc<Arena>,
    round: u64,
    // Dropped after the channel.
    _device: VhostUserBlk,
}

impl Good {
    fn connect(path: &Path) -> Self {
        let device = VhostUserBlk::open(path, VhostUserOptions::default()).unwrap();
        let arena = Arena::new(4096, 4, device.info().arena_options()).unwrap();
        let options = ChannelOptions { depth: 4, arenas: vec![arena.clone()], wake: None };
        let channel = device.open_channel(&options).unwrap();
        Self { channel, arena, round: 0, _device: device }
    }

    fn run(&mut self, request: Io) -> qpair_block::Buffer {
        self.channel.submit(request).unwrap();
        let mut done = Vec::new();
        while done.is_empty() {
            let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
            self.channel.wait(&mut done, one);
        }
        let done = done.pop().unwrap();
        done.result.unwrap();
        done.buffer.unwrap()
    }

    fn works(&mut self) {
        self.round += 1;
        let stamp = self.round.to_le_bytes().repeat(512);
        let at = self.round % 64 * 4096;
        let mut buffer = self.arena.lease().unwrap();
        buffer.copy_from(0, &stamp);
        drop(self.run(Io::write(at, 4096, buffer, 0)));
        let buffer = self.arena.lease().unwrap();
        assert_eq!(self.run(Io::read(at, 4096, buffer, 0)).as_slice(), stamp);
    }
}

fn target() -> Target {
    Target::new(TargetOptions { workers: 1, ..TargetOptions::default() }).unwrap()
}

/// Held by each test, since one counts the descriptors of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn messages_of_all_kinds() {
    let _alone = alone();
    let folder = folder();
    let target = target();
    let [good_path, bad_path] = ["good", "bad"].map(|name| {
        let path = folder.path().join(name);
        target.serve_blk(name, &Disk::new(name, ram()), &path, BlkOptions::default()).unwrap();
        path
    });
    let host_path = folder.path().join("host");
    target.serve_scsi("host", &host_path, 2).unwrap();
    target.add_scsi_target("host", None, &Disk::new("unit", ram())).unwrap();
    let mut good = Good::connect(&good_path);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    good.works();
    // Allow for a few more: the threads of the well-behaved front end sometimes duplicate
    // descriptors. A leak of one in each of 300 sessions would be noticed.
    let before = descriptors() + 8;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let raw = Raw::connect(if seed % 3 == 0 { &host_path } else { &bad_path });
        let guest = if random.bool() { raw.start() } else { memory() };
        for _ in 0..random.usize(0..20) {
            let request = match random.u32(0..10) {
                0 => random.u32(..),
                _ => Request::ALL[random.usize(0..Request::ALL.len())] as u32,
            };
            let word = |random: &mut fastrand::Rng| match random.u32(0..5) {
                0 => random.u64(..),
                1 => USER + random.u64(0..MEMORY_BYTES),
                _ => random.u64(0..40),
            };
            let (a, b, c, d) =
                (word(&mut random), word(&mut random), word(&mut random), word(&mut random));
            let region = MemoryRegion { guest: a, len_bytes: b, user: c, file_offset_bytes: d };
            let payload = match random.u32(0..8) {
                0 => number(a),
                1 => MemoryRegion::table(&vec![region; random.usize(0..10)]),
                2 => RegionMessage(region).payload(),
                3 => RingState { ring: a as u32, number: b as u32 }.payload(),
                4 => {
                    let ring = random.u32(0..3);
                    RingAddresses { ring, flags: 0, descriptors: a, used: b, available: c, log: d }
                        .payload()
                }
                5 => RingFile { ring: random.u32(0..4), has_file: random.bool() }.payload(),
                6 => InflightDescription {
                    len_bytes: a,
                    file_offset_bytes: b,
                    queues: c as u16,
                    queue_size: d as u16,
                }
                .payload(),
                _ => (0..random.usize(0..100)).map(|_| random.u8(..)).collect(),
            };
            let (pipe, _other) = std::io::pipe().unwrap();
            let (socket, _other) = UnixStream::pair().unwrap();
            let kick = event();
            let all = [guest.as_fd(), kick.as_fd(), pipe.as_fd(), socket.as_fd()];
            let fds: Vec<_> = (0..random.usize(0..3)).map(|_| all[random.usize(0..4)]).collect();
            if !raw.tell(request, &payload, &fds) {
                break;
            }
        }
        if seed % 10 == 0 {
            good.works();
        }
    }
    good.works();
    // The target serves the next front end at that socket.
    Good::connect(&bad_path).works();
    let until = Instant::now() + Duration::from_secs(20);
    // Sessions that have just ended may still have descriptors.
    while descriptors() > before {
        let names = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            all.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
                .collect::<Vec<_>>()
        };
        assert!(Instant::now() < until, "{before} descriptors are all there may be: {:?}", names());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn memory_that_shrinks_ends_its_session_alone() {
    let _alone = alone();
    let folder = folder();
    let target = target();
    let [good_path, bad_path] = ["good", "bad"].map(|name| {
        let path = folder.path().join(name);
        target.serve_blk(name, &Disk::new(name, ram()), &path, BlkOptions::default()).unwrap();
        path
    });
    let mut good = Good::connect(&good_path);
    good.works();
    let raw = Raw::connect(&bad_path);
    let guest = raw.start();
    // The front end is served, and then its memory is truncated.
    let until = Instant::now() + Duration::from_secs(20);
    while target.workers()[0].queues < 2 {
        assert!(Instant::now() < until, "{:?}", target.workers());
        std::thread::sleep(Duration::from_millis(1));
    }
    rustix::fs::ftruncate(&guest, 0).unwrap();
    // Kick, so that the worker accesses the missing memory.
    raw.tell(
        Request::SetVringKick as u32,
        &RingFile { ring: 0, has_file: true }.payload(),
        &[event().as_fd()],
    );
    while target.exports().iter().any(|export| export.name == "bad" && export.has_client) {
        target.look_after();
        good.works();
        assert!(Instant::now() < until, "{:?}", target.exports());
    }
    good.works();
    Good::connect(&bad_path).works();
}

/// Reads a disk, four requests at a time.
struct Reading {
    good: Good,
    in_flight: usize,
    done: u64,
}

impl Reading {
    fn connect(path: &Path) -> Self {
        let mut good = Good::connect(path);
        (0..64).for_each(|_| good.works());
        Self { good, in_flight: 0, done: 0 }
    }

    /// Takes completed reads, and submits new ones in their place.
    fn turn(&mut self) {
        let mut completions = Vec::new();
        self.good.channel.poll(&mut completions);
        for completion in completions {
            completion.result.unwrap();
            let (buffer, at) = (completion.buffer.unwrap(), completion.tag);
            // The last round that wrote this block before reading began.
            let round: u64 = if at == 0 { 64 } else { at };
            assert_eq!(buffer.as_slice(), round.to_le_bytes().repeat(512), "block {at}");
            (self.in_flight, self.done) = (self.in_flight - 1, self.done + 1);
        }
        while self.in_flight < 4 {
            let at = (self.done + self.in_flight as u64) % 64;
            let buffer = self.good.arena.lease().unwrap();
            self.good.channel.submit(Io::read(at * 4096, 4096, buffer, at)).unwrap();
            self.in_flight += 1;
        }
        self.good.channel.kick();
    }
}

/// Two guests share a worker with a hostile one, which requests as much as it can and breaks its
/// sessions. Each gets its share, and its own data.
#[test]
fn guests_beside_a_hostile_one_have_their_share() {
    let _alone = alone();
    let folder = folder();
    let target = target();
    let [first, second, bad_path] = ["first", "second", "bad"].map(|name| {
        let path = folder.path().join(name);
        target.serve_blk(name, &Disk::new(name, ram()), &path, BlkOptions::default()).unwrap();
        path
    });
    let (mut first, mut second) = (Reading::connect(&first), Reading::connect(&second));
    let is_over = Arc::new(AtomicBool::new(false));
    let hostile = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            let mut sessions = 0u64;
            while !is_over.load(Ordering::Relaxed) {
                sessions += 1;
                let raw = Raw::connect(&bad_path);
                let guest = raw.start();
                let mut bytes = [0u8; 4096];
                fastrand::fill(&mut bytes);
                // Descriptors and the available ring: chains with loops, addresses outside of
                // memory, an index far ahead.
                for offset_bytes in [0, 0x1000] {
                    rustix::io::pwrite(&guest, &bytes, offset_bytes).unwrap();
                }
                for _ in 0..20 {
                    let kick = RingFile { ring: 0, has_file: true }.payload();
                    raw.tell(Request::SetVringKick as u32, &kick, &[event().as_fd()]);
                }
            }
            sessions
        }
    });
    // One thread turns both guests, so that only the target decides which of them gets more.
    while first.done + second.done < 40_000 {
        first.turn();
        second.turn();
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(hostile.join().unwrap() > 0);
    let (least, most) = (first.done.min(second.done), first.done.max(second.done));
    assert!(10 * least >= 9 * most, "{least} and {most} requests");
}
