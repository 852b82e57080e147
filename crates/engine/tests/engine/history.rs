//! Snapshots that need more older values than memory may hold: the values go to the device, within
//! limits, and are freed again.

use crate::common;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{Device, assert_sound, existing, faulty, key, options, ram};
use qpair_block::{DelayDevice, DelayOptions, Op, RamDevice, RamOptions};
use qpair_engine::{
    Durability, ErrorKind, Isolation, Snapshot, Store, StoreOptions, Table, TransactionOptions,
};

const PAGE: usize = 1024;
/// Memory for older values in bytes, enough for some dozens of them.
const MEMORY: u64 = 64 << 10;

fn with_history(history_bytes_max: u64) -> StoreOptions {
    StoreOptions { versions_bytes_max: MEMORY, history_bytes_max, ..options(PAGE, 256) }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts, replaces and deletes records, large ones among them.
fn change(table: &Table, model: &mut Model, random: &mut fastrand::Rng, changes: u32) {
    for _ in 0..changes {
        let key = key(random.u32(0..600));
        if random.u8(0..4) == 0 {
            assert_eq!(table.delete(&key).unwrap(), model.remove(&key).is_some());
            continue;
        }
        let len = if random.u8(0..30) == 0 { 3000 } else { random.usize(0..200) };
        let value = vec![random.u8(..); len];
        table.put(&key, &value).unwrap();
        model.insert(key, value);
    }
}

fn assert_sees(snapshot: &Snapshot, table: &Table, model: &Model) {
    for i in 0..600 {
        let key = key(i);
        assert_eq!(snapshot.get(table, &key).unwrap().as_ref(), model.get(&key), "{i}");
    }
    let all = snapshot.range(table, ..).unwrap();
    assert!(all.map(Result::unwrap).eq(model.clone()), "a range");
    let (from, to) = (key(100), key(400));
    let range = || snapshot.range(table, from.as_slice()..to.as_slice()).unwrap();
    let expected = || model.range(from.clone()..to.clone()).map(|(k, v)| (k.clone(), v.clone()));
    assert!(range().map(Result::unwrap).eq(expected()), "a part");
    assert!(range().reverse().map(Result::unwrap).eq(expected().rev()), "a part, in reverse");
}

#[test]
fn snapshots_see_what_they_saw_while_all_is_changed_many_times() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &with_history(64 << 20)).unwrap();
    let table = store.table("t").unwrap();
    let (mut random, mut model) = (fastrand::Rng::with_seed(3), Model::new());
    let mut snapshots = Vec::new();
    for _ in 0..6 {
        change(&table, &mut model, &mut random, 3000);
        snapshots.push((store.snapshot().unwrap(), model.clone()));
        let now = store.metrics().unwrap();
        assert!(now.versions_bytes <= MEMORY, "{} bytes in memory", now.versions_bytes);
    }
    assert!(store.metrics().unwrap().history_bytes > 0);
    for (snapshot, model) in &snapshots {
        assert_sees(snapshot, &table, model);
    }
    // The oldest snapshot ends first; the values that the others need stay.
    while !snapshots.is_empty() {
        snapshots.remove(0);
        change(&table, &mut model, &mut random, 200);
        for (snapshot, model) in &snapshots {
            assert_sees(snapshot, &table, model);
        }
    }
    // This takes a commit or two, and a turn of each worker.
    while store.metrics().unwrap().history_bytes > 0 {
        change(&table, &mut model, &mut random, 10);
    }
    let (snapshot, held) = (store.snapshot().unwrap(), model.clone());
    change(&table, &mut model, &mut random, 5000);
    assert_sees(&snapshot, &table, &held);
    drop((snapshot, table));
    store.close().unwrap();
    assert_sound(std::slice::from_ref(&device), PAGE);
    let store = Store::open(vec![device], &existing(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    assert!(table.range(..).unwrap().map(Result::unwrap).eq(model));
}

/// A range over deleted records, which all were in one leaf.
#[test]
fn a_range_of_what_was_deleted() {
    let options = StoreOptions { versions_bytes_max: 1 << 20, ..with_history(64 << 20) };
    let store = Store::open(vec![ram()], &options).unwrap();
    let table = store.table("t").unwrap();
    let mut model = Model::new();
    for i in 0..20_000 {
        table.put(&key(i), &[7; 60]).unwrap();
        model.insert(key(i), vec![7; 60]);
    }
    let snapshot = store.snapshot().unwrap();
    for i in 0..20_000 {
        table.delete(&key(i)).unwrap();
    }
    let range = || snapshot.range(&table, ..).unwrap();
    assert!(range().map(Result::unwrap).eq(model.clone()));
    assert!(range().reverse().map(Result::unwrap).eq(model.into_iter().rev()));
}

/// A row that changes all the time adds one image to each run, and not one for each change.
#[test]
fn what_no_snapshot_needs_stays_out() {
    let store = Store::open(vec![ram()], &with_history(64 << 20)).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"hot", b"first").unwrap();
    let snapshot = store.snapshot().unwrap();
    for i in 0..20_000u32 {
        table.put(b"hot", &[i as u8; 200]).unwrap();
    }
    let now = store.metrics().unwrap();
    assert!(now.history_bytes > 0 && now.history_bytes < 20_000 * 200 / 10, "{now:?}");
    assert_eq!(snapshot.get(&table, b"hot").unwrap().unwrap(), b"first");
}

#[test]
fn a_snapshot_is_given_up_when_the_device_may_hold_no_more() {
    let bound = 256 << 10;
    let store = Store::open(vec![ram()], &with_history(bound)).unwrap();
    let table = store.table("t").unwrap();
    table.put(&key(0), b"before").unwrap();
    let old = store.snapshot().unwrap();
    let mut most = 0;
    for i in 0..40_000 {
        table.put(&key(i % 5000), &[i as u8; 100]).unwrap();
        if i % 500 == 0 {
            let now = store.metrics().unwrap();
            assert!(now.versions_bytes <= MEMORY + (8 << 10), "{} bytes", now.versions_bytes);
            most = most.max(now.history_bytes);
        }
    }
    assert!(most > bound / 2 && most <= bound, "{most} bytes");
    let error = old.get(&table, &key(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}");
    assert!(error.to_string().contains(&qpair_block::format_bytes(bound)), "{error}");
}

/// Commits whose older values are only on the device cause conflicts, as the others do.
#[test]
fn conflicts_with_what_is_on_the_device() {
    let store = Store::open(vec![ram()], &with_history(64 << 20)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..500 {
        table.put(&key(i), b"before").unwrap();
    }
    let begin = |isolation| {
        let mut tx =
            store.begin_with(&TransactionOptions { isolation, ..TransactionOptions::default() });
        assert_eq!(tx.get(&table, &key(400)).unwrap().unwrap(), b"before");
        tx
    };
    let mut changed = begin(Isolation::Snapshot);
    let mut unchanged = begin(Isolation::Snapshot);
    let mut locks = begin(Isolation::Snapshot);
    let mut reads = begin(Isolation::Serializable);
    assert_eq!(reads.get(&table, &key(7)).unwrap().unwrap(), b"before");
    let mut ranges = begin(Isolation::Serializable);
    let range = ranges.range(&table, key(5).as_slice()..key(9).as_slice()).unwrap();
    assert_eq!(range.count(), 4);
    let mut others = begin(Isolation::Serializable);
    assert_eq!(others.range(&table, key(350).as_slice()..).unwrap().count(), 150);
    for i in 0..3000 {
        table.put(&key(i % 300), &[i as u8; 100]).unwrap();
    }
    table.delete(&key(6)).unwrap();
    for i in 10..2000 {
        table.put(&key(i % 300), &[i as u8; 100]).unwrap();
    }
    assert!(store.metrics().unwrap().history_bytes > 0);
    let kind = |result: qpair_engine::Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(changed.put(&table, &key(6), b"mine")), ErrorKind::Conflict);
    assert_eq!(kind(locks.lock(&table, &key(7))), ErrorKind::Conflict);
    unchanged.put(&table, &key(450), b"mine").unwrap();
    assert_eq!(unchanged.get(&table, &key(6)).unwrap().unwrap(), b"before");
    unchanged.commit().unwrap();
    for (i, tx) in [&mut reads, &mut ranges, &mut others].into_iter().enumerate() {
        tx.put(&table, &key(490 + i as u32), b"mine").unwrap();
    }
    assert_eq!(reads.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(ranges.commit().unwrap_err().kind(), ErrorKind::Conflict);
    // The commit has only read `unchanged`.
    assert_eq!(others.commit().unwrap_err().kind(), ErrorKind::Conflict);
}

/// Fills a store on a small device, with or without a snapshot that needs the replaced values.
/// Returns also the number of records that fit then.
fn fill(with_snapshot: bool) -> (Store, Option<Snapshot>, Table, u32) {
    let ram = RamOptions { size_bytes: 8 << 20, growable: false, ..RamOptions::default() };
    let device: Device = Arc::new(RamDevice::new(ram).unwrap());
    let store = Store::open(vec![device], &with_history(64 << 20)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..2000 {
        table.put(&key(i), &[1; 100]).unwrap();
    }
    let snapshot = with_snapshot.then(|| store.snapshot().unwrap());
    let mut most = 0;
    for i in 0..30_000 {
        table.put(&key(i % 2000), &[i as u8; 100]).unwrap();
        if i % 500 == 0 {
            most = most.max(store.metrics().unwrap().history_bytes);
        }
    }
    assert_eq!(most > 0, with_snapshot, "older values were on the device");
    let mut records = 2000;
    let error = loop {
        match table.put(&key(records), &[1; 100]) {
            Ok(_) => records += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    (store, snapshot, table, records)
}

/// Readers do not make writers fail: a device that is full of older values discards them.
#[test]
fn a_full_device_gives_older_values_up_first() {
    let (store, snapshot, table, records) = fill(true);
    assert_eq!(store.metrics().unwrap().history_bytes, 0);
    let error = snapshot.unwrap().get(&table, &key(5)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotLost);
    assert_eq!(table.range(..).unwrap().count() as u32, records);
    drop(table);
    store.close().unwrap();
    let without = fill(false).3;
    assert!(records > without / 10 * 9, "{records} records, and {without} without a snapshot");
}

/// A reader of older values gets the device's error. A failed write of older values is final, as
/// all failed writes are.
#[test]
fn errors_of_the_device() {
    let (device, _, control) = faulty();
    let store = Store::open(vec![device], &with_history(64 << 20)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..100 {
        table.put(&key(i), b"before").unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    for i in 0..3000 {
        table.put(&key(i % 100), &[i as u8; 100]).unwrap();
    }
    assert!(store.metrics().unwrap().history_bytes > 0);
    control.fail_reads(true);
    assert_eq!(snapshot.get(&table, &key(3)).unwrap_err().kind(), ErrorKind::Io);
    let error = snapshot.range(&table, ..).unwrap().next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    control.heal();
    assert_eq!(snapshot.get(&table, &key(3)).unwrap().unwrap(), b"before");
    control.set_corrupt_read_rate(1.0);
    assert_eq!(snapshot.get(&table, &key(3)).unwrap_err().kind(), ErrorKind::Corrupt);
    control.heal();
    control.set_error_rate(Op::Write, 1.0);
    let mut acknowledged = 3000;
    while table.put(&key(acknowledged % 100), &[acknowledged as u8; 100]).is_ok() {
        acknowledged += 1;
    }
    assert!(store.metrics().unwrap().read_only);
    assert_eq!(snapshot.get(&table, &key(3)).unwrap().unwrap(), b"before");
}

/// A writer that is faster than the device waits for it. A regression: an open snapshot was lost to
/// the deletion of a range, although the device had room for all of its values.
#[test]
fn who_outruns_the_device_waits() {
    for log in [true, false] {
        let device = ram();
        let delay = DelayOptions { write_us: 2000, ..DelayOptions::default() };
        let slow: Device = Arc::new(DelayDevice::new(device.clone(), delay).unwrap());
        let options = StoreOptions {
            versions_bytes_max: 1 << 20,
            history_bytes_max: 64 << 20,
            durability: Durability::Async,
            log,
            ..common::options(PAGE, 8192)
        };
        let store = Store::open(vec![slow], &options).unwrap();
        let table = store.table("t").unwrap();
        table.bulk_load((0..20_000).map(|i| Ok((key(i), vec![1; 200])))).unwrap();
        let snapshot = store.snapshot().unwrap();
        assert_eq!(table.delete_range(..).unwrap(), 20_000);
        let seen = snapshot.range(&table, ..).unwrap();
        assert_eq!(seen.map(Result::unwrap).count(), 20_000);
        drop((snapshot, table));
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}

/// Snapshots are given up one after the other, the oldest first. A regression: all of them were
/// given up when one had to be.
#[test]
fn no_more_snapshots_are_given_up_than_must_be() {
    for history_bytes_max in [0, 512 << 10] {
        let device = ram();
        let store = Store::open(vec![device.clone()], &with_history(history_bytes_max)).unwrap();
        let table = store.table("t").unwrap();
        let mut snapshots = Vec::new();
        let mut put = 0u32;
        let mut lost = 0;
        while lost < 20 {
            // The values that one snapshot alone needs are a small part of the limit.
            for _ in 0..(if history_bytes_max == 0 { 50 } else { 500 }) {
                table.put(&key(put % 50), &put.to_be_bytes().repeat(25)).unwrap();
                put += 1;
            }
            snapshots.push((store.snapshot().unwrap(), put - 1));
            let is_lost = |(snapshot, last): &(Snapshot, u32)| {
                match snapshot.get(&table, &key(last % 50)) {
                    Ok(found) => assert_eq!(found.unwrap()[..4], last.to_be_bytes()),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}");
                        return true;
                    }
                }
                false
            };
            let now = snapshots.iter().filter(|of| is_lost(of)).count();
            assert!(snapshots[..now].iter().all(is_lost), "the oldest go first");
            // Snapshots that share a run are given up together.
            let most = snapshots.len() * 3 / 4;
            assert!(lost > 0 || now <= most, "{now} of {} at once", snapshots.len());
            lost = now;
        }
        drop((snapshots, table));
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}
