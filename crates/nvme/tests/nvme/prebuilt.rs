//! Prebuilt commands: the data that they move, and the number of doorbells that they need.

use std::sync::Arc;

use qpair_block::{
    Arena, ArenaOptions, BlockDevice, ChannelOptions, ErrorKind, Op, Request, WaitOptions,
};
use qpair_nvme::{PrebuiltQueue, WaitMode};
use qpair_softdev::SoftNvmeOptions;

use crate::rig::{Drive, options};

const SIZE: u64 = 4 << 20;

fn arena(bytes: usize) -> Arc<Arena> {
    Arena::new(bytes, 1, ArenaOptions::ordinary_pages()).unwrap()
}

fn request(drive: &Drive, make: impl FnOnce(&Arc<Arena>) -> Request) -> Vec<u8> {
    let arena = arena(128 << 10);
    let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
    let mut channel = drive.device.open_channel(&options).unwrap();
    channel.submit(make(&arena)).unwrap();
    let mut completions = Vec::new();
    let wait = WaitOptions { want: 1, linger: std::time::Duration::ZERO, timeout: None };
    while completions.is_empty() {
        channel.wait(&mut completions, wait);
    }
    let completion = completions.remove(0);
    completion.result.unwrap();
    completion.buffer.unwrap().as_slice().to_vec()
}

fn until_done(queue: &mut PrebuiltQueue, count: usize) -> Vec<u16> {
    let mut done = Vec::new();
    while done.len() < count {
        queue.poll(&mut done).unwrap();
    }
    done
}

#[test]
fn what_is_written_is_what_is_read() {
    for (block, len) in [(512, 4096), (4096, 8192), (512, 128 << 10)] {
        let drive = Drive::new(options(SIZE, block), 10_000, WaitMode::Poll);
        let mut queue = drive.device.open_prebuilt(Op::Write, len, 8).unwrap();
        let places: Vec<u64> = (0..8).map(|slot| (7 - slot) * u64::from(len)).collect();
        for slot in 0..8 {
            assert!(queue.submit(slot, places[usize::from(slot)]));
            assert!(!queue.submit(slot, 0), "it is under way");
            assert!(queue.buffer(slot).is_none(), "it is the controller's");
        }
        until_done(&mut queue, 8);
        assert_eq!(queue.doorbells(), 8, "one for each command");
        let mut reading = drive.device.open_prebuilt(Op::Read, len, 8).unwrap();
        for slot in 0..8 {
            assert!(reading.submit(slot, places[usize::from(slot)]));
        }
        until_done(&mut reading, 8);
        for slot in 0..8 {
            let written = queue.buffer(slot).unwrap().as_slice()[..len as usize].to_vec();
            assert!(written.iter().any(|byte| *byte != 0));
            assert!(reading.buffer(slot).unwrap().as_slice()[..len as usize] == written);
            let at = places[usize::from(slot)];
            let read = request(&drive, |arena| Request::read(at, len, arena.lease().unwrap(), 0));
            assert!(read[..len as usize] == written, "by the channel");
        }
    }
}

#[test]
fn rings_go_round() {
    let drive = Drive::new(options(SIZE, 512), 10_000, WaitMode::Poll);
    let mut queue = drive.device.open_prebuilt(Op::Read, 4096, 4).unwrap();
    let mut done: Vec<u16> = (0..4).collect();
    let mut ios = 0;
    while ios < 5000 {
        for slot in std::mem::take(&mut done) {
            assert!(queue.submit(slot, ios % 1024 * 4096));
            ios += 1;
        }
        queue.poll(&mut done).unwrap();
    }
    assert_eq!(queue.doorbells(), ios);
}

#[test]
fn what_cannot_be_prebuilt() {
    let soft = SoftNvmeOptions { mdts: 1, ..options(SIZE, 512) };
    let drive = Drive::new(soft, 10_000, WaitMode::Poll);
    let kind = |op, len, depth| drive.device.open_prebuilt(op, len, depth).unwrap_err().kind();
    assert_eq!(drive.device.command_bytes_max(), 8192);
    assert_eq!(kind(Op::Read, 16384, 1), ErrorKind::Unsupported);
    assert_eq!(kind(Op::Read, 100, 1), ErrorKind::Invalid);
    assert_eq!(kind(Op::Flush, 4096, 1), ErrorKind::Invalid);
    assert_eq!(kind(Op::Read, 4096, 0), ErrorKind::Invalid);
    assert_eq!(kind(Op::Read, 4096, 1 << 20), ErrorKind::Limit);
}

#[test]
fn past_the_end_is_an_error_and_a_reset_ends_it() {
    let drive = Drive::new(options(SIZE, 512), 10_000, WaitMode::Poll);
    let mut queue = drive.device.open_prebuilt(Op::Read, 4096, 2).unwrap();
    assert!(queue.submit(0, SIZE));
    let mut done = Vec::new();
    let error = loop {
        if let Err(error) = queue.poll(&mut done) {
            break error;
        }
    };
    assert!(error.to_string().contains("prebuilt command failed"), "{error}");
    drive.controller.reset().unwrap();
    assert!(queue.submit(1, 0));
    let error = (0..1_000_000).find_map(|_| queue.poll(&mut done).err()).unwrap();
    assert!(error.to_string().contains("was deleted"), "{error}");
    drop(queue);
    let read = request(&drive, |arena| Request::read(0, 4096, arena.lease().unwrap(), 0));
    assert_eq!(read.len(), 128 << 10, "the drive goes on");
}
