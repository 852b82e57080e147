//! Devices that fail: the operations that fail, those that still work, and the data that is kept.
//!
//! Long, because the tests share one rig.

use crate::common;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::filled::{FRAMES, PAGE, filled, value};
use crate::common::{Device, assert_sound, existing, faulty, key, options, ram_of};
use qpair_block::{FaultDevice, FaultOptions, Op};
use qpair_engine::{
    Durability, Error, ErrorKind, Store, StoreOptions, Table, TransactionOptions, yield_now,
};

#[test]
fn a_failed_read_fails_its_operation_only() {
    let (device, _, control) = faulty();
    let store = filled(&device, 3000);
    let table = store.table("t").unwrap();
    assert_eq!(table.get(&key(1)).unwrap(), Some(value(1)));
    control.fail_reads(true);
    let error = table.get(&key(2900)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("reading page"), "{error}");
    // Pages in memory are still served.
    assert_eq!(table.get(&key(1)).unwrap(), Some(value(1)));
    assert_eq!(table.put(&key(2900), b"new").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(table.delete(&key(2900)).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(
        table.range(key(2900).as_slice()..).unwrap().next().unwrap().unwrap_err().kind(),
        ErrorKind::Io
    );
    control.heal();
    for i in 0..3000 {
        assert_eq!(table.get(&key(i)).unwrap(), Some(value(i)));
    }
    assert!(!store.is_read_only());
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// Many tasks want the same pages, and some of the reads fail: each task gets the right data, or
/// the error.
#[test]
fn tasks_that_wait_for_the_same_failing_page() {
    let (device, _, control) = faulty();
    let store = filled(&device, 3000);
    let table = store.table("t").unwrap();
    for round in 0..20 {
        control.set_error_rate(Op::Read, 0.5);
        let tasks: Vec<_> = (0..200u32)
            .map(|task| {
                let table = table.task();
                store.spawn(move || async move {
                    let i = (round * 131 + task / 50) % 3000;
                    (i, table.get(&key(i)).await)
                })
            })
            .collect();
        for task in tasks {
            match task.join().unwrap() {
                (i, Ok(found)) => assert_eq!(found, Some(value(i))),
                (_, Err(error)) => assert_eq!(error.kind(), ErrorKind::Io),
            }
        }
        control.heal();
        for task in 0..4 {
            let i = (round * 131 + task) % 3000;
            assert_eq!(table.get(&key(i)).unwrap(), Some(value(i)));
        }
    }
}

/// The newer superblock of one member is on an unreadable block, so the member looks older than the
/// others. The error names the unreadable block.
#[test]
fn a_bad_spot_under_a_superblock() {
    let (second, _, control) = faulty();
    let members = vec![common::ram(), second];
    let store = Store::open(members.clone(), &options(PAGE, FRAMES)).unwrap();
    store.table("t").unwrap().put(b"key", b"value").unwrap();
    store.close().unwrap();
    let mut refused = 0;
    for superblock in common::SUPERBLOCKS {
        control.heal();
        control.fail_range(Op::Read, superblock..superblock + 4096);
        match Store::open(members.clone(), &existing(PAGE, FRAMES)) {
            Ok(store) => drop(store),
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                assert!(error.context().contains("two superblocks"), "{error}");
            }
        }
    }
    assert_eq!(refused, 1);
}

/// One leaf is on an unreadable block: its keys are lost, a scan stops there, and all other records
/// can be read.
#[test]
fn a_bad_spot() {
    let (device, below, control) = faulty();
    let store = filled(&device, 3000);
    let table = store.table("t").unwrap();
    let is_leaf = |page: &&u64| {
        let bytes = common::read_page(below.as_ref(), PAGE, **page);
        bytes[4] == 2 && bytes[24..28] != [0; 4]
    };
    let used = common::checkpoint_of(below.as_ref(), PAGE).used;
    let page = *used.iter().filter(is_leaf).nth(20).unwrap();
    let cursor_hint = common::SUPERBLOCK_BYTES + page * PAGE as u64;
    control.fail_range(Op::Read, cursor_hint..cursor_hint + PAGE as u64);
    let lost: Vec<_> = (0..3000).filter(|i| table.get(&key(*i)).is_err()).collect();
    assert!(!lost.is_empty() && lost.len() < 100, "{lost:?}");
    let mut scan = table.range(..).unwrap();
    let before = scan.by_ref().take_while(Result::is_ok).count();
    assert_eq!(before, lost[0] as usize);
    let after = table.range(key(lost[lost.len() - 1] + 1).as_slice()..).unwrap();
    assert_eq!(after.count(), 2999 - lost[lost.len() - 1] as usize);
    let report = store.check(&|_, _| ()).unwrap();
    assert!(
        report.faults.iter().any(|fault| fault.contains(&format!("page {page},"))),
        "{report:#?}"
    );
    assert_eq!(report.leaked_pages, 0);
}

/// A write of the log fails: acknowledged commits are kept, and no more are accepted.
#[test]
fn a_failed_write_makes_the_store_read_only() {
    let (device, _, control) = faulty();
    let store = filled(&device, 10);
    let table = store.table("t").unwrap();
    for i in 10..50 {
        table.put(&key(i), &value(i)).unwrap();
    }
    control.fail_writes(true);
    let error = table.put(&key(50), &value(50)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    control.heal();
    assert!(store.is_read_only());
    // The error is final: a device that works again does not restore lost writes.
    for error in [
        table.put(b"b", b"1").unwrap_err(),
        table.delete(&key(1)).unwrap_err(),
        store.table("another").unwrap_err(),
        store.drop_table("t").unwrap_err(),
        store.checkpoint().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert!(error.to_string().contains("writing the log"), "{error}");
        assert!(error.way_out().is_some());
    }
    // Reads continue, except for values that may be lost and those in the same leaf. A reader that
    // accepts non-durable data gets these too.
    let ahead = TransactionOptions { durability: Durability::Async, ..Default::default() };
    // The failed put may have a leaf of its own.
    assert_eq!(table.get(&key(50)).unwrap_err().kind(), ErrorKind::ReadOnly);
    let mut refused = 0;
    for i in 0..50 {
        match table.get(&key(i)) {
            Ok(found) => assert_eq!(found, Some(value(i))),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
                refused += 1;
            }
        }
        let found = store.transact_with(&ahead, |tx| tx.get(&table, &key(i))).unwrap();
        assert_eq!(found, Some(value(i)));
    }
    assert!(refused < 50, "{refused}");
    drop(table);
    let error = store.close().unwrap_err();
    assert!(error.to_string().contains("writing the log"), "{error}");
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..50 {
        assert_eq!(table.get(&key(i)).unwrap(), Some(value(i)));
    }
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// A recovery changes more pages than memory holds, on a device that accepts no more writes. A
/// regression: each task of the recovery waited two seconds for a frame, one after the other, so
/// opening the store with little memory seemed to hang (here for half a minute).
#[test]
fn a_recovery_whose_pages_cannot_be_written() {
    const RECORDS: u32 = 20_000;
    let below = ram_of(8 << 20);
    let device = FaultDevice::new(below.clone(), FaultOptions::default()).unwrap();
    let control = device.control();
    let store = Store::open(vec![Arc::new(device)], &options(PAGE, 4 * FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    let checkpoints = || store.metrics().unwrap().checkpoints;
    let checkpoints_before = checkpoints();
    // The keys are shuffled, so that each part of the log changes pages everywhere.
    let keys = || (0..RECORDS).map(|i| i * 7919 % RECORDS);
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let table = table.task();
            store.spawn(move || async move {
                for i in keys().skip(task).step_by(64) {
                    table.put(&key(i), &value(i)).await.unwrap();
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join().unwrap());
    let crashed = common::copy_of(below.as_ref(), below.size_bytes());
    // There is room for the whole log. A checkpoint just before the crash would leave a recovery
    // with few changes, which writes no page.
    assert_eq!(checkpoints(), checkpoints_before);
    control.fail_writes(true);
    drop((table, store));
    // The ends of the logs are written again, and then pages, both wherever there was room. Make one
    // small part of the device after the other unwritable, until one has a page and no end of a log.
    let parts = 128;
    let part_bytes = crashed.size_bytes() / parts;
    let attempt = |part: u64| {
        let copy = common::copy_of(crashed.as_ref(), crashed.size_bytes());
        let device = FaultDevice::new(copy.clone(), FaultOptions::default()).unwrap();
        device.control().fail_range(Op::Write, part * part_bytes..(part + 1) * part_bytes);
        let outcome = Store::open(vec![Arc::new(device)], &existing(PAGE, 8 * FRAMES));
        (outcome.err(), copy)
    };
    let is_of_a_page = |error: &Error| error.to_string().contains("writing page");
    let of_pages =
        (1..parts).map(attempt).find(|(error, _)| error.as_ref().is_some_and(is_of_a_page));
    let (error, crashed) = of_pages.expect("no part of the device made the write of a page fail");
    // The task that wrote the page has the error of the device, and each other one has this.
    let kind = error.as_ref().map(Error::kind);
    assert!(matches!(kind, Some(ErrorKind::Io | ErrorKind::ReadOnly)), "{kind:?}");
    // The failed attempt lost nothing.
    let store = Store::open(vec![crashed.clone()], &existing(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in (0..RECORDS).step_by(97) {
        assert_eq!(table.get(&key(i)).unwrap(), Some(value(i)));
    }
    drop(table);
    store.close().unwrap();
    assert_sound(&[crashed], PAGE);
}

/// A commit waits for one in another worker's log. A write of that log is in flight, so no later
/// one is sent when a flush fails meanwhile. The awaited commit then never becomes durable, and the
/// waiting one must get the error.
#[test]
fn a_failed_flush_is_told_to_commits_of_all_workers() {
    const WORKERS: usize = 3;
    let (device, _, control) = faulty();
    let (device, hold) = common::holding::holding(device);
    let made = StoreOptions { workers: WORKERS, read_non_durable: true, ..options(PAGE, FRAMES) };
    let store = Store::open(vec![device], &made).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"marks the store open", b"").unwrap();
    let put = |worker: usize, i: u32| {
        let of_task = table.task();
        let task = store.spawn_on(worker, move || async move { of_task.put(&key(i), &[]).await });
        while table.get(&key(i)).unwrap().is_none() {
            std::thread::yield_now();
        }
        task
    };
    hold.hold_next_write();
    let held = put(0, 0);
    while hold.held() == 0 {
        std::thread::yield_now();
    }
    let mut waiting = vec![put(0, 1)];
    waiting.extend((1..WORKERS).map(|worker| put(worker, worker as u32 + 1)));
    control.fail_flushes(true);
    assert_eq!(store.checkpoint().unwrap_err().kind(), ErrorKind::Io);
    for task in waiting {
        let error = task.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    }
    hold.let_go();
    assert!(held.join().unwrap().is_err());
    drop(table);
    assert!(store.close().is_err());
}

#[test]
fn a_failed_write_of_a_large_value() {
    let (device, _, control) = faulty();
    let store = filled(&device, 10);
    let table = store.table("t").unwrap();
    table.put(b"a", b"marks the store open").unwrap();
    control.fail_nth(Op::Write, 3);
    let error = table.put(b"large", &[1; 5000]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(table.get(b"large").unwrap(), None);
    assert_eq!(table.put(b"b", b"1").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(store.close().is_err());
    drop(table);
    let store = Store::open(vec![device], &existing(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    assert_eq!(table.get(b"large").unwrap(), None);
    assert_eq!(table.get(b"a").unwrap().unwrap(), b"marks the store open");
}

/// A load fails at once when the store fails beside it, and not only after reading all of its
/// input. It allocates no pages of a failed checkpoint's image, because that checkpoint may count.
#[test]
fn a_load_beside_a_checkpoint_that_fails() {
    for value_bytes in [30, 1500] {
        let (device, _, control) = faulty();
        let store = filled(&device, 10);
        let table = store.table("loaded").unwrap();
        let (failed, task) = (Arc::new(AtomicBool::new(false)), table.task());
        let (begun, watched) = (Arc::new(AtomicBool::new(false)), failed.clone());
        let tells = begun.clone();
        let load = store.spawn(move || async move {
            let mut loader = task.bulk_loader().await?;
            for i in 0..100_000 {
                loader.push(&key(i), &vec![7; value_bytes]).await?;
                tells.store(i == 1000, Ordering::Relaxed);
                while i == 1000 && !watched.load(Ordering::Relaxed) {
                    yield_now().await;
                }
                assert!(i < 2000, "the load goes on");
            }
            loader.finish().await
        });
        while !begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        control.fail_nth(Op::Flush, 2);
        assert_eq!(store.checkpoint().unwrap_err().kind(), ErrorKind::Io);
        failed.store(true, Ordering::Relaxed);
        let error = load.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert!(store.close().is_err());
        drop(table);
        let store = Store::open(vec![device], &existing(PAGE, FRAMES)).unwrap();
        assert_eq!(store.table("loaded").unwrap().get(&key(0)).unwrap(), None);
        assert_eq!(store.table("t").unwrap().get(&key(1)).unwrap(), Some(value(1)));
    }
}

/// The changes of one incarnation of a store. `acknowledged` has the value of each key; `doubtful`
/// has the changes that ended with an error, which may have been made or not.
#[derive(Default)]
struct Life {
    acknowledged: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    doubtful: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    failed: bool,
}

impl Life {
    fn change(&mut self, table: &Table, key: Vec<u8>, value: Option<Vec<u8>>) {
        let outcome = match &value {
            Some(value) => table.put(&key, value).map(|_| ()),
            None => table.delete(&key).map(|_| ()),
        };
        match outcome {
            Ok(()) => {
                assert!(!self.failed, "a change after a failure was taken");
                self.acknowledged.insert(key, value);
            }
            Err(_) => {
                self.failed = true;
                self.doubtful.push((key, value));
            }
        }
    }

    /// Opens the store, makes various changes and checkpoints, and closes it.
    fn live(&mut self, device: &Device) {
        let options = StoreOptions { checkpoint_bytes: 8 << 10, ..existing(PAGE, FRAMES) };
        let Ok(store) = Store::open(vec![device.clone()], &options) else { return };
        let Ok(table) = store.table("t") else { return };
        for i in 0..120u32 {
            let at = i * 37 % 400;
            match i % 8 {
                7 => self.change(&table, key(at), None),
                5 => self.change(&table, key(at), Some(vec![i as u8; 1500])),
                _ => self.change(&table, key(at), Some(value(at + i))),
            }
            if i == 60 {
                self.failed |= store.checkpoint().is_err();
            }
        }
        // Reads must work whatever has failed.
        if self.failed {
            assert!(store.is_read_only());
        }
        for (key, value) in &self.acknowledged {
            if self.doubtful.iter().any(|(other, _)| other == key) {
                continue;
            }
            match table.get(key) {
                Ok(found) => assert_eq!(found, *value),
                // The power is off, or the leaf has a change that may be lost.
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::ReadOnly), "{error}");
                }
            }
        }
        drop(table);
        // A close may fail if a change or a checkpoint was refused.
        if store.close().is_ok() {
            assert!(!self.failed);
        }
    }

    /// Checks the device as it is now: everything acknowledged is there, and nothing else has
    /// changed.
    fn assert_kept(&self, device: &Device, records: u32, what: &str) {
        let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let table = store.table("t").unwrap();
        let mut expected: BTreeMap<_, _> = (0..records).map(|i| (key(i), value(i))).collect();
        for (key, value) in &self.acknowledged {
            match value {
                Some(value) => expected.insert(key.clone(), value.clone()),
                None => expected.remove(key),
            };
        }
        let mut found: BTreeMap<_, _> = table.range(..).unwrap().map(Result::unwrap).collect();
        for (key, value) in &self.doubtful {
            if found.get(key) == value.as_ref() {
                match expected.get(key) {
                    Some(value) => found.insert(key.clone(), value.clone()),
                    None => found.remove(key),
                };
            }
        }
        assert!(found == expected, "{what}");
        drop(table);
        store.close().unwrap();
        assert_sound(std::slice::from_ref(device), PAGE);
    }
}

/// In an incarnation, fails every third write and every flush in turn: of the log, of pages, of a
/// checkpoint, of superblocks.
#[test]
fn each_write_or_flush_fails() {
    for (op, step) in [(Op::Write, 3), (Op::Flush, 1)] {
        let mut failures = 0;
        for nth in (1..).step_by(step) {
            let (device, below, control) = faulty();
            filled(&device, 300).close().unwrap();
            control.fail_nth(op, nth);
            let before = control.counts().errors;
            let mut life = Life::default();
            life.live(&device);
            let struck = control.counts().errors > before;
            control.heal();
            life.assert_kept(&below, 300, &format!("{op:?} {nth} failed"));
            if !struck {
                break;
            }
            failures += 1;
        }
        assert!(failures > 20, "{failures} of {op:?}");
    }
}

/// The power fails at every third write of an incarnation, which may be torn. The store must always
/// open and have everything that was acknowledged.
#[test]
fn a_crash_at_each_write_of_a_life() {
    let mut crashes = 0;
    for nth in (1..).step_by(3) {
        let (device, below, control) = faulty();
        filled(&device, 300).close().unwrap();
        let before = control.seen(Op::Write);
        control.crash_at_write(nth, nth % 4);
        let mut life = Life::default();
        life.live(&device);
        life.assert_kept(&below, 300, &format!("crash at write {nth}"));
        if control.seen(Op::Write) - before < nth {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 50, "{crashes}");
}

#[test]
fn a_crash_at_each_write_of_a_close() {
    let mut crashes = 0;
    for nth in 1.. {
        let (device, below, control) = faulty();
        let store = filled(&device, 60);
        let table = store.table("t").unwrap();
        for i in 0..60 {
            table.put(&key(i), &value(i + 1)).unwrap();
        }
        drop(table);
        let before = control.seen(Op::Write);
        control.crash_at_write(nth, 0);
        let closed = store.close();
        let reached = control.seen(Op::Write) - before >= nth;
        // Once the checkpoint is durable, only the superblocks are missing.
        assert_eq!(closed.is_err(), reached, "write {nth}");
        let store = Store::open(vec![below.clone()], &existing(PAGE, FRAMES)).unwrap();
        let table = store.table("t").unwrap();
        for i in 0..60 {
            assert_eq!(table.get(&key(i)).unwrap(), Some(value(i + 1)), "write {nth}");
        }
        drop(table);
        store.close().unwrap();
        assert_sound(&[below], PAGE);
        if !reached {
            break;
        }
        crashes = nth;
    }
    assert!(crashes > 5);
}

/// The superblock that marks the store open cannot be written: no change was made, and none can be.
#[test]
fn a_failed_superblock() {
    let (device, below, control) = faulty();
    let store = filled(&device, 100);
    let table = store.table("t").unwrap();
    control.fail_nth(Op::Write, 1);
    assert_eq!(table.put(b"a", b"1").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(table.put(b"a", b"1").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(table.get(&key(7)).unwrap(), Some(value(7)));
    drop(table);
    assert!(store.close().is_err());
    // The superblock was not written, so the store is still closed.
    assert_sound(&[below], PAGE);
}

#[test]
fn no_space_left() {
    let (device, _, control) = faulty();
    let store = filled(&device, 2000);
    let table = store.table("t").unwrap();
    control.fail_grow(true);
    let mut next = 2000;
    let error = loop {
        match table.put(&key(next), &value(next)) {
            Ok(_) => next += 1,
            Err(error) => break error,
        }
        assert!(next < 100_000);
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(!store.is_read_only());
    assert_eq!(table.put(b"large", &[1; 500_000]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(table.get(b"large").unwrap(), None);
    assert_eq!(table.get(&key(next)).unwrap(), None);
    // Changes that need no new space succeed, and freed space is reused.
    assert!(table.put(&key(5), &value(5)).unwrap());
    for i in 0..1500 {
        assert!(table.delete(&key(i)).unwrap());
    }
    for i in 0..500 {
        assert!(!table.put(&key(i), &value(i)).unwrap(), "{i}");
    }
    control.heal();
    for i in next..next + 2000 {
        table.put(&key(i), &value(i)).unwrap();
    }
    drop(table);
    store.close().unwrap();
    let report = assert_sound(std::slice::from_ref(&device), PAGE);
    assert_eq!(report.tables[1].records, u64::from(next) + 2000 - 1000);
    let store = Store::open(vec![device], &existing(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..next + 2000 {
        let expected = (!(500..1500).contains(&i)).then(|| value(i));
        assert_eq!(table.get(&key(i)).unwrap(), expected, "{i}");
    }
}

/// A device refuses to grow from some moment on: changes fail with `NoSpace`, and nothing else goes
/// wrong. The store can be closed and recovered with everything that was acknowledged.
#[test]
fn no_space_from_any_moment_on() {
    for (moment, crash) in
        [0, 1, 200, 900, 1700, 3000].into_iter().flat_map(|m| [(m, false), (m, true)])
    {
        let what = format!("after {moment}, crash {crash}");
        let (device, _, control) = faulty();
        let store = filled(&device, 1000);
        let table = store.table("t").unwrap();
        let mut model: BTreeMap<_, _> = (0..1000).map(|i| (key(i), value(i))).collect();
        let mut refused = 0;
        let mut done = 0;
        for i in 0.. {
            if done == moment {
                control.fail_grow(true);
            }
            let key = key(i * 7919 % 60_000);
            let outcome = match i % 40 {
                39 => table.put(&key, &[i as u8; 3000]).map(|_| vec![i as u8; 3000]),
                _ => table.put(&key, &value(i)).map(|_| value(i)),
            };
            match outcome {
                Ok(value) => {
                    model.insert(key, value);
                    done += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {error}");
                    assert!(error.way_out().is_some(), "{what}: {error}");
                    refused += 1;
                    if refused == 20 {
                        break;
                    }
                }
            }
            assert!(i < 100_000);
        }
        // When the device is full, reads, deletes, drops and a close still work.
        for (index, key) in model.keys().cloned().collect::<Vec<_>>().into_iter().enumerate() {
            if index % 3 == 0 {
                assert!(table.delete(&key).unwrap(), "{what}");
                model.remove(&key);
            }
        }
        let all: BTreeMap<_, _> = table.range(..).unwrap().map(Result::unwrap).collect();
        assert!(all == model, "{what}");
        assert!(!store.is_read_only());
        let copy = common::copy_of(device.as_ref(), device.size_bytes());
        drop(table);
        store.close().unwrap();
        // Recovery gets no more space than before.
        let device: Device = if crash { copy } else { device };
        let device = FaultDevice::new(device, FaultOptions::default()).unwrap();
        device.control().fail_grow(true);
        let device: Device = Arc::new(device);
        let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let table = store.table("t").unwrap();
        let all: BTreeMap<_, _> = table.range(..).unwrap().map(Result::unwrap).collect();
        assert!(all == model, "{what}, opened again");
        let first = model.keys().next().unwrap();
        assert!(table.delete(first).unwrap(), "{what}");
        drop(table);
        store.drop_table("t").unwrap();
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}
