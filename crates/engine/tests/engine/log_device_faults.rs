//! Log devices that fail, vanish or are full: the store becomes read-only with the cause, and
//! acknowledged commits are kept.

use crate::common;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{
    Device, assert_sound, copy_of, existing, faulty, key, options, ram, ram_of, with_log,
};
use qpair_block::{FaultDevice, FaultOptions, Op};
use qpair_engine::{ErrorKind, LogPlace, Store, StoreOptions, Table};
use qpair_inspect::{RepairReport, dump_log, repair};

const PAGE: usize = 512;
const FRAMES: u64 = 128;

fn value(i: u32) -> Vec<u8> {
    vec![i as u8; if i.is_multiple_of(11) { 2000 } else { 24 }]
}

/// Puts records until one is refused. Returns the number of records before it.
fn put_until_refused(table: &Table, keys: std::ops::Range<u32>) -> u32 {
    let first = keys.start;
    for i in keys.clone() {
        if let Err(error) = table.put(&key(i), &value(i)) {
            // The call that meets the failure returns one error, and later calls another.
            assert!(matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Io), "{error}");
            return i - first;
        }
    }
    keys.end - first
}

/// Checks that all records up to `acknowledged` are there, and at most one after them: the one
/// whose put was refused.
fn assert_kept(store: &Store, acknowledged: u32) {
    let table = store.existing_table("t").unwrap().unwrap();
    let found: Vec<_> = table.range(..).unwrap().map(Result::unwrap).collect();
    assert!((acknowledged..=acknowledged + 1).contains(&(found.len() as u32)), "{acknowledged}");
    for (i, (found_key, found_value)) in (0..).zip(found) {
        assert_eq!((found_key, found_value), (key(i), value(i)));
    }
}

#[test]
fn the_first_write_that_fails_is_final() {
    let ((device, ..), (log, _, log_control)) = (faulty(), faulty());
    let store = Store::open(vec![device.clone()], &with_log(options(PAGE, FRAMES), &log)).unwrap();
    let table = store.table("t").unwrap();
    assert_eq!(put_until_refused(&table, 0..50), 50);
    let snapshot = store.snapshot().unwrap();
    log_control.fail_nth(Op::Write, 1);
    let error = table.put(&key(50), &value(50)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("writing the log to {}", log.info().name)), "{text}");
    // The device failed once and works again, but the store stays read-only.
    for error in [table.delete(&key(1)).unwrap_err(), store.checkpoint().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert!(error.to_string().contains("writing the log"), "{error}");
    }
    assert_eq!(table.get(&key(7)).unwrap(), Some(value(7)));
    assert_eq!(snapshot.get(&table, &key(49)).unwrap(), Some(value(49)));
    drop((snapshot, table));
    store.close().unwrap_err();
    let store = Store::open(vec![device.clone()], &with_log(existing(PAGE, FRAMES), &log)).unwrap();
    assert_kept(&store, 50);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn a_log_device_that_vanishes() {
    let ((device, ..), (log, _, log_control)) = (faulty(), faulty());
    let store = Store::open(vec![device.clone()], &with_log(options(PAGE, FRAMES), &log)).unwrap();
    let table = store.table("t").unwrap();
    assert_eq!(put_until_refused(&table, 0..100), 100);
    log_control.fail_all(true);
    // All waiting threads get the error, whichever worker has their commits.
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let table = table.clone();
            std::thread::spawn(move || table.put(&key(100), &value(100)).unwrap_err().kind())
        })
        .collect();
    for thread in waiting {
        assert_eq!(thread.join().unwrap(), ErrorKind::ReadOnly);
    }
    assert!(store.is_read_only());
    // A read of a change that may be lost is refused. A read of a record beside it may be refused.
    assert_eq!(table.get(&key(100)).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(table.get(&key(7)).unwrap(), Some(value(7)));
    assert_eq!(table.range(&key(0)[..]..&key(50)[..]).unwrap().take(50).count(), 50);
    drop(table);
    store.close().unwrap_err();
    // While the device is missing, nothing is written. Once it is back, nothing is lost.
    let open = |options: StoreOptions| Store::open(vec![device.clone()], &options);
    assert_eq!(open(with_log(existing(PAGE, FRAMES), &log)).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(open(existing(PAGE, FRAMES)).unwrap_err().kind(), ErrorKind::Member);
    log_control.heal();
    let store = open(with_log(existing(PAGE, FRAMES), &log)).unwrap();
    assert_kept(&store, 100);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// Each write, or each flush, of either device fails in turn, or is the last one. The store becomes
/// read-only at most. When it is reopened, it has everything that was acknowledged.
#[test]
fn each_write_or_flush_of_either_fails() {
    for (of_log, op, step) in
        [(true, Op::Write, 5), (false, Op::Write, 7), (false, Op::Flush, 1), (true, Op::Flush, 1)]
    {
        for vanishes in [false, true] {
            let mut struck = 0;
            for nth in (1..).step_by(step) {
                let ((device, below, control), (log, log_below, log_control)) =
                    (faulty(), faulty());
                let failing = if of_log { log_control } else { control };
                let new = with_log(options(PAGE, FRAMES), &log);
                let store = Store::open(vec![device.clone()], &new).unwrap();
                assert_eq!(put_until_refused(&store.table("t").unwrap(), 0..20), 20);
                store.close().unwrap();
                let errors = failing.counts().errors;
                match vanishes && op == Op::Write {
                    true => failing.crash_at_write(nth, nth % 4),
                    false => failing.fail_nth(op, nth),
                }
                let options = StoreOptions {
                    checkpoint_bytes: 4 << 10,
                    ..with_log(existing(PAGE, FRAMES), &log)
                };
                let mut kept = 20;
                if let Ok(store) = Store::open(vec![device.clone()], &options) {
                    if let Ok(Some(table)) = store.existing_table("t") {
                        kept += put_until_refused(&table, 20..80);
                    }
                    let _ = store.close();
                }
                let failed = failing.counts().errors > errors;
                failing.heal();
                let again = with_log(existing(PAGE, FRAMES), &log_below);
                let store = Store::open(vec![below.clone()], &again).unwrap();
                assert_kept(&store, kept);
                store.close().unwrap();
                assert_sound(&[below], PAGE);
                if !failed {
                    break;
                }
                struck += 1;
            }
            // Writes of the log are durable by themselves (FUA). Only the log's superblock is
            // flushed.
            let least = if op == Op::Flush && of_log { 1 } else { 5 };
            assert!(struck >= least, "{struck} of {op:?}, log: {of_log}");
        }
    }
}

#[test]
fn a_log_device_that_cannot_grow() {
    let ((device, ..), (log, _, log_control)) = (faulty(), faulty());
    let options = StoreOptions { checkpoint_bytes: 1 << 40, ..options(PAGE, FRAMES) };
    let store = Store::open(vec![device], &with_log(options, &log)).unwrap();
    let table = store.table("t").unwrap();
    log_control.fail_grow(true);
    assert_eq!(put_until_refused(&table, 0..8000), 8000);
    assert!(store.statistics().unwrap().checkpoints > 3);
    assert!(log.size_bytes() < 2 << 20);
    // A commit that does not fit on the present log device is refused and changes nothing. Once the
    // device can grow, the commit fits.
    let large = || {
        store.transact(|tx| {
            (0..4000).try_for_each(|i| tx.put(&table, &key(90_000 + i), &[7; 60]).map(|_| ()))
        })
    };
    let error = large().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(table.range(key(90_000)..).unwrap().count(), 0);
    assert_eq!(put_until_refused(&table, 8000..8100), 100);
    log_control.fail_grow(false);
    large().unwrap();
    drop(table);
    store.close().unwrap();
}

fn repaired(device: &Device, log_place: LogPlace, target: &Device) -> RepairReport {
    let options = StoreOptions { log_place, ..existing(PAGE, FRAMES) };
    let mut make = |page_size| {
        let options = StoreOptions { page_size, ..common::options(PAGE, FRAMES) };
        Store::open(vec![target.clone()], &options)
    };
    repair(std::slice::from_ref(device), &options, &mut make, &|_, _, _| ControlFlow::Continue(()))
        .unwrap()
}

#[test]
fn tools_with_and_without_the_log_device() {
    let (device, log) = (ram(), ram());
    let store = Store::open(vec![device.clone()], &with_log(options(PAGE, FRAMES), &log)).unwrap();
    let table = store.table("t").unwrap();
    assert_eq!(put_until_refused(&table, 0..30), 30);
    store.checkpoint().unwrap();
    assert_eq!(put_until_refused(&table, 30..60), 30);
    let backup = ram_of(4 << 20);
    let (left_log, left) =
        (copy_of(log.as_ref(), log.size_bytes()), copy_of(device.as_ref(), device.size_bytes()));
    store.backup(vec![backup.clone()], None, &|_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(store.report().log_device.unwrap().name, log.info().name);
    drop(table);
    store.close().unwrap();

    // A backup keeps its log in its own space.
    let store = Store::open(vec![backup.clone()], &existing(PAGE, FRAMES)).unwrap();
    assert!(store.report().log_device.is_none());
    assert_kept(&store, 60);
    store.close().unwrap();

    let members = std::slice::from_ref(&left);
    let own = LogPlace::Device(left_log.clone());
    let mut timestamps = Vec::new();
    let dump = dump_log(members, &placed(&own), &mut |entry| {
        timestamps.push(entry.timestamp);
        ControlFlow::Continue(())
    });
    assert_eq!((dump.unwrap().commits, timestamps.len()), (30, 30));
    for place in [LogPlace::Unsaid, LogPlace::Device(ram()), LogPlace::Device(backup)] {
        let error =
            dump_log(members, &placed(&place), &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Member, "{error}");
    }

    // An unreadable log may have had commits that a program relies on, whatever part of it can be
    // read.
    let bad = FaultDevice::new(left_log.clone(), FaultOptions::default()).unwrap();
    bad.control().fail_range(Op::Read, common::SUPERBLOCK_BYTES..left_log.size_bytes());
    let bad = LogPlace::Device(Arc::new(bad));
    let report = repaired(&left, bad.clone(), &ram());
    assert!(!report.healthy && report.log.unwrap().damaged, "{report:?}");
    let dump = dump_log(members, &placed(&bad), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(dump.unreadable && dump.commits == 0, "{dump:?}");

    // With its log, the store only needs recovery. Without it, the checkpoint's data is saved.
    let target = ram();
    assert!(repaired(&left, own.clone(), &target).healthy);
    let report = repaired(&left, LogPlace::Unsaid, &target);
    assert!(!report.healthy && !report.is_complete(), "{report:?}");
    assert!(report.remarks.iter().any(|what| what.contains("the log is missing")), "{report:?}");
    let store = Store::open(vec![target], &existing(PAGE, FRAMES)).unwrap();
    assert_kept(&store, 30);
    store.close().unwrap();
    let store = Store::open(vec![left], &with_log(existing(PAGE, FRAMES), &left_log)).unwrap();
    assert_kept(&store, 60);
    store.close().unwrap();
}

/// Returns options that say where the log is.
fn placed(log_place: &LogPlace) -> StoreOptions {
    StoreOptions { log_place: log_place.clone(), ..StoreOptions::default() }
}
