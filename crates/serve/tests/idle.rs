//! The cost of a thousand disks that no guest uses, and the processors on which workers run.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use qpair_block::BlockDevice;
use qpair_block::{
    Arena, ChannelOptions, IoChannel, NullDevice, NullOptions, Request, WaitOptions,
};
use qpair_serve::{BlkOptions, Disk, Target, TargetOptions};
use qpair_vhost_user::{VhostUserBlk, VhostUserOptions};

fn status(tid: &str, field: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim_start_matches(':').trim().to_owned())
}

/// Returns how often the target's threads have gone to sleep so far. Before each time, something
/// had woken them.
fn sleeps() -> u64 {
    let tids = std::fs::read_dir("/proc/self/task").unwrap();
    let tids = tids.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let its = tids.filter(|tid| status(tid, "Name").is_some_and(|name| name.starts_with("qpair-")));
    its.filter_map(|tid| status(&tid, "voluntary_ctxt_switches")?.parse::<u64>().ok()).sum()
}

/// Held by each test, since one counts the sleeps of all threads of targets in the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_thousand_idle_disks_wake_nobody() {
    let _alone = alone();
    const DISKS: usize = 1000;
    const GUESTS: usize = 100;
    let folder =
        tempfile::Builder::new().prefix("ti").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = Target::new(TargetOptions::default()).unwrap();
    let options = NullOptions { size_bytes: 1 << 30 };
    for number in 0..DISKS {
        let disk = Disk::new(&format!("d{number}"), Arc::new(NullDevice::new(options).unwrap()));
        let path = folder.path().join(&disk.name);
        target.serve_blk(&disk.name, &disk, &path, BlkOptions::default()).unwrap();
    }
    // Some of the disks have guests, each of which has used its disk once.
    let mut guests: Vec<(VhostUserBlk, Box<dyn IoChannel>)> = (0..GUESTS)
        .map(|number| {
            let path = folder.path().join(format!("d{number}"));
            let device = VhostUserBlk::open(&path, VhostUserOptions::default()).unwrap();
            let arena = Arena::new(4096, 1, device.info().arena_options()).unwrap();
            let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
            let mut channel = device.open_channel(&options).unwrap();
            channel.submit(Request::read(0, 4096, arena.lease().unwrap(), 0)).unwrap();
            let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
            assert_eq!(channel.wait(&mut Vec::new(), one), 1);
            (device, channel)
        })
        .collect();
    let busy = || target.workers()[0].busy_ns;
    // Wait until all threads sleep.
    let mut before = sleeps();
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let now = sleeps();
        if std::mem::replace(&mut before, now) == now {
            break;
        }
    }
    let spent = busy();
    std::thread::sleep(Duration::from_secs(1));
    let woken = sleeps() - before;
    assert_eq!(woken, 0, "and {} us awake", (busy() - spent) / 1000);
    // The idle disks still work.
    let (_, channel) = &mut guests[GUESTS / 2];
    let arena = Arena::new(4096, 1, qpair_block::ArenaOptions::ordinary_pages()).unwrap();
    channel.submit(Request::read(0, 4096, arena.lease().unwrap(), 0)).unwrap();
    let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
    assert_eq!(channel.wait(&mut Vec::new(), one), 1);
    // The worker that answered goes to sleep again, which must be counted: this proves that the
    // counter works.
    while sleeps() == before {
        std::thread::yield_now();
    }
    drop(guests);
}

#[test]
fn workers_stay_on_their_processors() {
    let _alone = alone();
    let usable = status(&std::process::id().to_string(), "Cpus_allowed_list").unwrap();
    let first: usize = usable.split([',', '-']).next().unwrap().parse().unwrap();
    let options = TargetOptions { workers: 3, ..TargetOptions::default() };
    let target = Target::new(options).unwrap();
    target.pin(&[first]).unwrap();
    for worker in target.workers() {
        let its = status(&worker.tid.to_string(), "Cpus_allowed_list");
        assert_eq!(its, Some(first.to_string()));
    }
    assert!(target.pin(&[100_000]).unwrap_err().way_out().is_some());
    target.pin(&[]).unwrap();
}
