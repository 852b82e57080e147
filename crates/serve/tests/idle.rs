//! The cost of a thousand disks that no guest uses, and of hosts of NVMe/TCP and clients of NBD
//! that do nothing, and the processors on which workers run.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use qpair_block::BlockDevice;
use qpair_block::{
    Arena, ChannelOptions, IoChannel, NullDevice, NullOptions, Request, WaitOptions,
};
use qpair_kernel::{FileOptions, Interface};
use qpair_nbd::{NbdDevice, NbdOptions};
use qpair_nvme_tcp::{HostPort, NvmeTcpDevice, NvmeTcpOptions};
use qpair_serve::{BlkOptions, Disk, NbdAddress, NbdExport, Target, TargetOptions};
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

/// The descriptor of a ring stays readable after the last request until a poll finds nothing. The
/// hall of NVMe/TCP once took that for work, and its worker never slept again.
#[test]
fn a_worker_sleeps_after_the_requests_of_hosts_and_clients() {
    let _alone = alone();
    const NQN: &str = "nqn.2026-11.invalid.example:idle";
    let folder =
        tempfile::Builder::new().prefix("tw").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for interface in [Interface::IoUring, Interface::Libaio, Interface::Posix] {
        let path = folder.path().join(interface.to_string());
        let options =
            FileOptions { create: Some(1 << 20), direct: false, ..FileOptions::new(path) };
        let Ok(device) = qpair_kernel::open(&options, interface) else {
            println!("skipped: {interface} cannot be used");
            continue;
        };
        let disk = Disk::new("d", Arc::new(device));
        let target = Target::new(TargetOptions::default()).unwrap();
        let any = HostPort { host: "127.0.0.1".into(), port: 0 };
        let address = target.serve_nvme_tcp(&any, NQN, std::slice::from_ref(&disk)).unwrap();
        let socket = NbdAddress::Unix(folder.path().join("n"));
        let export = NbdExport { disk, read_only: false };
        target.serve_nbd(&socket, vec![export], None).unwrap();
        let host = NvmeTcpDevice::open(&format!("{address}/{NQN}"), NvmeTcpOptions::default());
        let client = NbdDevice::open(&format!("{socket}/d"), NbdOptions::default());
        let peers: [Box<dyn BlockDevice>; 2] = [Box::new(host.unwrap()), Box::new(client.unwrap())];
        for peer in peers {
            let arena = Arena::new(4096, 1, peer.info().arena_options()).unwrap();
            let options = ChannelOptions { depth: 1, arenas: vec![arena.clone()], wake: None };
            let mut channel = peer.open_channel(&options).unwrap();
            channel.submit(Request::read(0, 4096, arena.lease().unwrap(), 0)).unwrap();
            let one = WaitOptions { want: 1, linger: Duration::ZERO, timeout: None };
            assert_eq!(channel.wait(&mut Vec::new(), one), 1);
            let tid = target.workers()[0].tid.to_string();
            let sleeps = || status(&tid, "State").is_some_and(|state| state.starts_with('S'));
            let mut tries = 0;
            while !sleeps() {
                tries += 1;
                assert!(tries < 1000, "the worker never sleeps after a request to {interface}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
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
