//! A SCSI host over its socket: sleeping queues are woken by kicks, by targets that are added and
//! removed, and by task management.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use qpair_block::{Mapping, RamDevice, RamOptions};
use qpair_scsi_wire::{CHECK_CONDITION, Command as Scsi, GOOD};
use qpair_serve::{Disk, Target, TargetOptions};
use qpair_socket::send;
use qpair_vhost_user::codec::{
    HEADER_BYTES, Header, MemoryRegion, Request, RingAddresses, RingFile, RingState, feature,
    number,
};
use qpair_virtio::ring::{Descriptor, DriverRing, Layout, NEXT, WRITE};
use qpair_virtio::scsi::{
    CDB_BYTES, COMMAND_BYTES, CONTROL_QUEUE, Command, EVENT_BYTES, EVENT_QUEUE, Event,
    FEATURE_HOTPLUG, REQUEST_QUEUE, RESPONSE_BYTES, TASK_BYTES, Task, address, event, response,
    task,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

const MEMORY_BYTES: usize = 1 << 20;
const USER: u64 = 0x7000_0000;
const SIZE: u16 = 16;
/// The bytes of memory for each ring: its areas, and slots for its requests.
const RING_BYTES: usize = 0x2000;
const SLOTS_AT: usize = 0x1000;
const RINGS: u16 = REQUEST_QUEUE + 1;

struct Ring {
    number: u16,
    ring: DriverRing,
    kick: OwnedFd,
    call: OwnedFd,
}

struct Guest {
    stream: UnixStream,
    memory: Arc<Mapping>,
    layout: Layout,
    rings: Vec<Ring>,
}

fn event_fd() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

impl Guest {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        let (memory, file) = Mapping::new_file(MEMORY_BYTES).unwrap();
        let layout = Layout::new(SIZE).unwrap();
        let ring = |number| Ring {
            number,
            ring: DriverRing::new(layout),
            kick: event_fd(),
            call: event_fd(),
        };
        let guest = Self { stream, memory, layout, rings: (0..RINGS).map(ring).collect() };
        let tell = |request: Request, payload: &[u8], fds: &[BorrowedFd<'_>]| {
            let bytes = Header::request(request as u32, payload.len(), false).message(payload);
            send(&guest.stream, &bytes, fds).unwrap();
        };
        tell(Request::SetFeatures, &number(feature::VERSION_1 | FEATURE_HOTPLUG), &[]);
        let len_bytes = MEMORY_BYTES as u64;
        let region = MemoryRegion { guest: 0, len_bytes, user: USER, file_offset_bytes: 0 };
        tell(Request::SetMemTable, &MemoryRegion::table(&[region]), &[file.as_fd()]);
        for it in &guest.rings {
            let ring = u32::from(it.number);
            let state = |number| RingState { ring, number }.payload();
            tell(Request::SetVringNum, &state(SIZE.into()), &[]);
            let start = USER + (usize::from(it.number) * RING_BYTES) as u64;
            let addresses = RingAddresses {
                ring,
                flags: 0,
                descriptors: start,
                used: start + layout.used_at() as u64,
                available: start + layout.available_at() as u64,
                log: 0,
            };
            tell(Request::SetVringAddr, &addresses.payload(), &[]);
            let file_of = RingFile { ring, has_file: true }.payload();
            tell(Request::SetVringCall, &file_of, &[it.call.as_fd()]);
            tell(Request::SetVringKick, &file_of, &[it.kick.as_fd()]);
        }
        guest
    }

    /// Offers a chain of two parts, one to be read and one to be written by the device; or only the
    /// second part if `sent` is empty.
    fn offer(&mut self, which: u16, sent: &[u8], written_bytes: usize) {
        let memory = self.memory.clone();
        let start = usize::from(which) * RING_BYTES;
        let mut areas = self.layout.areas(memory.bytes());
        for area in [&mut areas.descriptors, &mut areas.available, &mut areas.used] {
            area.at += start;
        }
        let place = start + SLOTS_AT;
        memory.bytes().copy_from(place, sent);
        let written = |next| Descriptor {
            address: place as u64 + 0x100,
            len: written_bytes as u32,
            flags: WRITE,
            next,
        };
        if sent.is_empty() {
            written(0).store(areas.descriptors, 0);
        } else {
            let len = sent.len() as u32;
            Descriptor { address: place as u64, len, flags: NEXT, next: 1 }
                .store(areas.descriptors, 0);
            written(0).store(areas.descriptors, 1);
        }
        let ring = &mut self.rings[usize::from(which)];
        ring.ring.offer(areas, 0);
        if ring.ring.publish(areas) {
            rustix::io::write(&ring.kick, &1u64.to_ne_bytes()).unwrap();
        }
    }

    /// Waits for a call, and returns the bytes that the device wrote.
    #[track_caller]
    fn wait(&mut self, which: u16, written_bytes: usize) -> Vec<u8> {
        let memory = self.memory.clone();
        let start = usize::from(which) * RING_BYTES;
        let mut areas = self.layout.areas(memory.bytes());
        for area in [&mut areas.descriptors, &mut areas.available, &mut areas.used] {
            area.at += start;
        }
        let ring = &mut self.rings[usize::from(which)];
        while ring.ring.take(areas).unwrap().is_none() {
            let mut fds = [PollFd::new(&ring.call, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(poll(&mut fds, Some(&timeout)).unwrap(), 1, "nobody calls");
            rustix::io::read(&ring.call, &mut [0; 8]).unwrap();
        }
        let mut bytes = vec![0; written_bytes];
        memory.bytes().copy_to(start + SLOTS_AT + 0x100, &mut bytes);
        bytes
    }

    /// Sends TEST UNIT READY, and returns its response and status.
    #[track_caller]
    fn is_ready(&mut self, target: u8) -> (u8, u8) {
        let mut cdb = [0; CDB_BYTES];
        cdb[..16].copy_from_slice(Scsi::TestUnitReady.encode().padded());
        let command = Command { address: address(target, 0), id: 7, cdb }.encode();
        assert_eq!(command.len(), COMMAND_BYTES);
        self.offer(REQUEST_QUEUE, &command, RESPONSE_BYTES);
        let found = self.wait(REQUEST_QUEUE, RESPONSE_BYTES);
        (found[11], found[10])
    }

    fn event(&mut self) -> Event {
        let bytes = self.wait(EVENT_QUEUE, EVENT_BYTES);
        self.offer(EVENT_QUEUE, &[], EVENT_BYTES);
        Event::decode(bytes[..].try_into().unwrap())
    }
}

fn ram(name: &str) -> Arc<Disk> {
    let options = RamOptions { size_bytes: 1 << 20, ..RamOptions::default() };
    Disk::new(name, Arc::new(RamDevice::new(options).unwrap()))
}

/// Waits until the kernel reports that the workers sleep.
fn asleep(target: &Target) {
    let sleeps = |tid: u32| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
        status.lines().any(|line| line.starts_with("State:\tS"))
    };
    let mut looks = 0;
    while looks < 5 {
        std::thread::sleep(Duration::from_millis(1));
        let all = target.workers().iter().all(|worker| sleeps(worker.tid));
        looks = if all { looks + 1 } else { 0 };
    }
}

#[test]
fn queues_that_sleep_are_woken() {
    let folder =
        tempfile::Builder::new().prefix("vs").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("host");
    let options = TargetOptions { workers: 2, ..TargetOptions::default() };
    let target = Target::new(options).unwrap();
    target.serve_scsi("host", &path, 1).unwrap();
    assert_eq!(target.add_scsi_target("host", None, &ram("first")).unwrap(), 0);
    let mut guest = Guest::connect(&path);
    guest.offer(EVENT_QUEUE, &[], EVENT_BYTES);
    // The unit attentions come first: power on, and that another guest has connected.
    while guest.is_ready(0) == (response::OK, CHECK_CONDITION) {}
    assert_eq!(guest.is_ready(0), (response::OK, GOOD));
    assert_eq!(guest.is_ready(6).0, response::BAD_TARGET);
    for round in 0..3 {
        asleep(&target);
        assert_eq!(target.add_scsi_target("host", Some(6), &ram("late")).unwrap(), 6);
        let told = guest.event();
        assert_eq!((told.kind, told.reason), (event::TRANSPORT_RESET, event::RESCAN), "{round}");
        asleep(&target);
        assert_eq!(guest.is_ready(6), (response::OK, CHECK_CONDITION));
        assert_eq!(guest.is_ready(6), (response::OK, GOOD));
        asleep(&target);
        let what = Task { what: task::LUN_RESET, address: address(6, 0), id: 0 };
        guest.offer(CONTROL_QUEUE, &what.encode(), 1);
        assert_eq!(TASK_BYTES, what.encode().len());
        assert_eq!(guest.wait(CONTROL_QUEUE, 1), [response::OK]);
        assert_eq!(guest.is_ready(6), (response::OK, CHECK_CONDITION));
        asleep(&target);
        // The queue with a channel to the disk sleeps, and still releases it.
        let disk = target.remove_scsi_target("host", 6).unwrap();
        while Arc::strong_count(&disk) > 1 {
            std::thread::yield_now();
        }
        assert_eq!(guest.event().reason, event::REMOVED);
        assert_eq!(guest.is_ready(6).0, response::BAD_TARGET);
    }
    // All rings are returned, the event ring with its unused buffers.
    for (ring, expected) in [(1u32, 6u32), (0, 3)] {
        let state = RingState { ring, number: 0 }.payload();
        let request = Request::GetVringBase as u32;
        let bytes = Header::request(request, state.len(), false).message(&state);
        send(&guest.stream, &bytes, &[]).unwrap();
        let mut answer = [0; HEADER_BYTES + 8];
        guest.stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        guest.stream.read_exact(&mut answer).unwrap();
        let found = RingState::parse(&answer[HEADER_BYTES..]).unwrap();
        assert_eq!(found.number, expected, "ring {ring}");
    }
}
