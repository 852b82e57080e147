//! Lists of segments go to the controller directly, with chains if they do not fit into a frame.

use std::sync::Arc;

use qpair_block::{Arena, BlockDevice, ChannelOptions, Mapping, Op, Request, Segment};
use qpair_scsi::ScsiOptions;
use qpair_scsi_wire::sense::{Code, Key, Sense};
use qpair_softdev::hba::{Fault, Rule};

use crate::rig::{Rig, scsi_options};
use crate::worker::Worker;

const PAGE: u32 = 4096;
/// The maximum that results from the soft HBA's facts: one element in the frame, and 128 segments
/// of 8 with a chain element in all but the last.
const ELEMENTS_MAX: u32 = 898;

fn worker(rig: &Rig, options: ScsiOptions, depth: u32) -> (Worker, Arc<Arena>) {
    let disk = rig.disk(0, options);
    let (region, _) = Mapping::new_file(8 << 20).unwrap();
    let lists = Arena::foreign(vec![region], depth, 1024);
    let mut worker = Worker::new(&disk, depth);
    let arenas = vec![worker.arena.clone(), lists.clone()];
    worker.channel = disk.open_channel(&ChannelOptions { depth, arenas, wake: None }).unwrap();
    (worker, lists)
}

/// Returns every second page from `first` on, the last one first.
fn apart(first: u32, count: u32) -> impl Iterator<Item = Segment> {
    let segment = move |page: u32| Segment {
        region: 0,
        offset_bytes: u64::from(first + 2 * page) * u64::from(PAGE),
        len_bytes: PAGE,
    };
    (0..count).rev().map(segment)
}

/// A command moves as many segments as the controller's facts allow; one more takes a second
/// command. Nothing is copied: that would take a command for each 128 KiB.
#[test]
fn as_long_as_the_facts_allow() {
    for (count, commands) in
        [(1, 1), (2, 1), (3, 1), (9, 1), (ELEMENTS_MAX, 1), (ELEMENTS_MAX + 1, 2)]
    {
        let rig = Rig::new("size=8MiB");
        let (mut worker, lists) = worker(&rig, scsi_options(), 1);
        let over = Sense::new(Key::MediumError, Code::UNRECOVERED_READ_ERROR);
        let len = count * PAGE;
        let bytes: Vec<u8> = (0..len).map(|at| (at / PAGE * 7 + at % 251) as u8).collect();
        for is_read in [false, true] {
            rig.card.set_faults(vec![Rule {
                first: commands,
                count: u64::MAX,
                fault: Fault::Check(over),
            }]);
            let mut list = lists.lease().unwrap();
            list.fill(apart(0, count)).unwrap();
            list.copy_from(0, if is_read { &[0x55; 4096] } else { &bytes });
            let request = match is_read {
                true => Request::read(0, len, list, 1),
                false => Request::write(0, len, list, 1),
            };
            worker.submit(request);
            let list = loop {
                worker.channel.poll(&mut worker.completions);
                if let Some(done) = worker.completions.pop() {
                    done.result.unwrap();
                    break done.buffer.unwrap();
                }
            };
            let mut found = vec![0; len as usize];
            list.copy_to(0, &mut found);
            assert!(found == bytes, "{count} segments");
        }
    }
}

/// More lists in flight than there is room for, over a reset of the controller: all of them
/// succeed, and their room is freed.
#[test]
fn more_than_there_is_room_for() {
    let rig = Rig::new("size=8MiB");
    let (mut worker, lists) = worker(&rig, ScsiOptions::default(), 64);
    for round in 0..4u32 {
        for number in 0..64u32 {
            let mut list = lists.lease().unwrap();
            list.fill(apart(number * 20, 9)).unwrap();
            list.copy_from(0, &[(number + round) as u8; 9 * PAGE as usize]);
            worker.submit(Request::write(
                u64::from(number * 9 * PAGE),
                9 * PAGE,
                list,
                number.into(),
            ));
        }
        worker.channel.kick();
        if round == 2 {
            rig.card.set_faults(vec![Rule { first: 5, count: 1, fault: Fault::IocFault(7) }]);
        }
        let done = worker.drain();
        assert!(done.len() == 64 && done.iter().all(|(_, result)| result.is_ok()), "{done:?}");
    }
    assert_eq!(rig.host.resets(), 1);
    for number in 0..64 {
        assert_eq!(worker.fill_of(number * 9 + 4), Some(number as u8 + 3));
    }
    assert_eq!(worker.run(Op::Write, 0, 1), Ok(()));
}
