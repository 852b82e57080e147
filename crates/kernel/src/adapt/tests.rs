//! Devices that are forced to change their way all the time. Product code has no such hook: the
//! group of these channels has a plan that exists in tests only.

use std::sync::Arc;
use std::time::Duration;

use qpair_block::{Arena, ChannelOptions, IoChannel, Op, Request, WaitOptions};

use super::adaptation::Adaptation;
use super::channel::Channel;
use super::group::Group;
use super::way::{KERNEL, Way};
use super::ways::Ways;
use crate::device::open_channel;
use crate::device::tests::conform;
use crate::file::{File, FileOptions};

fn ways_to(file: &Arc<File>) -> Arc<Ways> {
    let file = file.clone();
    Arc::new(Ways {
        family: &KERNEL,
        start: Way::Interrupts,
        cores: 2.0,
        others: Vec::new(),
        has_threads: true,
        why: "a test".to_owned(),
        adaptation: Arc::new(Adaptation::new(&KERNEL, "a test".to_owned())),
        open: Box::new(move |way, options| open_channel(&file, way.mode(), options)),
    })
}

/// Whether this machine has io_uring; the other ways are refused where they are missing.
fn has_io_uring() -> bool {
    let checked = crate::io_uring::check();
    if let Err(error) = &checked {
        eprintln!("skipped: {error}");
    }
    checked.is_ok()
}

const ALL: [&[Way]; 4] = [
    &[Way::Libaio, Way::Interrupts, Way::OwnThread],
    &[Way::OwnThread, Way::Libaio, Way::SharedThread, Way::Interrupts],
    &[Way::Calls, Way::Interrupts],
    &[Way::Polling, Way::Libaio, Way::Calls, Way::OwnThread],
];

#[test]
fn a_channel_that_always_changes_conforms() {
    if !has_io_uring() {
        return;
    }
    // Closing a channel of libaio takes milliseconds, so not all combinations change all the time.
    for (ways, look_every) in ALL.into_iter().zip([17, 33, 1, 33]) {
        conform(move |file, options| {
            let group = Group::forced(ways.to_vec());
            Ok(Box::new(Channel::on(&ways_to(&file), options, group, look_every)?))
        });
    }
}

fn scratch() -> File {
    let program = std::env::current_exe().unwrap();
    let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let path = directory.path().join("file");
    let options = FileOptions { create: Some(BLOCKS * BLOCK as u64), ..FileOptions::new(&path) };
    File::open(&options).unwrap()
}

const BLOCK: usize = 4096;
const BLOCKS: u64 = 256;
const DEPTH: u32 = 32;

/// A load that verifies: each block is written with a stamp, flushed now and then, and read again,
/// while the channel changes every few requests. Each tag comes back exactly once.
#[test]
fn no_request_is_lost_or_answered_twice_while_the_way_changes() {
    if !has_io_uring() {
        return;
    }
    for ways in ALL {
        let file = Arc::new(scratch());
        let arena = Arena::new(BLOCK, DEPTH, file.limits.arena_options()).unwrap();
        let options = ChannelOptions { depth: DEPTH, arenas: vec![arena.clone()], wake: None };
        let to_file = ways_to(&file);
        let group = Group::forced(ways.to_vec());
        let mut channel = Channel::on(&to_file, &options, group, 40).unwrap();
        verify(&mut channel, &arena);
        let statistics = channel.statistics();
        assert_eq!(statistics.errors, 0, "{ways:?}");
        drop(channel);
        let state = to_file.adaptation.state();
        println!("{ways:?}: {} changes, {statistics:?}", state.changes);
        assert!(state.changes > 100 && state.channels.is_empty(), "{state:?}");
        let all: Vec<_> = (0..DEPTH).map(|_| arena.lease().unwrap()).collect();
        drop(all);
    }
}

fn verify(channel: &mut dyn IoChannel, arena: &Arc<Arena>) {
    let mut rng = fastrand::Rng::with_seed(39);
    let mut stamps = vec![0_u64; BLOCKS as usize];
    // The operation on each block that is in flight; block `BLOCKS` stands for flushes.
    let mut under_way = vec![None; BLOCKS as usize + 1];
    let (mut completions, mut answered, mut submitted) = (Vec::new(), 0_u64, 0_u64);
    let one = WaitOptions { want: 4, linger: Duration::from_micros(200), timeout: None };
    while answered < 20_000 {
        while channel.in_flight() < DEPTH && submitted < 20_000 {
            let block = if rng.u8(0..16) == 0 { BLOCKS } else { rng.u64(0..BLOCKS) };
            if under_way[block as usize].is_some() {
                break;
            }
            let stamp = stamps.get(block as usize).copied().unwrap_or(0);
            let request = if block == BLOCKS {
                Request::flush(block)
            } else {
                let Some(mut buffer) = arena.lease() else { break };
                if stamp == 0 || rng.bool() {
                    stamps[block as usize] = submitted + 1;
                    buffer.copy_from(0, &(submitted + 1).to_le_bytes());
                    Request::write(block * BLOCK as u64, BLOCK as u32, buffer, block)
                } else {
                    Request::read(block * BLOCK as u64, BLOCK as u32, buffer, block)
                }
            };
            under_way[block as usize] = Some(request.op);
            channel.submit(request).unwrap();
            submitted += 1;
        }
        match rng.bool() {
            true => channel.wait(&mut completions, one),
            false => {
                channel.kick();
                channel.poll(&mut completions)
            }
        };
        for done in completions.drain(..) {
            assert_eq!(done.result, Ok(()));
            let expected = under_way[done.tag as usize].take();
            assert_eq!(expected, Some(done.op), "block {}", done.tag);
            if done.op == Op::Read {
                let mut bytes = [0; 8];
                done.buffer.unwrap().copy_to(0, &mut bytes);
                assert_eq!(u64::from_le_bytes(bytes), stamps[done.tag as usize]);
            }
            answered += 1;
        }
    }
    assert_eq!((channel.in_flight(), answered), (0, submitted));
}
