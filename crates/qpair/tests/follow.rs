//! Continuous backups of stores in files: a process that is killed, and requests over the socket.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use qpair::continuous::{
    At, Backup, BackupOptions, Follower, Point, ask_to_follow, open_place, verify,
};
use qpair::published::publish_path;
use qpair::{ErrorKind, Options, Store};

/// The folder of the store in the process that is killed.
const CHILD: &str = "QPAIR_TEST_FOLLOW";

fn options(path: &Path) -> Options {
    Options::new(path).memory_bytes(8 << 20).workers(2).buffered(true)
}

fn records(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let table = store.table("t").unwrap();
    table.range(..).unwrap().map(Result::unwrap).collect()
}

/// Writes and ships until it is killed, and says what is acknowledged and what is shipped.
fn child(folder: &str) -> ! {
    let folder = Path::new(folder);
    let store = options(&folder.join("s")).open().unwrap();
    let table = store.table("t").unwrap();
    let mut settings = BackupOptions::default();
    settings.every_ms = 5;
    let place = open_place(folder.join("backup").to_str().unwrap()).unwrap();
    let follower = Follower::begin(&store, place, settings).unwrap();
    let mut out = std::io::stdout().lock();
    let begin = table.count().unwrap();
    for i in begin.. {
        let mut tx = store.begin();
        tx.put(&table, &i.to_be_bytes(), &[7; 40]).unwrap();
        let commit = tx.commit().unwrap().timestamp();
        let status = follower.status();
        let shipped = if status.is_restorable { status.shipped } else { 0 };
        writeln!(out, "{i} {commit} {shipped}").unwrap();
        out.flush().unwrap();
    }
    unreachable!("it is killed");
}

/// Restores a point into a new store, and returns its records.
fn restored(folder: &Path, point: Point) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let backup =
        Backup::open(open_place(folder.join("backup").to_str().unwrap()).unwrap()).unwrap();
    let restore = backup.restore(At::Point(point), None).unwrap();
    let elsewhere = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = elsewhere.path().join("restored");
    options(&path).restore_of(&restore, &|_, _| ControlFlow::Continue(())).unwrap();
    let store = options(&path).create(false).read_only(true).open().unwrap();
    assert!(store.check(&|_, _| ()).unwrap().faults.is_empty());
    let all = records(&store);
    store.close().unwrap();
    all
}

#[test]
fn a_killed_process_has_shipped_what_it_said() {
    if let Ok(folder) = std::env::var(CHILD) {
        child(&folder);
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folder.path();
    let mut points = Vec::new();
    for life in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_process_has_shipped_what_it_said", "--nocapture"])
            .env(CHILD, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut acknowledged, mut shipped) = (BTreeMap::new(), 0);
        let begun = Instant::now();
        while shipped == 0 || acknowledged.len() < 400 + 100 * life {
            assert!(begun.elapsed() < Duration::from_secs(300), "nothing is shipped");
            let line = lines.next().unwrap().unwrap();
            let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            if let [i, commit, at] = numbers[..] {
                acknowledged.insert(i, commit);
                shipped = at;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let place = open_place(folder.join("backup").to_str().unwrap()).unwrap();
        let found = verify(&*place, &|_, _| ControlFlow::Continue(())).unwrap();
        assert_eq!(found.faults, [""; 0]);
        let newest = *found.points.last().unwrap();
        assert!(newest.timestamp >= shipped, "{newest:?}: {shipped} was shipped");
        let all = restored(folder, newest);
        for (i, commit) in &acknowledged {
            let is_there = all.contains_key(&i.to_be_bytes()[..]);
            assert_eq!(is_there, *commit <= newest.timestamp, "{i} of commit {commit}: {newest:?}");
        }
        points.push((newest, all));
    }
    for (point, all) in points {
        assert!(restored(folder, point) == all, "{point:?} has changed");
    }
}

#[test]
fn a_store_is_followed_by_request() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("s");
    let store = options(&path).publish_beside(true).open().unwrap();
    let table = store.table("t").unwrap();
    table.put(b"before", b"1").unwrap();
    let place = folder.path().join("backup");
    let url = place.to_str().unwrap();
    let published = publish_path(&path);
    let puts = Cell::new(0u32);
    let mut settings = BackupOptions::default();
    settings.every_ms = 10;
    let followed = ask_to_follow(&published, url, &settings, &|now| {
        if now.is_restorable && puts.get() < 5 {
            table.put(&puts.replace(puts.get() + 1).to_be_bytes(), b"2").unwrap();
        }
        match puts.get() < 5 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    assert!(followed.unwrap().unwrap().is_restorable);
    let points = Backup::open(open_place(url).unwrap()).unwrap().points();
    assert_eq!(restored(folder.path(), *points.last().unwrap()), records(&store));
    let metrics = store.metrics().unwrap();
    assert_eq!(metrics.backup_breaks, 0);
    // A store has one feed, and a place the backup of one store.
    let place = || open_place(url).unwrap();
    let follower = Follower::begin(&store, place(), settings.clone()).unwrap();
    let busy = Follower::begin(&store, place(), settings.clone()).err().unwrap();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    follower.stop().unwrap();
    let other = options(&folder.path().join("other")).open().unwrap();
    let refused = Follower::begin(&other, place(), settings.clone()).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Exists);
    other.close().unwrap();
    let refused = ask_to_follow(&published, "ftp://x", &settings, &|_| ControlFlow::Continue(()));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    store.close().unwrap();
    let nobody = ask_to_follow(&published, url, &settings, &|_| ControlFlow::Continue(()));
    assert_eq!(nobody.unwrap(), None);
}
