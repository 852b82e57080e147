//! Resets, removals and losses of power, with requests in flight.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use qpair_block::{ArenaOptions, BlockDevice, ChannelOptions, ErrorKind, Op};
use qpair_scsi::ScsiOptions;
use qpair_scsi::host::Change;
use qpair_softdev::hba::{Fault, Rule};

use crate::rig::{Rig, scsi_options};
use crate::worker::{BLOCK, Worker};

/// Returns options for a busy machine, on which a request may meet many resets in a row, and a
/// thread may stand still for long.
fn patient() -> ScsiOptions {
    ScsiOptions { retries_max: u8::MAX, ..ScsiOptions::default() }
}

#[test]
fn resets_lose_no_acknowledged_write() {
    let rig = Rig::new("size=8MiB");
    let disk = rig.disk(0, patient());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut worker = Worker::new(&disk, 64);
            let mut round = 0u8;
            while !is_over.load(Ordering::Relaxed) || round < 10 {
                round = round.wrapping_add(1).max(1);
                for number in 0..64 {
                    let request = worker.request(Op::Write, number, round);
                    worker.submit(request);
                }
                for (number, result) in worker.drain() {
                    assert_eq!(result, Ok(()), "block {number}, round {round}");
                }
                for number in 0..64 {
                    assert_eq!(worker.fill_of(number), Some(round), "block {number}");
                }
            }
        });
        for _ in 0..20 {
            rig.host.reset().unwrap();
            std::thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert_eq!(rig.host.resets(), 20);
}

/// A reset affects all channels: those on other threads continue, also those of another disk.
#[test]
fn channels_side_by_side_over_resets() {
    let rig = Rig::new("size=8MiB,disks=2");
    let disks = [rig.disk(0, patient()), rig.disk(1, patient())];
    let rounds = [const { AtomicUsize::new(0) }; 4];
    std::thread::scope(|scope| {
        for number in 0..4u64 {
            let disk = &disks[number as usize % 2];
            let rounds = &rounds[number as usize];
            scope.spawn(move || {
                let mut worker = Worker::new(disk, 16);
                for round in 0..200u8 {
                    let start = number * 100;
                    for number in start..start + 16 {
                        let request = worker.request(Op::Write, number, round);
                        worker.submit(request);
                    }
                    let done = worker.drain();
                    assert!(done.iter().all(|(_, result)| result.is_ok()), "{done:?}");
                    assert_eq!(worker.fill_of(start + u64::from(round) % 16), Some(round));
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Each channel makes progress between two resets.
        for reset in 0..10 {
            while rounds.iter().any(|rounds| rounds.load(Ordering::Relaxed) < 10 * reset) {
                std::thread::yield_now();
            }
            rig.host.reset().unwrap();
        }
    });
}

/// A disk that is pulled out and plugged in again keeps its identity, with another handle.
#[test]
fn a_disk_that_comes_back_is_the_same() {
    let rig = Rig::new("size=8MiB,disks=2");
    let disk = rig.disk(1, scsi_options());
    let mut worker = Worker::new(&disk, 8);
    assert_eq!(worker.run(Op::Write, 3, 7), Ok(()));
    assert!(rig.card.pull(1));
    // No thread has polled yet: the controller itself reports the error.
    assert_eq!(worker.run(Op::Read, 3, 0).unwrap_err().kind, ErrorKind::Gone);
    let mut changes = Vec::new();
    while !changes.contains(&Change::Removed(1)) {
        changes.extend(rig.host.changes());
    }
    assert_eq!(worker.run(Op::Read, 3, 0).unwrap_err().kind, ErrorKind::Gone);
    assert_eq!(rig.host.scan().unwrap().len(), 1);
    assert!(rig.card.plug(1));
    while !changes.contains(&Change::Added(1)) {
        changes.extend(rig.host.changes());
    }
    assert_eq!(worker.fill_of(3), Some(7));
    assert_eq!(rig.disk(1, scsi_options()).facts().name, disk.facts().name);
}

/// There can be as many channels as reply queues besides the driver's own; closing one makes room
/// for another.
#[test]
fn channels_are_as_many_as_reply_queues() {
    let rig = Rig::new("size=8MiB,queues=4");
    let disk = rig.disk(0, scsi_options());
    let options = ChannelOptions { depth: 8, ..ChannelOptions::default() };
    for _ in 0..3 {
        let channels: Vec<_> = (0..3).map(|_| disk.open_channel(&options).unwrap()).collect();
        let error = disk.open_channel(&options).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
        assert!(error.to_string().contains("reply queues"), "{error}");
        drop(channels);
    }
    // Credit is limited too: 4096 requests, in channels of at most 1024.
    let rig = Rig::new("size=8MiB,credit=128,queues=8");
    let disk = rig.disk(0, scsi_options());
    let depth = disk.info().depth_max;
    let options = ChannelOptions { depth, ..ChannelOptions::default() };
    let _first = disk.open_channel(&options).unwrap();
    let error = disk.open_channel(&options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
}

#[test]
fn memory_that_is_not_open_is_copied() {
    let rig = Rig::new("size=8MiB");
    let disk = rig.disk(0, scsi_options());
    let mut worker = Worker::new(&disk, 64);
    worker.arena =
        qpair_block::Arena::new(BLOCK as usize, 64, ArenaOptions::ordinary_pages()).unwrap();
    for number in 0..64 {
        let request = worker.request(Op::Write, number, number as u8);
        worker.submit(request);
    }
    let done = worker.drain();
    assert!(done.iter().all(|(_, result)| result.is_ok()), "{done:?}");
    for number in 0..64 {
        assert_eq!(worker.fill_of(number), Some(number as u8));
    }
}

/// A reset of the disk climbs the ladder: if tasks are not answered, or there is no room for one,
/// it resets the controller.
#[test]
fn a_disk_is_reset_by_the_least_that_works() {
    let rig = Rig::new("size=8MiB,queues=3");
    let disk = rig.disk(0, scsi_options());
    disk.reset().unwrap();
    assert_eq!(rig.host.resets(), 0, "a LUN reset is enough");
    rig.card.ignore_tasks(true);
    disk.reset().unwrap();
    assert_eq!(rig.host.resets(), 1);
    rig.card.ignore_tasks(false);
    let mut workers = [Worker::new(&disk, 8), Worker::new(&disk, 8)];
    disk.reset().unwrap();
    assert_eq!(rig.host.resets(), 2, "no reply queue was left for a task");
    for worker in &mut workers {
        assert_eq!(worker.run(Op::Write, 0, 1), Ok(()));
    }
}

/// Commands that no thread polls for do not come back; a reset reports that instead of waiting for
/// ever.
#[test]
fn a_reset_over_a_channel_that_nobody_polls() {
    let rig = Rig::new("size=8MiB");
    let disk = rig.disk(0, scsi_options());
    let mut worker = Worker::new(&disk, 8);
    let request = worker.request(Op::Write, 0, 1);
    worker.submit(request);
    let error = disk.reset().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.to_string().contains("1 of its channels"), "{error}");
    assert!(worker.drain().iter().all(|(_, result)| result.is_ok()));
    disk.reset().unwrap();
}

/// A reset waits for a lost command no longer than the command's time limit.
#[test]
fn a_reset_over_a_lost_command() {
    let rig = Rig::new("size=8MiB");
    let disk = rig.disk(0, ScsiOptions::default());
    rig.card.set_faults(vec![Rule { first: 0, count: 1, fault: Fault::LoseCommand }]);
    let (sent, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = Worker::new(&disk, 8);
            let request = worker.request(Op::Write, 0, 9);
            worker.submit(request);
            worker.channel.kick();
            worker.channel.poll(&mut worker.completions);
            sent.store(true, Ordering::Release);
            assert_eq!(worker.drain(), [(0, Ok(()))]);
            assert!(!over.load(Ordering::Acquire) || worker.fill_of(0) == Some(9));
        });
        while !sent.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        // The command's time limit is 30 s: the reset ends it, and it is sent again.
        disk.reset().unwrap();
        over.store(true, Ordering::Release);
    });
}

/// The lamp at a slot turns on and off; a reset of the controller turns it off.
#[test]
fn a_disk_is_found_by_its_lamp() {
    let rig = Rig::new("size=8MiB,disks=2");
    rig.host.locate(1, true).unwrap();
    assert_eq!([0, 1].map(|disk| rig.card.is_located(disk)), [false, true]);
    rig.host.locate(1, false).unwrap();
    assert!(!rig.card.is_located(1));
    rig.host.locate(0, true).unwrap();
    rig.host.reset().unwrap();
    assert!(!rig.card.is_located(0));
    assert_eq!(rig.host.locate(7, true).unwrap_err().kind(), ErrorKind::NotFound);
}

/// A drive behind PCIe is listed, and refused by name; the disk beside it works, over a reset too.
#[test]
fn a_drive_behind_pcie_is_refused() {
    let rig = Rig::new("size=8MiB,mpi=2.6,pcie=on,serial=pcie");
    assert!(rig.host.info().about.contains("MPI 2.6"), "{}", rig.host.info().about);
    for _ in 0..2 {
        let targets = rig.host.scan().unwrap();
        assert_eq!(targets.len(), 2);
        let refused: Vec<_> = targets.iter().filter_map(|it| it.refused.as_deref()).collect();
        assert!(refused.len() == 1 && refused[0].contains("PCIe"), "{refused:?}");
        let disk = targets.iter().find(|it| it.refused.is_none()).unwrap().number;
        let disk = rig.disk(disk, scsi_options());
        assert_eq!(Worker::new(&disk, 4).run(Op::Write, 0, 1), Ok(()));
        rig.host.reset().unwrap();
    }
}

/// 1,024 disks behind two levels of expanders are all found, each with its own identity. One that
/// is pulled out and plugged in again keeps it, and after a reset of the controller all are found
/// again.
#[test]
fn disks_behind_expanders() {
    const DISKS: usize = 1024;
    let rig = Rig::new("disks=1024,expanders=on,size=64KiB");
    let targets = rig.host.scan().unwrap();
    assert_eq!(targets.len(), DISKS);
    assert!(targets.iter().all(|it| it.refused.is_none()));
    let addresses: std::collections::HashSet<_> = targets.iter().map(|it| &it.address).collect();
    assert_eq!(addresses.len(), DISKS);
    for number in [0, 31, 32, 700, 1023] {
        let disk = rig.disk(number, scsi_options());
        assert_eq!(Worker::new(&disk, 2).run(Op::Write, 1, number as u8), Ok(()));
    }
    let number = 700;
    let disk = rig.disk(number, scsi_options());
    let _ = rig.host.changes();
    assert!(rig.card.pull(number as usize));
    let wait_for = |wanted: Change| {
        let start = std::time::Instant::now();
        while !rig.host.changes().contains(&wanted) {
            assert!(start.elapsed() < Duration::from_secs(60), "{wanted:?}");
        }
    };
    wait_for(Change::Removed(number));
    assert_eq!(rig.host.scan().unwrap().len(), DISKS - 1);
    assert!(rig.card.plug(number as usize));
    wait_for(Change::Added(number));
    rig.host.reset().unwrap();
    assert_eq!(rig.host.scan().unwrap(), targets);
    assert_eq!(rig.disk(number, scsi_options()).facts().name, disk.facts().name);
    for number in [31, 32, 700] {
        let disk = rig.disk(number, scsi_options());
        assert_eq!(Worker::new(&disk, 2).fill_of(1), Some(number as u8));
    }
}
