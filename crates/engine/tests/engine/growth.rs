//! Tests how much stores grow: their size stays in proportion to their content.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Device, assert_sound, options, ram};
use qpair_block::time::SimClock;
use qpair_block::{DelayDevice, DelayOptions, RamDevice, RamOptions};
use qpair_engine::{
    Durability, ErrorKind, Runtime, Store, StoreOptions, Table, TransactionOptions,
};
use qpair_sim_block::{SimDevice, SimOptions};

const PAGE: usize = 4096;
/// The number of frames, a quarter of which may be reserved for commits without a check.
const FRAMES: u64 = 256;
const RECORDS: u64 = 60_000;

type Key = [u8; 8];
type KeyOf = fn(u64) -> Key;

fn sorted(i: u64) -> Key {
    i.to_be_bytes()
}

fn falling(i: u64) -> Key {
    (u64::MAX - i).to_be_bytes()
}

fn scattered(i: u64) -> Key {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Returns the size of a store's device after `change`.
fn size_after(change: impl Fn(&Store, &Table)) -> u64 {
    let device = ram();
    let options = StoreOptions { log_segment_bytes: 1 << 20, ..options(PAGE, FRAMES) };
    let store = Store::open(vec![device.clone()], &options).unwrap();
    let table = store.table("t").unwrap();
    change(&store, &table);
    drop(table);
    store.close().unwrap();
    assert_sound(std::slice::from_ref(&device), PAGE);
    device.size_bytes()
}

fn load(table: &Table) {
    table.bulk_load((0..RECORDS).map(|i| Ok((sorted(i).to_vec(), vec![1; 8])))).unwrap();
}

fn put_in_one(store: &Store, table: &Table, key: impl Fn(u64) -> Key, keys: std::ops::Range<u64>) {
    store.transact(|tx| keys.clone().try_for_each(|i| tx.put(table, &key(i), &[2; 8]))).unwrap();
}

/// The growth depends on the number of leaves that the transaction changes, and not on its number
/// of records.
#[test]
fn one_transaction_grows_a_store_by_little_more_than_a_load() {
    let loaded = size_after(|_, table| load(table));
    let grown = |name: &str, change: &dyn Fn(&Store, &Table)| {
        let size = size_after(change);
        assert!(size <= 2 * loaded, "{name}: {size} bytes; a load makes {loaded}");
    };
    let orders: [(&str, KeyOf); 3] =
        [("sorted", sorted), ("falling", falling), ("scattered", scattered)];
    for (name, key) in orders {
        grown(name, &|store, table| put_in_one(store, table, key, 0..RECORDS));
    }
    grown("half beside half", &|store, table| {
        for first in (0..RECORDS / 2).step_by(1000) {
            put_in_one(store, table, scattered, first..first + 1000);
        }
        put_in_one(store, table, scattered, RECORDS / 2..RECORDS);
    });
    grown("updates", &|store, table| {
        load(table);
        put_in_one(store, table, sorted, 0..RECORDS);
    });
    grown("deletes", &|store, table| {
        load(table);
        store
            .transact(|tx| {
                let gone = (0..RECORDS).filter(|i| i % 10 != 0);
                gone.into_iter().try_for_each(|i| tx.delete(table, &sorted(i)).map(drop))
            })
            .unwrap();
    });
}

/// A transaction far larger than memory needs space for the old content, the new content, the log
/// and its reservation, each about the size of the content. The rest of the bound is the space that
/// a load leaves free, and one step of growth.
#[test]
fn one_transaction_that_replaces_large_records_grows_a_store_by_a_few_times_what_they_take() {
    const VALUE: usize = 200;
    let content = RECORDS * (VALUE as u64 + 8);
    let value = |of: u8| vec![of; VALUE];
    let size = size_after(|store, table| {
        table.bulk_load((0..RECORDS).map(|i| Ok((sorted(i).to_vec(), value(1))))).unwrap();
        let all = store
            .transact(|tx| (0..RECORDS).try_for_each(|i| tx.put(table, &sorted(i), &value(3))));
        all.unwrap();
    });
    assert!(size < 6 * content + content / 4, "{size} bytes for {content}");
}

const LARGE: usize = 256 << 10;

/// Large values that were replaced and are kept for a snapshot are bounded too: the snapshot is
/// given up, and the writer continues.
#[test]
fn large_values_that_snapshots_need_have_bounds() {
    for (history_bytes_max, drops) in [(2 << 20, false), (0, false), (2 << 20, true)] {
        let bound = 2 << 20;
        let device = ram();
        let options = StoreOptions {
            versions_bytes_max: if history_bytes_max == 0 { bound } else { 256 << 10 },
            history_bytes_max,
            ..options(PAGE, FRAMES)
        };
        let store = Store::open(vec![device.clone()], &options).unwrap();
        let table = store.table("t").unwrap();
        table.put(b"large", &[0; LARGE]).unwrap();
        table.put(b"small", b"before").unwrap();
        let snapshot = store.snapshot().unwrap();
        let mut most = 0;
        for turn in 0..60u8 {
            let name = format!("t{turn}");
            if drops {
                // The table is dropped, and its replaced values stay for the snapshot.
                let other = store.table(&name).unwrap();
                for value in 0..3 {
                    other.put(b"large", &[value; LARGE]).unwrap();
                }
                drop(other);
                store.drop_table(&name).unwrap();
            } else {
                table.put(b"large", &[turn; LARGE]).unwrap();
            }
            table.put(b"small", b"after").unwrap();
            most = most.max(store.metrics().unwrap().history_bytes);
        }
        assert!(most > bound / 2, "{most} bytes were counted");
        assert!(most <= bound + bound / 10 + LARGE as u64, "{most} bytes");
        let lost = snapshot.get(&table, b"small").unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::SnapshotLost, "{lost}");
        drop((snapshot, table));
        store.close().unwrap();
        assert_sound(std::slice::from_ref(&device), PAGE);
        assert!(device.size_bytes() < 20 << 20, "{} bytes", device.size_bytes());
    }
}

fn fixed(size_bytes: u64) -> Device {
    let options = RamOptions { size_bytes, growable: false, ..RamOptions::default() };
    Arc::new(RamDevice::new(options).unwrap())
}

/// Old snapshots never make a change fail, whatever they need.
#[test]
fn a_writer_of_large_values_goes_on_beside_a_snapshot_on_a_small_device() {
    let device = fixed(16 << 20);
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"large", &[0; LARGE]).unwrap();
    let snapshot = store.snapshot().unwrap();
    for turn in 0..200u8 {
        table.put(b"large", &[turn; LARGE]).unwrap();
    }
    let lost = snapshot.get(&table, b"large").unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::SnapshotLost, "{lost}");
    drop((snapshot, table));
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// A change that lacks more space than the snapshot's values take is refused, and the snapshot
/// stays.
#[test]
fn a_snapshot_stays_where_giving_it_up_does_not_suffice() {
    let store = Store::open(vec![fixed(12 << 20)], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"large", &[1; LARGE]).unwrap();
    let snapshot = store.snapshot().unwrap();
    table.put(b"large", &[2; LARGE]).unwrap();
    let refused = table.put(b"huge", &vec![3; 16 << 20]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    assert_eq!(snapshot.get(&table, b"large").unwrap().unwrap(), [1; LARGE]);
}

fn slow(write_us: u64) -> Device {
    let delays = DelayOptions { write_us, ..DelayOptions::default() };
    Arc::new(DelayDevice::new(ram(), delays).unwrap())
}

fn quick() -> TransactionOptions {
    TransactionOptions { durability: Durability::Async, ..TransactionOptions::default() }
}

/// Each commit of a single client has its own blocks in the log. These blocks count, and not the
/// few bytes of the record.
#[test]
fn a_checkpoint_begins_by_what_the_log_has_on_the_device() {
    let device = ram();
    let options = StoreOptions { checkpoint_bytes: 1 << 20, ..options(PAGE, FRAMES) };
    let store = Store::open(vec![device.clone()], &options).unwrap();
    let table = store.table("t").unwrap();
    let puts = 10_000u64;
    for i in 0..puts {
        table.put(&sorted(i % 100), &[1; 8]).unwrap();
    }
    let now = store.metrics().unwrap();
    assert!(now.log_writes > puts / 2, "{} writes", now.log_writes);
    assert!(now.checkpoints >= now.log_writes * 512 / (2 << 20), "{} checkpoints", now.checkpoints);
    assert!(device.size_bytes() < 8 << 20, "{} bytes", device.size_bytes());
}

/// Commits wait for a slower checkpoint, whatever their size.
#[test]
fn logs_have_a_quarter_more_than_a_checkpoint_begins_at() {
    const CHECKPOINT: u64 = 512 << 10;
    let mut longest = 0;
    for (records, value) in [(1, 100), (1, 1500), (10, 1000)] {
        let options = StoreOptions { checkpoint_bytes: CHECKPOINT, ..options(PAGE, 4 * FRAMES) };
        let store = Store::open(vec![slow(10_000)], &options).unwrap();
        let table = store.table("t").unwrap();
        let is_over = AtomicBool::new(false);
        let write = |writer: u64| {
            let mut next = writer * RECORDS;
            while !is_over.load(Ordering::Relaxed) {
                let put = store.transact_with(&quick(), |tx| {
                    (0..records).try_for_each(|_| {
                        next += 1;
                        tx.put(&table, &scattered(next % 1000), &vec![2; value])
                    })
                });
                put.unwrap();
            }
        };
        let most = std::thread::scope(|scope| {
            for writer in 0..4 {
                let write = &write;
                scope.spawn(move || write(writer));
            }
            let mut most = 0;
            loop {
                let now = store.metrics().unwrap();
                most = most.max(now.log_since_checkpoint_bytes);
                if now.checkpoints >= 5 {
                    is_over.store(true, Ordering::Relaxed);
                    return most;
                }
            }
        });
        assert!(most <= CHECKPOINT / 4 * 5, "{most} bytes with {records} records of {value}");
        longest = longest.max(most);
    }
    assert!(longest > CHECKPOINT, "{longest} bytes: no commit had to wait");
}

/// A writer that does not wait for its commits still waits for the device once much of the log is
/// not written.
#[test]
fn what_waits_to_be_written_of_the_log_has_a_bound() {
    let options = StoreOptions { log_segment_bytes: 1 << 20, ..options(PAGE, 4 * FRAMES) };
    let store = Store::open(vec![slow(10_000)], &options).unwrap();
    let table = store.table("t").unwrap();
    for turn in 0..400u64 {
        let put = store.transact_with(&quick(), |tx| {
            (0..50).try_for_each(|i| tx.put(&table, &sorted(i), &[turn as u8; 1000]))
        });
        put.unwrap();
        let now = store.metrics().unwrap();
        // A write has 256 KiB at most, and one record 60 KiB, on each of two workers.
        let waits = now.log_bytes.saturating_sub(now.log_writes * (256 << 10));
        assert!(waits <= 2 * (4 << 20) + (1 << 20), "{waits} bytes wait");
    }
}

/// When a store is closed, its reserve and the space of its logs are given back.
#[test]
fn a_closed_store_ends_where_its_last_page_does() {
    let clock = SimClock::new();
    let device: Device = Arc::new(SimDevice::new(SimOptions::new(1, &clock)).unwrap());
    let runtime = Runtime::Stepped { seed: 1, clock: clock.clone() };
    let options = StoreOptions { workers: 1, runtime, ..options(PAGE, 16 * FRAMES) };
    for life in 0..3 {
        let again = StoreOptions { format: life == 0, ..options.clone() };
        let store = Store::open(vec![device.clone()], &again).unwrap();
        let table = store.table("t").unwrap();
        (0..20_000).for_each(|i| _ = table.put(&scattered(life * 20_000 + i), &[2; 100]).unwrap());
        let open_bytes = device.size_bytes();
        drop(table);
        store.close().unwrap();
        let closed_bytes = device.size_bytes();
        let again = StoreOptions { format: false, ..options.clone() };
        let store = Store::open(vec![device.clone()], &again).unwrap();
        let report = store.report();
        let used = report.pages - report.free_pages - report.retained_pages;
        let used_bytes = used * PAGE as u64;
        assert!(open_bytes > 4 * used_bytes, "{life}: {open_bytes} bytes for {used_bytes}");
        assert!(2 * closed_bytes <= 3 * used_bytes, "{life}: {closed_bytes} for {used_bytes}");
        assert_eq!(store.table("t").unwrap().iter().count() as u64, (life + 1) * 20_000);
        store.close().unwrap();
    }
}
