//! Resets with requests in flight, hot-plug, and queues that are short.

use std::collections::HashMap;

use qpair_block::{BlockDevice, ErrorKind, Op};
use qpair_scsi::host::Change;
use qpair_scsi::{ScsiOptions, scan};
use qpair_softdev::SoftVirtioScsiOptions;

use crate::rig::{Rig, device_options};
use crate::worker::Worker;

/// Twenty resets from another thread while 40 writes are in flight: each request completes once,
/// and acknowledged data is there.
#[test]
fn a_reset_loses_no_acknowledged_write() {
    let rig = Rig::new(device_options());
    let disk = rig.disk(0, ScsiOptions { retries_max: 255, ..ScsiOptions::default() });
    let mut worker = Worker::new(&disk, 40);
    let mut written: HashMap<u64, u8> = HashMap::new();
    let host = rig.host.clone();
    let resetting = std::thread::spawn(move || {
        for _ in 0..20 {
            host.reset().unwrap();
        }
    });
    let mut round = 0u64;
    while !resetting.is_finished() || round < 20 {
        for number in 0..40 {
            let fill = (round + number) as u8;
            let request = worker.request(Op::Write, number, fill);
            worker.submit(request);
        }
        let all = worker.drain();
        assert_eq!(all.len(), 40);
        for (number, result) in all {
            assert_eq!(result, Ok(()), "round {round}");
            written.insert(number, (round + number) as u8);
        }
        round += 1;
    }
    resetting.join().unwrap();
    assert_eq!((rig.host.resets(), worker.channel.statistics().resets), (20, 20));
    for (number, fill) in written {
        assert_eq!(worker.fill_of(number), Some(fill), "block {number}");
    }
}

#[test]
fn disks_come_and_go() {
    let rig = Rig::new(device_options());
    let targets =
        || -> Vec<u32> { rig.host.scan().unwrap().iter().map(|target| target.number).collect() };
    assert_eq!(targets(), [0, 1]);
    assert_eq!(rig.host.changes(), []);
    let disk = rig.disk(1, ScsiOptions::default());
    let name = disk.facts().name.clone();
    let mut worker = Worker::new(&disk, 4);
    assert_eq!(worker.run(Op::Write, 0, 7), Ok(()));
    rig.device.pull(1);
    assert_eq!(worker.run(Op::Read, 0, 0).unwrap_err().kind, ErrorKind::Gone);
    assert_eq!(rig.host.changes(), [Change::Removed(1)]);
    assert_eq!(targets(), [0]);
    rig.device.plug_in(1);
    assert_eq!(rig.host.changes(), [Change::Added(1)]);
    assert_eq!(targets(), [0, 1]);
    assert_eq!(worker.fill_of(0), Some(7));
    assert_eq!(rig.disk(1, ScsiOptions::default()).facts().name, name);
    assert_eq!(rig.host.resets(), 0);
}

/// Causes more events than the device keeps. It reports that some were missed, and the targets are
/// queried again.
#[test]
fn missed_events_are_made_up_for() {
    let rig = Rig::new(device_options());
    assert_eq!(rig.host.scan().unwrap().len(), 2);
    for _ in 0..20 {
        rig.device.pull(1);
        rig.device.plug_in(1);
    }
    rig.device.pull(0);
    let changes = rig.host.changes();
    assert!(changes.contains(&Change::Removed(0)), "{changes:?}");
    assert_eq!(rig.host.scan().unwrap().len(), 1);
}

#[test]
fn queues_are_leased() {
    let rig = Rig::new(SoftVirtioScsiOptions { queues: 2, ..device_options() });
    let disk = rig.disk(0, ScsiOptions::default());
    let one = Worker::new(&disk, 4);
    let two = Worker::new(&disk, 4);
    let error = rig.host.scan().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    drop(one);
    assert_eq!(rig.host.scan().unwrap().len(), 2);
    // A queue that was used before continues where it was.
    let mut three = Worker::new(&disk, 4);
    assert_eq!(three.run(Op::Write, 3, 9), Ok(()));
    rig.host.reset().unwrap();
    assert_eq!(three.fill_of(3), Some(9));
    drop((two, three));
    let found = scan(&rig.host, ScsiOptions::default(), |t, l| format!("{t}.{l}")).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|found| found.disk.is_ok()));
    assert_eq!(disk.info().depth_max, 128);
}
