//! A hostile guest of `qpair target`, over its socket: whatever stands in the rings of its disk or
//! of its SCSI host, in their chains, commands and tasks, and however it changes while it is read,
//! the target neither crashes nor hangs, gives the rings back when it is asked, and touches nothing
//! but the memory that it was given.

#![no_main]

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use qpair_block::{RamDevice, RamOptions};
use qpair_memory::Mapping;
use qpair_socket::send;
use qpair_serve::{BlkOptions, Disk, Target, TargetOptions};
use qpair_vhost_user::codec::{
    HEADER_BYTES, Header, MemoryRegion, Request, RingAddresses, RingFile, RingState, feature,
    number,
};
use qpair_virtio::ring::{Area, Descriptor, Layout};
use qpair_virtio::scsi::{REQUEST_QUEUE, address};

mod input;

use input::Input;

const ENTRIES: u16 = 16;
/// The guest's memory, and as much after it that the target is not given.
const MEMORY_BYTES: u64 = 64 << 10;
const USER: u64 = 0x7000_0000;
const RING_BYTES: u64 = 0x1000;
/// Where commands and tasks lie, and tables of descriptors.
const SLOTS_AT: u64 = 0x4000;
const TABLES_AT: u64 = 0x5000;
const MARK: u64 = 0x5AFE_5AFE_5AFE_5AFE;
/// How long the target may take to look at what was offered: what it makes of it is not always
/// told.
const LOOK: Duration = Duration::from_micros(300);
const LOST: Duration = Duration::from_secs(20);

struct Setup {
    paths: [PathBuf; 2],
    memory: Arc<Mapping>,
    file: OwnedFd,
    _target: Target,
}

fn setup() -> &'static Setup {
    static SETUP: OnceLock<Setup> = OnceLock::new();
    SETUP.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("target-rings-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let target = Target::new(TargetOptions::default()).expect("a target");
        let disk = |name: &str| {
            let options = RamOptions { size_bytes: 1 << 20, ..RamOptions::default() };
            Disk::new(name, Arc::new(RamDevice::new(options).expect("memory")))
        };
        let paths = ["blk", "scsi"].map(|name| folder.join(name));
        target.serve_blk("blk", &disk("a"), &paths[0], BlkOptions::default()).expect("a socket");
        target.serve_scsi("scsi", &paths[1], 1).expect("a socket");
        for name in ["b", "c"] {
            target.add_scsi_target("scsi", None, &disk(name)).expect("a target");
        }
        let (memory, file) = Mapping::new_file(2 * MEMORY_BYTES as usize).expect("memory");
        Setup { paths, memory, file, _target: target }
    })
}

struct Guest {
    stream: UnixStream,
    rings: u16,
    layout: Layout,
    memory: &'static Mapping,
}

impl Guest {
    fn tell(&self, request: Request, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        let bytes = Header::request(request as u32, payload.len(), false).message(payload);
        // One that was sent away hears of it when it waits for an answer.
        let _ = send(&self.stream, &bytes, fds);
    }

    fn start(&self, file: BorrowedFd<'_>) {
        self.tell(Request::SetFeatures, &number(feature::VERSION_1 | feature::INDIRECT_DESC), &[]);
        let region =
            MemoryRegion { guest: 0, len_bytes: MEMORY_BYTES, user: USER, file_offset_bytes: 0 };
        self.tell(Request::SetMemTable, &MemoryRegion::table(&[region]), &[file]);
        for ring in 0..u32::from(self.rings) {
            let state = |number| RingState { ring, number }.payload();
            self.tell(Request::SetVringNum, &state(ENTRIES.into()), &[]);
            let start = USER + u64::from(ring) * RING_BYTES;
            let addresses = RingAddresses {
                ring,
                flags: 0,
                descriptors: start,
                used: start + self.layout.used_at() as u64,
                available: start + self.layout.available_at() as u64,
                log: 0,
            };
            self.tell(Request::SetVringAddr, &addresses.payload(), &[]);
            self.tell(Request::SetVringKick, &RingFile { ring, has_file: false }.payload(), &[]);
        }
    }

    /// Gives the target time to look.
    fn look(&self, offered: &[u16]) {
        let start = Instant::now();
        let is_done = |(ring, offered): (usize, &u16)| {
            let at = ring * RING_BYTES as usize + self.layout.used_at() + 2;
            self.memory.bytes().load_u16_acquire(at) == *offered
        };
        while !offered.iter().enumerate().all(is_done) && start.elapsed() < LOOK {
            std::thread::yield_now();
        }
    }

    /// Takes all rings back.
    fn stop(mut self) {
        for ring in 0..u32::from(self.rings) {
            self.tell(Request::GetVringBase, &RingState { ring, number: 0 }.payload(), &[]);
            let mut answer = [0; HEADER_BYTES + 8];
            self.stream.set_read_timeout(Some(LOST)).expect("a time");
            self.stream.read_exact(&mut answer).expect("the target answers");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Setup { paths, memory, file, .. } = setup();
    let mut input = Input::new(data);
    let is_scsi = input.byte() & 1 == 1;
    let bytes = memory.bytes();
    bytes.zero(0, MEMORY_BYTES as usize);
    for at in (MEMORY_BYTES as usize..2 * MEMORY_BYTES as usize).step_by(8) {
        bytes.store_u64(at, MARK);
    }
    let layout = Layout::new(ENTRIES).expect("a power of two");
    let rings = if is_scsi { REQUEST_QUEUE + 1 } else { 1 };
    let stream = UnixStream::connect(&paths[usize::from(is_scsi)]).expect("the target listens");
    let guest = Guest { stream, rings, layout, memory };
    guest.start(file.as_fd());
    let mut offered = vec![0u16; rings.into()];
    while !input.is_over() {
        // Mostly the ring of requests.
        let which = u64::from(match input.byte() % 8 {
            0 => 0,
            1 => 1 % rings,
            _ => rings - 1,
        });
        let index = input.half() % ENTRIES;
        let slot = SLOTS_AT + 64 * u64::from(input.byte() % 32);
        match input.byte() % 8 {
            0..3 => {
                let table = which * RING_BYTES;
                let table = if input.byte() % 4 == 0 { TABLES_AT } else { table };
                let address = match input.byte() % 8 {
                    0..3 => slot,
                    3 => TABLES_AT,
                    4 => MEMORY_BYTES - u64::from(input.byte()),
                    5 => input.word(),
                    _ => u64::from(input.half()),
                };
                let len = match input.byte() % 8 {
                    0 => 16,
                    1 => 51,
                    2 => 108,
                    3 => 24,
                    4 => 512 * u32::from(input.byte() % 16),
                    _ => u32::from(input.half()),
                };
                let (next, flags) = (input.half() % (ENTRIES + 1), u16::from(input.byte() % 8));
                let area = Area::new(bytes, table as usize);
                Descriptor { address, len, flags, next }.store(area, index);
            }
            // A command, or a request of a disk.
            3 if is_scsi => {
                bytes.copy_from(slot as usize, &address(input.byte() % 3, 0));
                bytes.copy_from(slot as usize + 19, &input.bytes::<16>());
            }
            3 => {
                bytes.store_u32(slot as usize, u32::from(input.byte() % 16));
                bytes.store_u64(slot as usize + 8, u64::from(input.half() % 2049));
            }
            // A task.
            4 => {
                bytes.store_u32(slot as usize, u32::from(input.byte() % 3));
                bytes.store_u32(slot as usize + 4, u32::from(input.byte() % 9));
                bytes.copy_from(slot as usize + 8, &address(input.byte() % 3, 0));
            }
            5 => bytes.store_u64(usize::from(input.half()) & !7, input.word()),
            6 => {
                let at = (which * RING_BYTES) as usize + layout.available_at();
                let offered = &mut offered[which as usize];
                bytes.store_u16(at + 4 + 2 * usize::from(*offered % ENTRIES), index);
                *offered = offered.wrapping_add(1);
                bytes.store_u16_release(at + 2, *offered);
            }
            _ => guest.look(&offered),
        }
    }
    guest.look(&offered);
    guest.stop();
    for at in (MEMORY_BYTES as usize..2 * MEMORY_BYTES as usize).step_by(8) {
        assert_eq!(bytes.load_u64(at), MARK, "written past the guest's memory");
    }
});
