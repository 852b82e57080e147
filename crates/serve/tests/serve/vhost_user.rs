//! Tests the project's target and front end against each other, and the front end against QEMU's
//! storage daemon.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]
#![allow(clippy::print_stdout, reason = "skips are reported")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qpair_block::{
    Arena, BlockDevice, ChannelOptions, DeviceInfo, ErrorKind, IoChannel, Op, RamDevice,
    RamOptions, Request, SerialChannel, WaitOptions,
};
use qpair_conformance::{Options, run};
use qpair_nvme::{Controller, ControllerOptions};
use qpair_pci::InProcess;
use qpair_serve::{BlkOptions, Disk, Target, TargetOptions};
use qpair_softdev::{NamespaceOptions, SoftNvme, SoftNvmeOptions};
use qpair_vhost_user::{VhostUserBlk, VhostUserOptions};

use crate::narrow::Narrow;

const ONE: WaitOptions = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("vu").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn ram(logical_block_bytes: u32) -> Arc<dyn BlockDevice> {
    let size_bytes = 8 << 20;
    let options = RamOptions { size_bytes, logical_block_bytes, growable: true, read_only: false };
    Arc::new(RamDevice::new(options).unwrap())
}

fn target(workers: usize, poll: bool) -> Target {
    Target::new(TargetOptions { workers, poll, ..TargetOptions::default() }).unwrap()
}

/// Opens a disk as soon as a server listens at the path.
fn open(path: &Path) -> VhostUserBlk {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match VhostUserBlk::open(path, VhostUserOptions::default()) {
            Ok(device) => return device,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs each conformance check on a new connection, once the previous one has ended.
fn conforms(path: &Path) {
    let options = Options { rounds: 60, ..Options::default() };
    run(|| Arc::new(open(path)), options).assert_passed();
}

#[test]
fn our_front_end_on_our_target() {
    let folder = folder();
    let path = folder.path().join("disk.sock");
    for (block, workers) in [(512, 1), (4096, 2)] {
        let target = target(workers, false);
        let disk = Disk::new("disk", ram(block));
        target.serve_blk("disk", &disk, &path, BlkOptions::default()).unwrap();
        conforms(&path);
    }
}

/// A guest's memory reaches a user-space NVMe drive without any copy.
#[test]
fn an_nvme_drive_reaches_the_guests_memory() {
    let folder = folder();
    let path = folder.path().join("disk.sock");
    let namespace = NamespaceOptions { size_bytes: 8 << 20, ..NamespaceOptions::default() };
    let soft = SoftNvmeOptions { namespaces: vec![namespace], ..SoftNvmeOptions::default() };
    let function = InProcess::new("soft", SoftNvme::new(soft).unwrap());
    let controller = Controller::open(Arc::new(function), ControllerOptions::default()).unwrap();
    let target = target(1, false);
    let disk = Disk::new("disk", Arc::new(controller.open_default_namespace(None).unwrap()));
    target.serve_blk("disk", &disk, &path, BlkOptions::default()).unwrap();
    {
        let device = open(&path);
        let mut channel = SerialChannel::open(&device).unwrap();
        let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
        channel.write(4096, &bytes).unwrap();
        let mut read = vec![0; bytes.len()];
        channel.read(4096, &mut read).unwrap();
        assert!(read == bytes);
        let counters = disk.counters();
        assert_eq!((counters.written_bytes, counters.bounced), (1 << 20, 0));
    }
    conforms(&path);
}

/// A guest is offered the operations that the device supports, and no others.
#[test]
fn verbs_are_those_of_the_device() {
    let folder = folder();
    let path = folder.path().join("disk.sock");
    for (discards, writes_zeroes) in [(true, true), (true, false), (false, true), (false, false)] {
        let target = target(1, false);
        let inner = ram(512);
        let info = DeviceInfo { discards, writes_zeroes, ..inner.info().clone() };
        let disk = Disk::new("disk", Arc::new(Narrow { info, inner }));
        target.serve_blk("disk", &disk, &path, BlkOptions::default()).unwrap();
        let device = open(&path);
        let found = (device.info().discards, device.info().writes_zeroes);
        assert_eq!(found, (discards, writes_zeroes));
    }
}

/// QEMU's storage daemon on a file, if it is installed.
struct Daemon(Child);

impl Daemon {
    fn start(folder: &Path, socket: &Path) -> Option<Self> {
        let image = folder.join("image");
        if !image.exists() {
            std::fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
        }
        let blockdev = format!("driver=file,node-name=f,filename={}", image.display());
        let export = format!(
            "type=vhost-user-blk,id=e,node-name=f,addr.type=unix,addr.path={},writable=on,num-queues=4",
            socket.display()
        );
        let started = Command::new("qemu-storage-daemon")
            .args(["--blockdev", &blockdev, "--export", &export])
            .stdin(Stdio::null())
            .spawn();
        match started {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                println!("skipped: no qemu-storage-daemon: {error}");
                None
            }
        }
    }

    fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn our_front_end_on_qemu() {
    let folder = folder();
    let path = folder.path().join("q.sock");
    let Some(_daemon) = Daemon::start(folder.path(), &path) else { return };
    conforms(&path);
}

/// Writes blocks stamped with their round, many at a time, and then reads all of them. No request
/// may fail.
fn hammer(device: &dyn BlockDevice, rounds: u64, mut at_round: impl FnMut(u64)) {
    const BLOCKS: u64 = 64;
    let arena = Arena::new(4096, 16, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 16, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    let drain = |channel: &mut Box<dyn IoChannel>, left: u32| {
        let mut done = Vec::new();
        while channel.in_flight() > left {
            channel.wait(&mut done, ONE);
            for completion in done.drain(..) {
                completion.result.unwrap();
                if completion.op == Op::Read {
                    let bytes = completion.buffer.unwrap();
                    let stamp = u64::from_le_bytes(bytes.as_slice()[..8].try_into().unwrap());
                    assert_eq!(stamp, rounds << 32 | completion.tag);
                }
            }
        }
    };
    for round in 1..=rounds {
        for block in 0..BLOCKS {
            drain(&mut channel, 15);
            let mut buffer = arena.lease().unwrap();
            buffer.copy_from(0, &(round << 32 | block).to_le_bytes().repeat(512));
            channel.submit(Request::write(block * 4096, 4096, buffer, block)).unwrap();
            channel.kick();
            if block == 32 {
                at_round(round);
            }
        }
        // The next round must be written after this one.
        drain(&mut channel, 0);
    }
    for block in 0..BLOCKS {
        drain(&mut channel, 15);
        let buffer = arena.lease().unwrap();
        channel.submit(Request::read(block * 4096, 4096, buffer, block)).unwrap();
    }
    drain(&mut channel, 0);
}

#[test]
fn the_back_end_goes_and_comes_back() {
    let folder = folder();
    let path = folder.path().join("disk.sock");
    let disk = Disk::new("disk", ram(512));
    let mut current = Some(target(1, false));
    current.as_ref().unwrap().serve_blk("disk", &disk, &path, BlkOptions::default()).unwrap();
    let device = open(&path);
    hammer(&device, 30, |round| {
        if round % 10 == 5 {
            drop(current.take());
            let next = target(2, false);
            next.serve_blk("disk", &disk, &path, BlkOptions::default()).unwrap();
            current = Some(next);
        }
    });
    assert_eq!(device.resets(), 3);
}

#[test]
fn qemu_goes_by_kill_and_comes_back() {
    let folder = folder();
    let path = folder.path().join("q.sock");
    let Some(mut daemon) = Daemon::start(folder.path(), &path) else { return };
    let device = open(&path);
    hammer(&device, 30, |round| {
        if round % 10 == 5 {
            daemon.kill();
            let _ = std::fs::remove_file(&path);
            daemon = Daemon::start(folder.path(), &path).unwrap();
        }
    });
}

#[test]
fn a_back_end_that_stays_away_is_gone() {
    let folder = folder();
    let path = folder.path().join("disk.sock");
    let target = target(1, false);
    target.serve_blk("disk", &Disk::new("disk", ram(512)), &path, BlkOptions::default()).unwrap();
    let options = VhostUserOptions { reconnect: Duration::ZERO, ..VhostUserOptions::default() };
    let device = VhostUserBlk::open(&path, options).unwrap();
    let arena = Arena::new(4096, 1, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 4, arenas: vec![arena.clone()], wake: None };
    let mut channel = device.open_channel(&options).unwrap();
    drop(target);
    channel.submit(Request::read(0, 4096, arena.lease().unwrap(), 1)).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        channel.wait(&mut done, ONE);
    }
    assert_eq!(done[0].result.unwrap_err().kind, ErrorKind::Gone);
    assert!(done[0].buffer.is_some());
}

#[test]
fn a_disk_that_grows_is_seen() {
    let folder = folder();
    let path = folder.path().join("disk.sock");
    let target = target(1, false);
    let below = ram(512);
    target
        .serve_blk("disk", &Disk::new("disk", below.clone()), &path, BlkOptions::default())
        .unwrap();
    let device = open(&path);
    assert_eq!(device.size_bytes(), 8 << 20);
    below.grow(16 << 20).unwrap();
    target.look_after();
    let until = Instant::now() + Duration::from_secs(20);
    while device.size_bytes() != 16 << 20 {
        assert!(Instant::now() < until, "{}", device.size_bytes());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn more_channels_than_queues_and_sockets_without_anybody() {
    let folder = folder();
    let path = folder.path().join("disk.sock");
    let target = target(1, true);
    let options = BlkOptions { queues: 2, read_only: true };
    target.serve_blk("disk", &Disk::new("disk", ram(512)), &path, options).unwrap();
    let device = open(&path);
    assert!(device.info().read_only);
    let channels: Vec<_> =
        (0..2).map(|_| device.open_channel(&ChannelOptions::default()).unwrap()).collect();
    let error = device.open_channel(&ChannelOptions::default()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Limit);
    drop(channels);
    assert_eq!(target.remove("disk", false).unwrap_err().kind(), ErrorKind::Busy);
    target.remove("disk", true).unwrap();
    let missing = VhostUserBlk::open(&path, VhostUserOptions::default()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.way_out().is_some());
}
