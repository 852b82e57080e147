//! Stores that keep their write-ahead log on a device of its own.

use crate::common;
use std::sync::Arc;

use crate::common::{
    Device, copy_of, existing, key, options, ram, ram_of, reading, with_log, write_bytes,
};
use qpair_block::{RamDevice, RamOptions};
use qpair_engine::{
    ErrorKind, Isolation, LogPlace, Remedy, Result, Store, StoreOptions, TransactionOptions,
};

fn open(device: &Device, options: &StoreOptions) -> Result<Store> {
    Store::open(vec![device.clone()], options)
}

/// Returns copies of the devices, as a crash at this moment leaves them.
fn crashed(device: &Device, log: &Device) -> (Device, Device) {
    // Copy the log first: commits acknowledged meanwhile are in neither copy.
    let log = copy_of(log.as_ref(), log.size_bytes());
    (copy_of(device.as_ref(), device.size_bytes()), log)
}

fn fixed(size_bytes: u64) -> Device {
    let options = RamOptions { size_bytes, growable: false, ..RamOptions::default() };
    Arc::new(RamDevice::new(options).unwrap())
}

fn value(i: u32) -> Vec<u8> {
    // Some values do not fit into a leaf.
    vec![i as u8; if i.is_multiple_of(17) { 9000 } else { 100 }]
}

fn fill(store: &Store, keys: std::ops::Range<u32>) {
    let table = store.table("t").unwrap();
    for i in keys {
        table.put(&key(i), &value(i)).unwrap();
    }
}

fn assert_filled(store: &Store, keys: u32) {
    let table = store.existing_table("t").unwrap().unwrap();
    for i in 0..keys {
        assert_eq!(table.get(&key(i)).unwrap().as_deref(), Some(&value(i)[..]), "{i}");
    }
}

#[test]
fn what_was_acknowledged_is_in_the_log_device() {
    for page_size in [512, 4096] {
        let (device, log) = (ram(), ram());
        let store = open(&device, &with_log(options(page_size, 256), &log)).unwrap();
        fill(&store, 0..300);
        let (left, left_log) = crashed(&device, &log);
        drop(store);
        let store = open(&left, &with_log(existing(page_size, 256), &left_log)).unwrap();
        assert!(store.report().recovered.unwrap().commits >= 300);
        assert_filled(&store, 300);
        fill(&store, 300..400);
        // Crash again after a recovery, and once more after the checkpoint that ends it.
        let (left, left_log) = crashed(&left, &left_log);
        let store = open(&left, &with_log(existing(page_size, 256), &left_log)).unwrap();
        assert_filled(&store, 400);
        store.close().unwrap();
        common::assert_sound(&[left], page_size);
    }
}

#[test]
fn nothing_of_the_log_is_in_the_store() {
    let (device, log) = (ram(), ram());
    let options = StoreOptions { checkpoint_bytes: 1 << 30, ..options(4096, 1024) };
    let store = open(&device, &with_log(options, &log)).unwrap();
    let before = store.statistics().unwrap();
    fill(&store, 1..17);
    let after = store.statistics().unwrap();
    assert!(after.log_writes - before.log_writes >= 16);
    let bytes = common::read_bytes(log.as_ref(), 0, log.size_bytes() as usize);
    let chunks = bytes.chunks(4096).filter(|block| block.starts_with(b"qlgc")).count();
    assert!(chunks >= 16 - 2, "{chunks}");
    let bytes = common::read_bytes(device.as_ref(), 0, device.size_bytes() as usize);
    assert!(!bytes.chunks(512).any(|block| block.starts_with(b"qlg")));
    store.close().unwrap();
}

#[test]
fn a_log_device_that_is_not_given() {
    let (device, log) = (ram(), ram());
    let store = open(&device, &with_log(options(4096, 256), &log)).unwrap();
    fill(&store, 0..50);
    let (left, left_log) = crashed(&device, &log);
    store.close().unwrap();

    // The store was not closed, so it needs its own log device.
    let existing = existing(4096, 256);
    let error = open(&left, &existing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Member);
    assert_eq!(error.remedy(), Some(Remedy::NameLog), "{error}");
    let inside = StoreOptions { log_place: LogPlace::Store, ..existing.clone() };
    assert_eq!(open(&left, &inside).unwrap_err().kind(), ErrorKind::Member);
    assert_eq!(
        open(&left, &with_log(existing.clone(), &ram())).unwrap_err().kind(),
        ErrorKind::Member
    );
    let at_checkpoint = StoreOptions { at_checkpoint: true, ..existing.clone() };
    open(&left, &at_checkpoint).unwrap().close().unwrap();
    assert_eq!(open(&left, &reading(4096, 256)).unwrap_err().kind(), ErrorKind::Unclean);
    let store = open(&left, &with_log(existing.clone(), &left_log)).unwrap();
    assert_filled(&store, 50);
    drop(store);

    // The store was closed: reading needs no log device, and for writing the options must say where
    // the log goes.
    open(&device, &reading(4096, 256)).unwrap().close().unwrap();
    let error = open(&device, &existing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Member);
    assert_eq!(error.remedy(), Some(Remedy::PlaceLog), "{error}");
}

#[test]
fn the_log_of_a_closed_store_moves() {
    let (device, first, second) = (ram(), ram(), ram());
    let existing = existing(4096, 256);
    let inside = StoreOptions { log_place: LogPlace::Store, ..existing.clone() };
    open(&device, &options(4096, 256)).unwrap().close().unwrap();
    let mut keys = 0;
    // Move the log from the store to a device, to another one, back into the store, and to the
    // first device, whose content is old by then.
    let places = [
        with_log(existing.clone(), &first),
        with_log(existing.clone(), &second),
        inside.clone(),
        existing.clone(),
        with_log(existing.clone(), &first),
        with_log(existing.clone(), &first),
    ];
    for place in places {
        let store = open(&device, &place).unwrap();
        fill(&store, keys..keys + 40);
        keys += 40;
        let (left, left_first) = crashed(&device, &first);
        let left_second = copy_of(second.as_ref(), second.size_bytes());
        store.close().unwrap();
        let log_place = match &place.log_place {
            LogPlace::Device(log) if Arc::ptr_eq(log, &first) => LogPlace::Device(left_first),
            LogPlace::Device(_) => LogPlace::Device(left_second),
            _ => LogPlace::Unsaid,
        };
        let store = open(&left, &StoreOptions { log_place, ..existing.clone() }).unwrap();
        assert_filled(&store, keys);
        store.close().unwrap();
    }
    common::assert_sound(&[device], 4096);
}

#[test]
fn what_is_no_log_device_of_this_store() {
    let (device, log) = (ram(), ram());
    let (other, other_log) = (ram(), ram());
    open(&device, &with_log(options(4096, 256), &log)).unwrap().close().unwrap();
    open(&other, &with_log(options(4096, 256), &other_log)).unwrap().close().unwrap();
    let kind =
        |log: &Device| open(&device, &with_log(existing(4096, 256), log)).unwrap_err().kind();
    assert_eq!(kind(&other_log), ErrorKind::Member);
    assert_eq!(kind(&other), ErrorKind::Member);
    assert_eq!(kind(&device), ErrorKind::Member);
    let foreign = ram();
    write_bytes(foreign.as_ref(), 8192, &[1; 512]);
    assert_eq!(kind(&foreign), ErrorKind::Exists);
    // A store that was not closed keeps its log.
    let (device, log) = (ram(), ram());
    let store = open(&device, &options(4096, 256)).unwrap();
    fill(&store, 0..3);
    let (left, _) = crashed(&device, &log);
    store.close().unwrap();
    let error = open(&left, &with_log(existing(4096, 256), &log)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Member);
    open(&left, &existing(4096, 256)).unwrap().close().unwrap();
}

#[test]
fn one_of_the_two_restored_alone() {
    let (device, log) = (ram(), ram());
    let existing = existing(4096, 256);
    let store = open(&device, &with_log(options(4096, 256), &log)).unwrap();
    fill(&store, 0..20);
    let (old, old_log) = crashed(&device, &log);
    store.close().unwrap();
    let store = open(&device, &with_log(existing.clone(), &log)).unwrap();
    fill(&store, 20..40);
    let (left, left_log) = crashed(&device, &log);
    store.close().unwrap();
    for (device, log) in [(&old, &left_log), (&left, &old_log)] {
        let error = open(device, &with_log(existing.clone(), log)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Member, "{error}");
        assert!(error.to_string().contains("moments"), "{error}");
    }
    for (device, log, keys) in [(&old, &old_log, 20), (&left, &left_log, 40)] {
        assert_filled(&open(device, &with_log(existing.clone(), log)).unwrap(), keys);
    }
}

#[test]
fn a_closed_store_that_is_older_than_its_log_device() {
    let (device, log) = (ram(), ram());
    let existing = existing(4096, 256);
    open(&device, &with_log(options(4096, 256), &log)).unwrap().close().unwrap();
    let old = copy_of(device.as_ref(), device.size_bytes());
    for keys in 0..5 {
        let store = open(&device, &with_log(existing.clone(), &log)).unwrap();
        fill(&store, keys * 10..keys * 10 + 10);
        store.close().unwrap();
    }
    // There is no log, so nothing is missing. Chunks of unknown incarnations do not count in the
    // next one.
    let store = open(&old, &with_log(existing.clone(), &log)).unwrap();
    fill(&store, 0..1);
    let (left, left_log) = crashed(&old, &log);
    drop(store);
    let store = open(&left, &with_log(existing, &left_log)).unwrap();
    assert_filled(&store, 1);
    assert_eq!(store.table("t").unwrap().range(..).unwrap().count(), 1);
}

#[test]
fn too_small() {
    let least = (64 << 10) + 2 * 4 * (64 << 10);
    let error = open(&ram(), &with_log(options(4096, 256), &fixed(least - 4096))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains(&format!("at least {least} bytes")), "{error}");
    let store = open(&ram(), &with_log(options(4096, 256), &fixed(least))).unwrap();
    fill(&store, 0..200);
    store.close().unwrap();
}

#[test]
fn a_full_log_device_lets_commits_wait_for_a_checkpoint() {
    let (device, log) = (ram(), fixed((64 << 10) + 10 * (64 << 10)));
    let options = StoreOptions { checkpoint_bytes: 1 << 40, workers: 2, ..options(4096, 1024) };
    let store = open(&device, &with_log(options, &log)).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let store = store.clone();
            std::thread::spawn(move || fill(&store, thread * 300..thread * 300 + 300))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(store.statistics().unwrap().checkpoints > 2);
    let metrics = store.metrics().unwrap();
    let (used, max) = (metrics.log_device_used_bytes, metrics.log_device_bytes_max);
    assert!((4 * (64 << 10)..=max).contains(&used) && max == 10 * (64 << 10), "{used} of {max}");
    let told = metrics.to_prometheus();
    assert!(told.contains(&format!("qpair_log_device_used_bytes {used}\n")), "{told}");
    // A commit that can never fit is refused, and changes nothing.
    let error = store
        .transact(|tx| {
            let table = store.table("t")?;
            (0..1000).try_for_each(|i| tx.put(&table, &key(i), &[7; 1000]).map(|_| ()))
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    // A commit that takes most of the log succeeds, and so do others after it.
    store
        .transact(|tx| {
            let table = store.table("u")?;
            (0..150).try_for_each(|i| tx.put(&table, &key(i), &[7; 1000]).map(|_| ()))
        })
        .unwrap();
    let (left, left_log) = crashed(&device, &log);
    let store_again = open(&left, &with_log(existing(4096, 1024), &left_log)).unwrap();
    assert_filled(&store_again, 1200);
    drop(store_again);
    store.close().unwrap();
    common::assert_sound(&[device], 4096);
}

/// Two commits that each need most of the log device are made one after the other. A regression:
/// they made checkpoints for each other for ever, or each kept half of the space that the other
/// needed.
#[test]
fn large_commits_on_a_full_log_device_go_one_after_the_other() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let (device, log) = (ram(), fixed((64 << 10) + 12 * (64 << 10)));
        let options = StoreOptions { checkpoint_bytes: 1 << 40, workers: 3, ..options(4096, 1024) };
        let store = open(&device, &with_log(options, &log)).unwrap();
        let threads: Vec<_> = (0..4u8)
            .map(|thread| {
                let store = store.clone();
                std::thread::spawn(move || {
                    let table = store.table("t").unwrap();
                    for round in 0..6 {
                        let options =
                            TransactionOptions { isolation, ..TransactionOptions::default() };
                        let mut tx = store.begin_with(&options);
                        for i in 0..100 {
                            let key = [&[thread, round], &key(i)[..]].concat();
                            tx.put(&table, &key, &[thread; 1400]).unwrap();
                        }
                        tx.commit().unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let (left, left_log) = crashed(&device, &log);
        drop(store);
        let store = open(&left, &with_log(existing(4096, 1024), &left_log)).unwrap();
        let table = store.existing_table("t").unwrap().unwrap();
        assert_eq!(table.range(..).unwrap().count(), 4 * 6 * 100);
        drop(table);
        store.close().unwrap();
        common::assert_sound(&[left], 4096);
    }
}

/// Creating or dropping a table needs a few bytes of log, and waits for a checkpoint as commits do.
#[test]
fn tables_come_and_go_on_a_full_log_device() {
    let (device, log) = (ram(), fixed((64 << 10) + 12 * (64 << 10)));
    let options = StoreOptions { checkpoint_bytes: 1 << 40, workers: 3, ..options(4096, 1024) };
    let store = open(&device, &with_log(options, &log)).unwrap();
    let threads: Vec<_> = (0..3u8)
        .map(|thread| {
            let store = store.clone();
            std::thread::spawn(move || {
                let table = store.table("t").unwrap();
                for round in 0..12 {
                    let mut tx = store.begin();
                    for i in 0..100 {
                        let key = [&[thread, round], &key(i)[..]].concat();
                        tx.put(&table, &key, &[thread; 1400]).unwrap();
                    }
                    tx.commit().unwrap();
                }
            })
        })
        .collect();
    for round in 0..40 {
        let name = format!("table {round}");
        store.table(&name).unwrap().put(b"a", b"b").unwrap();
        if round % 2 == 0 {
            store.drop_table(&name).unwrap();
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let (left, left_log) = crashed(&device, &log);
    drop(store);
    let store = open(&left, &with_log(existing(4096, 1024), &left_log)).unwrap();
    assert_eq!(store.table_names().unwrap().len(), 21);
    store.close().unwrap();
    common::assert_sound(&[left], 4096);
}

#[test]
fn segments_of_another_size() {
    let (device, log) = (ram(), ram_of(4 << 20));
    let sized = |options: StoreOptions, log_segment_bytes| StoreOptions {
        log_segment_bytes,
        ..with_log(options, &log)
    };
    let store = open(&device, &sized(options(4096, 256), 16 << 10)).unwrap();
    fill(&store, 0..100);
    let (mut left, mut left_log) = crashed(&device, &log);
    drop(store);
    let mut keys = 100;
    for segment_bytes in [64 << 10, 16 << 10, 256 << 10] {
        let options = StoreOptions {
            log_segment_bytes: segment_bytes,
            ..with_log(existing(4096, 256), &left_log)
        };
        let store = open(&left, &options).unwrap();
        assert_filled(&store, keys);
        fill(&store, keys..keys + 50);
        keys += 50;
        (left, left_log) = crashed(&left, &left_log);
        drop(store);
    }
}
