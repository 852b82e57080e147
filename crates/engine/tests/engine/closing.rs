//! Closes stores while other work is under way.

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Device, assert_sound, existing, key, options, ram};
use qpair_block::time::SimClock;
use qpair_block::{DelayDevice, DelayOptions};
use qpair_engine::{
    ErrorKind, Isolation, Runtime, Store, StoreOptions, Transaction, TransactionOptions,
};
use qpair_sim_block::{SimDevice, SimOptions};

const PAGE: usize = 512;

/// Every caller that closes a store finds it closed afterwards. A regression: the second caller
/// returned while the first one still had everything to write.
#[test]
fn all_who_close_a_store_find_it_closed() {
    for _ in 0..10 {
        let device = ram();
        let delay = DelayOptions { write_us: 500, flush_us: 500, ..DelayOptions::default() };
        let slow: Device = Arc::new(DelayDevice::new(device.clone(), delay).unwrap());
        let store = Store::open(vec![slow], &options(PAGE, 256)).unwrap();
        let table = store.table("t").unwrap();
        for n in 0..500 {
            store.transact(|tx| tx.put(&table, &key(n), &[1; 100])).unwrap();
        }
        drop(table);
        let closing: Vec<_> = (0..3)
            .map(|_| {
                let (store, device) = (store.clone(), device.clone());
                std::thread::spawn(move || {
                    store.close().unwrap();
                    // The store is marked clean, and everything is on the device.
                    let copy = common::copy_of(device.as_ref(), device.size_bytes());
                    let reading = common::reading(PAGE, 256);
                    let store = Store::open(vec![copy], &reading).unwrap();
                    let table = store.table("t").unwrap();
                    assert_eq!(table.range(..).unwrap().count(), 500);
                })
            })
            .collect();
        drop(store);
        closing.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// A dropped table that was not emptied before its store ended is emptied from the first change of
/// the next incarnation on. A regression: a close without a change waited for that.
#[test]
fn a_drop_that_did_not_go_on() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let (table, kept) = (store.table("t").unwrap(), store.table("kept").unwrap());
    for part in 0..20 {
        let keys = part * 500..part * 500 + 500;
        store
            .transact(|tx| keys.clone().try_for_each(|n| tx.put(&table, &key(n), &[1; 100])))
            .unwrap();
    }
    drop((table, kept));
    store.drop_table("t").unwrap();
    let crashed = common::copy_of(device.as_ref(), device.size_bytes());
    store.close().unwrap();
    for device in [device, crashed] {
        // First to recover, and then to see what recovery left.
        for _ in 0..2 {
            let store = Store::open(vec![device.clone()], &existing(PAGE, 256)).unwrap();
            store.close().unwrap();
        }
        let store = Store::open(vec![device.clone()], &existing(PAGE, 256)).unwrap();
        store.table("kept").unwrap().put(b"k", b"v").unwrap();
        while store.tables_being_dropped() > 0 {
            std::thread::yield_now();
        }
        store.close().unwrap();
        assert_eq!(assert_sound(&[device], PAGE).leaked_pages, 0);
    }
}

/// An observer of a store gets an error once the store has ended, even if closing it failed.
#[test]
fn a_store_that_failed_and_was_closed() {
    let (device, _, control) = common::faulty();
    let store = Store::open(vec![device], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    table.put(&key(1), b"x").unwrap();
    control.fail_writes(true);
    table.put(&key(1), b"y").unwrap_err();
    let other = store.clone();
    let failed = store.close().unwrap_err();
    assert!(!other.observer().is_open());
    assert_eq!(table.get(&key(1)).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(other.close().unwrap_err().to_string(), failed.to_string());
}

/// A regression: a close refused a serializable commit its timestamp, and the worker kept waiting
/// for the commit's record.
#[test]
fn serializable_commits_beside_a_close() {
    for round in 0..200u64 {
        let store = Store::open(vec![ram()], &options(PAGE, 256)).unwrap();
        let table = store.table("t").unwrap();
        let commits = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..8u32)
            .map(|task| {
                let (of, table, commits) = (store.task(), table.clone(), commits.clone());
                let isolation = Isolation::Serializable;
                let options = TransactionOptions { isolation, ..TransactionOptions::default() };
                store.spawn(move || async move {
                    loop {
                        let mut tx = of.begin_with(&options);
                        let done = async {
                            tx.get(&table, &key(task)).await?;
                            tx.put(&table, &key(1000 + task), &[1; 30]).await?;
                            tx.commit().await
                        };
                        match done.await {
                            Ok(_) => commits.fetch_add(1, Ordering::Relaxed),
                            Err(error) if error.kind() == ErrorKind::Conflict => continue,
                            Err(error) => return error.kind(),
                        };
                    }
                })
            })
            .collect();
        while commits.load(Ordering::Relaxed) < 8 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(round * 10));
        drop(table);
        store.close().unwrap();
        for task in tasks {
            assert_eq!(task.join().unwrap(), ErrorKind::Closed);
        }
    }
}

/// Dropping the last handle ends the store, even while a dropped table is being emptied. A
/// regression: another thread closed the store some time later, and a program that ended right
/// after the drop left the store as a crash does.
#[test]
fn the_last_handle_goes_beside_a_drop() {
    for round in 0..20 {
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(PAGE, 512)).unwrap();
        let table = store.table("t").unwrap();
        table.bulk_load((0..20_000).map(|n| Ok((key(n), vec![1; 50])))).unwrap();
        drop(table);
        store.drop_table("t").unwrap();
        std::thread::sleep(Duration::from_micros(round * 100));
        drop(store);
        let copy = common::copy_of(device.as_ref(), device.size_bytes());
        let store = Store::open(vec![copy], &common::reading(PAGE, 512)).unwrap();
        assert!(store.report().recovered.is_none(), "round {round}");
    }
}

/// A close moves pages that lie behind free space to the front, whether they are in memory or not.
/// A regression: pages that were not in memory stayed in place, and after a recovery a file was
/// four times as long as its content, close after close.
#[test]
fn a_file_is_short_after_a_close_whatever_is_in_memory() {
    for crashes in [false, true] {
        let clock = SimClock::new();
        let device: Device = Arc::new(SimDevice::new(SimOptions::new(1, &clock)).unwrap());
        let runtime = Runtime::Stepped { seed: 1, clock: clock.clone() };
        let made = StoreOptions { workers: 1, runtime, ..options(4096, 98) };
        let store = Store::open(vec![device.clone()], &made).unwrap();
        let table = store.table("t").unwrap();
        for first in (0..30_000u32).step_by(50) {
            let put = |tx: &mut Transaction| {
                let keys = first..first + 50;
                keys.into_iter().try_for_each(|i| tx.put(&table, &i.to_be_bytes(), &[7; 1000]))
            };
            store.transact(put).unwrap();
        }
        store.checkpoint().unwrap();
        assert_eq!(table.delete_range(..&26_000u32.to_be_bytes()[..]).unwrap(), 26_000);
        store.checkpoint().unwrap();
        drop(table);
        let close = |store: Store| if crashes { store.crash() } else { store.close().unwrap() };
        close(store);
        let again = StoreOptions { format: false, ..made };
        let store = Store::open(vec![device.clone()], &again).unwrap();
        store.table("t").unwrap().put(b"one", b"change").unwrap();
        let open_bytes = device.size_bytes();
        store.close().unwrap();
        let closed_bytes = device.size_bytes();
        let store = Store::open(vec![device], &again).unwrap();
        let report = store.report();
        let used_bytes = (report.pages - report.free_pages - report.retained_pages) * 4096;
        assert_eq!(store.table("t").unwrap().iter().count(), 4001);
        store.close().unwrap();
        assert!(!crashes || open_bytes > 5 * used_bytes, "{open_bytes} for {used_bytes}");
        assert!(closed_bytes < 2 * used_bytes + (1 << 20), "{closed_bytes} for {used_bytes}");
    }
}
