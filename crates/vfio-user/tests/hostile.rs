//! Hostile clients: whatever they send, the server keeps working, keeps nothing of theirs, and
//! serves the next client.
//!
//! A test program of its own, since it counts the descriptors of this process.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]
#![allow(clippy::print_stdout, reason = "seeds are reported")]

#[path = "vfio-user/common/mod.rs"]
mod common;

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use common::{Raw, Served, TestDevice, event, memory_file, wait_for};
use qpair_pci::PciFunction;
use qpair_vfio_user::codec::{Command, DmaMap, Header, RegionAccess, RegionInfo};
use qpair_vfio_user::{Client, ClientOptions};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn is_well(path: &Path) -> bool {
    let client = Client::connect(path, &ClientOptions::default());
    client.is_ok_and(|client| client.read_bar(0, 0, &mut [0; 4]).is_ok())
}

#[test]
fn the_server_goes_on() {
    let served = Served::new();
    let path = &served.path;
    assert!(is_well(path));
    served.wait_until_alone();
    let _ = served.last_end();
    let before = descriptors();

    broken_streams(&served);
    too_many_descriptors(&served);
    descriptors_nobody_asked_for(&served);
    slow_ones(&served);
    one_that_does_not_read(&served);
    noise(&served);
    memory_cut_short(&served);

    served.wait_until_alone();
    wait_for("its descriptors to be closed", || descriptors() <= before);
    assert!(served.device.dma.lock().unwrap().is_empty());
    assert!(is_well(path));
}

fn broken_streams(served: &Served) {
    let head = |size: u32, flags: u32| {
        let mut head = Header::command(1, Command::Reset, 0).message(&[]);
        head[4..8].copy_from_slice(&size.to_le_bytes());
        head[8..12].copy_from_slice(&flags.to_le_bytes());
        head
    };
    for (bytes, says) in [
        (head(0, 0), "a message cannot have 0 bytes"),
        (head(15, 0), "a message cannot have 15 bytes"),
        (head(u32::MAX, 0), "are allowed"),
        (head(1 << 20, 0), "are allowed"),
        (head(16, 2), "neither"),
        (head(16, 1), "a reply came without a command"),
    ] {
        let mut raw = Raw::agreed(&served.path);
        raw.send(&bytes, &[]);
        assert!(raw.answer().is_none(), "{says}");
        let said = served.last_end();
        assert!(said.contains(says), "{said}");
    }
    // Truncated at every offset of a message.
    let payload = RegionAccess { offset_bytes: 0, region: 0, len: 4 }.payload(&[1; 4]);
    let message = Header::command(1, Command::RegionWrite, payload.len()).message(&payload);
    for end in 1..message.len() {
        let raw = Raw::agreed(&served.path);
        raw.send(&message[..end], &[]);
        drop(raw);
        assert!(served.last_end().contains("middle"));
    }
    assert_ne!(served.device.register(0), 1, "half a command is none");
}

fn too_many_descriptors(served: &Served) {
    let file = memory_file(4096);
    let fds: Vec<BorrowedFd<'_>> = (0..40).map(|_| file.as_fd()).collect();
    let raw = Raw::agreed(&served.path);
    let message = Header::command(1, Command::Reset, 0).message(&[]);
    raw.send(&message, &fds);
    assert!(served.last_end().contains("descriptors"));
    // Some with each of two bytes of one message.
    let raw = Raw::agreed(&served.path);
    raw.send(&message[..1], &fds[..10]);
    raw.send(&message[1..2], &fds[..10]);
    assert!(served.last_end().contains("descriptors"));
}

fn descriptors_nobody_asked_for(served: &Served) {
    let mut raw = Raw::agreed(&served.path);
    let before = descriptors();
    let (file, event) = (memory_file(4096), event());
    let fds = [file.as_fd(), event.as_fd()];
    for _ in 0..50 {
        assert_eq!(raw.ask(Command::Reset, &[], &fds).errno(), 0);
        raw.ask(Command::GetRegionInfo, &RegionInfo::request(0, 4096), &fds);
        raw.ask(Command::DmaMap, &[0; 4], &fds);
        raw.ask(Command::SetIrqs, &[0; 4], &fds);
        raw.ask(Command::MigrationRead, &[], &fds);
    }
    // A mapping needs its file no longer than it takes to map it.
    for at in 0..8u64 {
        let map = DmaMap {
            readable: true,
            writable: true,
            file_offset_bytes: 0,
            iova: at << 20,
            len: 4096,
        };
        assert_eq!(raw.ask(Command::DmaMap, &map.payload(), &fds[..1]).errno(), 0);
    }
    assert_eq!(descriptors(), before + 2);
    drop((raw, file, event));
    let _ = served.last_end();
}

fn slow_ones(served: &Served) {
    // Half a greeting, and a whole one but for a byte, keep no client out.
    let greeting = Header::command(1, Command::Version, 4).message(&[0, 0, 1, 0]);
    let mut slow: Vec<_> = [3, 16, greeting.len() - 1]
        .map(|len| {
            let mut stream = UnixStream::connect(&served.path).unwrap();
            stream.write_all(&greeting[..len]).unwrap();
            stream
        })
        .into();
    for _ in 0..10 {
        assert!(is_well(&served.path));
        served.wait_until_alone();
    }
    // The slow connection may still complete its greeting.
    let mut last = slow.pop().unwrap();
    last.write_all(&greeting[greeting.len() - 1..]).unwrap();
    wait_for("its session", || served.has_client());
    drop((slow, last));
    served.wait_until_alone();
    let _ = served.last_end();

    // Sending one byte at a time works as well as sending all at once.
    let mut raw = Raw::agreed(&served.path);
    let payload = RegionAccess { offset_bytes: 0x80, region: 0, len: 2 }.payload(&[0xAB, 0xCD]);
    for byte in Header::command(1, Command::RegionWrite, payload.len()).message(&payload) {
        raw.send(&[byte], &[]);
    }
    assert_eq!(raw.answer().unwrap().errno(), 0);
    assert_eq!(served.device.register(0x81), 0xCD);
    // Many that say nothing, while it works.
    let crowd: Vec<_> = (0..40).map(|_| UnixStream::connect(&served.path).unwrap()).collect();
    for _ in 0..100 {
        assert_eq!(raw.ask(Command::Reset, &[], &[]).errno(), 0);
    }
    drop((raw, crowd));
    let _ = served.last_end();
}

/// A client asks and never reads an answer: the server then takes no more questions, and blocks on
/// nothing.
fn one_that_does_not_read(served: &Served) {
    let raw = Raw::agreed(&served.path);
    raw.stream.set_nonblocking(true).unwrap();
    let payload = RegionAccess { offset_bytes: 0, region: 0, len: 0x1000 }.payload(&[]);
    let question = Header::command(1, Command::RegionRead, payload.len()).message(&payload);
    let mut refused = 0;
    while refused < 20 {
        match (&raw.stream).write(&question) {
            Ok(bytes) if bytes == question.len() => refused = 0,
            Ok(_) => break,
            Err(_) => {
                refused += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
    let taken = served.counters().messages;
    assert!(taken < 10_000);
    assert!(served.has_client());
    drop(raw);
    let _ = served.last_end();
}

fn noise(served: &Served) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (file, event) = (memory_file(1 << 20), event());
    for _ in 0..300 {
        let mut raw = Raw::agreed(&served.path);
        raw.stream.set_nonblocking(true).unwrap();
        for _ in 0..random.usize(1..30) {
            let mut payload: Vec<u8> = (0..random.usize(0..80)).map(|_| random.u8(..)).collect();
            // Small numbers are the likelier ones to mean something.
            for byte in &mut payload {
                if random.u8(..) < 170 {
                    *byte = 0;
                }
            }
            let mut message = Header::command(1, Command::Reset, payload.len()).message(&payload);
            message[2] = random.u8(0..20);
            let fds = [file.as_fd(), event.as_fd()];
            let fds = &fds[..random.usize(0..3)];
            let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = rustix::net::SendAncillaryBuffer::new(&mut room);
            if !fds.is_empty() {
                control.push(rustix::net::SendAncillaryMessage::ScmRights(fds));
            }
            let flags = rustix::net::SendFlags::NOSIGNAL;
            let bytes = [std::io::IoSlice::new(&message)];
            if rustix::net::sendmsg(&raw.stream, &bytes, &mut control, flags).is_err() {
                break;
            }
        }
        raw.stream.set_nonblocking(false).unwrap();
        let _ = raw.stream.shutdown(std::net::Shutdown::Write);
        while raw.answer().is_some() {}
        drop(raw);
        let _ = served.last_end();
    }
}

/// A file that is long enough when it is passed, and too short when the device accesses it.
fn memory_cut_short(served: &Served) {
    let mut raw = Raw::agreed(&served.path);
    let file = memory_file(1 << 20);
    let map = DmaMap {
        readable: true,
        writable: true,
        file_offset_bytes: 0,
        iova: 1 << 32,
        len: 1 << 20,
    };
    assert_eq!(raw.ask(Command::DmaMap, &map.payload(), &[file.as_fd()]).errno(), 0);
    let write = |offset_bytes, data: &[u8]| {
        RegionAccess { offset_bytes, region: 0, len: data.len() as u32 }.payload(data)
    };
    let target = write(TestDevice::TARGET, &(1u64 << 32).to_le_bytes());
    assert_eq!(raw.ask(Command::RegionWrite, &target, &[]).errno(), 0);
    rustix::fs::ftruncate(&file, 0).unwrap();
    let doorbell = write(0x1000, &0xFFu32.to_le_bytes());
    assert_eq!(raw.ask(Command::RegionWrite, &doorbell, &[]).errno(), 0);
    assert!(served.last_end().contains("cut its memory short"));
    drop(raw);
}
