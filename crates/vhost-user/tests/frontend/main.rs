//! Tests the front end with back ends that violate the protocol, that come back as another disk, or
//! that are not back ends.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod fake;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fake::{Life, OnKick, begin, no_back_end};
use qpair_block::{
    Arena, BlockDevice, ChannelOptions, Completion, ErrorKind, IoChannel, Request, WaitOptions,
};
use qpair_pci::TimeoutPolicy;
use qpair_vhost_user::codec::feature;
use qpair_vhost_user::{VhostUserBlk, VhostUserOptions};
use qpair_virtio::blk::feature as blk;

/// A time long enough for any machine; no test waits so long if it works.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(200);

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::Builder::new().prefix("vf").tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.unwrap();
    let path = folder.path().join("d.sock");
    (folder, path)
}

fn options(reconnect: Duration) -> VhostUserOptions {
    VhostUserOptions { reconnect, ..VhostUserOptions::default() }
}

fn channel(device: &dyn BlockDevice) -> (Box<dyn IoChannel>, Arc<Arena>) {
    let arena = Arena::new(4096, 8, device.info().arena_options()).unwrap();
    let options = ChannelOptions { depth: 8, arenas: vec![arena.clone()], wake: None };
    (device.open_channel(&options).unwrap(), arena)
}

fn read(channel: &mut Box<dyn IoChannel>, arena: &Arc<Arena>, count: u64) -> Vec<Completion> {
    for block in 0..count {
        channel.submit(Request::read(block * 512, 512, arena.lease().unwrap(), block)).unwrap();
    }
    channel.kick();
    let mut done = Vec::new();
    let until = Instant::now() + LONG;
    while done.len() < count as usize {
        assert!(Instant::now() < until, "{} of {count} have come back", done.len());
        let timeout = Some(Duration::from_millis(100));
        channel.wait(&mut done, WaitOptions { want: 1, linger: Duration::ZERO, timeout });
    }
    done
}

/// Also tests that the device can be dropped before the channel.
#[test]
fn whatever_is_said_of_a_ring_requests_are_done_in_the_next_life() {
    // A regression: 65535 is past the end of the slots' memory, and the front end panicked.
    let heads = [1, 6, 300, 65535, u32::MAX].map(OnKick::WrongHead);
    for lie in [OnKick::HangUp, OnKick::TooFar, OnKick::Twice].into_iter().chain(heads) {
        for event_index in [0, feature::EVENT_IDX] {
            let (_folder, path) = folder();
            let lives = [lie, OnKick::Serve]
                .map(|on_kick| Life { features: event_index, ..Life::new(on_kick) });
            let back_end = begin(&path, lives.to_vec());
            let device = VhostUserBlk::open(&path, options(LONG)).unwrap();
            let (mut channel, arena) = channel(&device);
            drop(device);
            for completion in read(&mut channel, &arena, 2) {
                assert_eq!(completion.result, Ok(()), "{lie:?}");
            }
            assert_eq!(read(&mut channel, &arena, 8).len(), 8);
            drop(channel);
            assert_eq!(back_end.join().unwrap().len(), 2);
        }
    }
}

#[test]
fn another_disk_is_not_taken_for_the_one_before() {
    let before = Life { features: blk::FLUSH, ..Life::new(OnKick::HangUp) };
    let mut smaller = before;
    smaller.config.sectors -= 1;
    let mut other_blocks = Life { features: blk::FLUSH | blk::BLK_SIZE, ..before };
    other_blocks.config.block_bytes = 4096;
    let with_blocks = Life { features: blk::FLUSH | blk::BLK_SIZE, ..before };
    let without_flush = Life { features: 0, ..before };
    for (before, after, said) in [
        (before, smaller, "1048064 bytes"),
        (with_blocks, other_blocks, "blocks of 4096 bytes"),
        (before, without_flush, "features 0x200"),
    ] {
        let (_folder, path) = folder();
        let back_end = begin(&path, vec![before, after]);
        let device = VhostUserBlk::open(&path, options(Duration::ZERO)).unwrap();
        let (mut channel, arena) = channel(&device);
        let done = read(&mut channel, &arena, 2);
        for completion in done {
            assert_eq!(completion.result.unwrap_err().kind, ErrorKind::Gone, "{said}");
            assert!(completion.buffer.is_some());
        }
        drop(channel);
        let error = device.open_channel(&ChannelOptions::default()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Gone);
        assert!(error.to_string().contains(said) && error.way_out().is_some(), "{error}");
        drop(device);
        back_end.join().unwrap();
    }
}

/// A regression: the front end itself answered flushes while the disk had no cache, which must not
/// change when a cache appears later.
#[test]
fn a_cache_that_comes_later_is_not_agreed_on() {
    let (_folder, path) = folder();
    let later = Life { features: blk::FLUSH | blk::DISCARD, ..Life::new(OnKick::Serve) };
    let back_end = begin(&path, vec![Life::new(OnKick::HangUp), later]);
    let device = VhostUserBlk::open(&path, options(LONG)).unwrap();
    let (mut channel, arena) = channel(&device);
    assert_eq!(read(&mut channel, &arena, 1)[0].result, Ok(()));
    drop((channel, device));
    let told = back_end.join().unwrap();
    assert_eq!(told[0].features, told[1].features);
    assert_eq!(told[1].features & blk::FLUSH, 0);
}

#[test]
fn a_disk_that_grows_is_seen_and_whoever_asks_is_answered() {
    let (_folder, path) = folder();
    let back_end = begin(&path, vec![Life { grows: true, ..Life::new(OnKick::Serve) }]);
    let device = VhostUserBlk::open(&path, options(LONG)).unwrap();
    assert_eq!(device.size_bytes(), 1 << 20);
    let (mut channel, arena) = channel(&device);
    let until = Instant::now() + LONG;
    while device.size_bytes() != 2 << 20 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    // The answer is on its way when the size is there, and is heard in the meantime.
    assert_eq!(read(&mut channel, &arena, 1)[0].result, Ok(()));
    drop((channel, device));
    assert_eq!(back_end.join().unwrap()[0].answer, Some(0));
}

#[test]
fn the_timeout_policy_ends_the_wait() {
    let (_folder, path) = folder();
    let back_end = begin(&path, vec![Life::new(OnKick::HangUp)]);
    let options = VhostUserOptions {
        timeout_policy: TimeoutPolicy::new(|_| ControlFlow::Break(())),
        ..options(Duration::from_secs(1 << 20))
    };
    let device = VhostUserBlk::open(&path, options).unwrap();
    let (mut channel, arena) = channel(&device);
    let done = read(&mut channel, &arena, 1);
    assert_eq!(done[0].result.unwrap_err().kind, ErrorKind::Gone);
    back_end.join().unwrap();
}

#[test]
fn what_is_no_back_end_is_said_to_be_none() {
    let refused = |path: &PathBuf, kind: ErrorKind| {
        let options = VhostUserOptions { timeout: SHORT, ..VhostUserOptions::default() };
        let error = VhostUserBlk::open(path, options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.way_out().is_some(), "{error}");
    };
    let (folder, path) = folder();
    refused(&path, ErrorKind::NotFound);
    refused(&folder.path().join("x".repeat(200)), ErrorKind::Invalid);
    let file = folder.path().join("file");
    std::fs::write(&file, "not a socket").unwrap();
    refused(&file, ErrorKind::Gone);
    let datagrams = folder.path().join("datagrams");
    let _socket = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
    refused(&datagrams, ErrorKind::Unsupported);
    let others: [(_, ErrorKind); 4] = [
        (None, ErrorKind::Io),
        (Some(b"".as_slice()), ErrorKind::Gone),
        (Some(b"HTTP/1.1 400 Bad Request\r\n\r\n"), ErrorKind::Io),
        // An answer to another question.
        (Some(&[2, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]), ErrorKind::Io),
    ];
    for (at, (says, kind)) in others.into_iter().enumerate() {
        let path = folder.path().join(at.to_string());
        let other = no_back_end(&path, says);
        refused(&path, kind);
        other.join().unwrap();
    }
}

/// A regression: neither a time-out nor Ctrl-C could end a blocking connect.
#[test]
fn a_socket_where_too_many_wait_is_busy() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let (_folder, path) = folder();
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let _waits = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let options = VhostUserOptions { timeout: SHORT, ..VhostUserOptions::default() };
    let error = VhostUserBlk::open(&path, options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
}

/// SPDK's back end rounds each region outward to huge pages and touches a byte of each. Memory of
/// ordinary pages crashed it, and no message of ours named the remedy.
#[test]
fn a_back_end_that_maps_huge_pages() {
    let (_folder, path) = folder();
    let life = Life { maps_huge_pages: true, ..Life::new(OnKick::Serve) };
    let back_end = begin(&path, vec![life]);
    let device = VhostUserBlk::open(&path, options(SHORT)).unwrap();
    let arena = Arena::new(4096, 8, device.info().arena_options()).unwrap();
    let options_of = ChannelOptions { depth: 8, arenas: vec![arena], wake: None };
    let error = device.open_channel(&options_of).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    assert!(error.to_string().contains("told of this program's memory"), "{error}");
    let way_out = format!("vhost-user:memory=huge:{}", path.display());
    assert!(error.way_out().is_some_and(|way| way.contains(&way_out)), "{error}");
    drop(device);
    back_end.join().unwrap();

    let (_folder, path) = folder();
    let back_end = begin(&path, vec![life]);
    let huge = VhostUserOptions { huge_pages: true, ..options(LONG) };
    let device = match VhostUserBlk::open(&path, huge) {
        Ok(device) => device,
        Err(error) => {
            assert!(error.to_string().contains("sysctl -w vm.nr_hugepages="), "{error}");
            println!("skipped: {error}");
            return;
        }
    };
    let (mut channel, arena) = channel(&device);
    assert!(read(&mut channel, &arena, 8).iter().all(|completion| completion.result.is_ok()));
    // From memory of the caller's own, through the region.
    assert_eq!(channel.statistics().copied, 8);
    drop((channel, device));
    let told = back_end.join().unwrap().remove(0);
    assert_eq!((told.regions, told.touched), (1, 1));
}
