//! Compaction: an open store becomes about as short as its content, and stays consistent.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::options;
use qpair_block::BlockDevice;
use qpair_block::time::SimClock;
use qpair_engine::{ErrorKind, Runtime, Store, StoreOptions, Table, Transaction};
use qpair_sim_block::{SimDevice, SimOptions};

const PAGE: usize = 512;
/// A fifth of the frames that the records need.
const FRAMES: u64 = 256;
const RECORDS: u32 = 10_000;

fn on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn value(i: u32, turn: u32) -> [u8; 60] {
    [(i ^ turn) as u8; 60]
}

/// Puts all records in a shuffled order.
fn put_all(store: &Store, table: &Table, turn: u32) {
    let all: Vec<u32> = (0..RECORDS).map(|i| i * 7919 % RECORDS).collect();
    for some in all.chunks(500) {
        let put = |tx: &mut Transaction| {
            some.iter().try_for_each(|i| tx.put(table, &i.to_be_bytes(), &value(*i, turn)))
        };
        store.transact(put).unwrap();
    }
}

/// Returns options for devices that can grow far beyond their content.
fn large(seed: u64, clock: &SimClock) -> SimOptions {
    SimOptions { size_bytes_max: 256 << 20, ..SimOptions::new(seed, clock) }
}

/// Returns a device with a half-empty store whose pages are scattered all over it, and its options.
fn scattered() -> (SimDevice, StoreOptions) {
    let clock = SimClock::new();
    let device = SimDevice::new(large(1, &clock)).unwrap();
    let new = StoreOptions {
        log_segment_bytes: 8 << 10,
        checkpoint_bytes: 1 << 20,
        runtime: Runtime::Stepped { seed: 1, clock },
        ..options(PAGE, FRAMES)
    };
    let store = open(&device, &new).unwrap();
    let table = store.table("t").unwrap();
    put_all(&store, &table, 0);
    put_all(&store, &table, 1);
    table.delete_range(..&(RECORDS / 2).to_be_bytes()[..]).unwrap();
    drop(table);
    store.close().unwrap();
    (device, StoreOptions { format: false, ..new })
}

fn open(device: &SimDevice, options: &StoreOptions) -> qpair_engine::Result<Store> {
    Store::open(vec![Arc::new(device.clone())], options)
}

fn assert_sound(device: &SimDevice, options: &StoreOptions) {
    let store = open(device, options).unwrap();
    let report = store.check(&|_, _| ()).unwrap();
    assert!(report.is_sound() && report.leaked_pages == 0, "{report:#?}");
    store.close().unwrap();
}

fn used_bytes(store: &Store) -> u64 {
    let report = store.report();
    (report.pages - report.free_pages - report.retained_pages) * PAGE as u64
}

fn check(table: &Table) {
    let found: Vec<_> = table.iter().collect::<Result<_, _>>().unwrap();
    let expected = (RECORDS / 2..RECORDS).map(|i| (i.to_be_bytes().to_vec(), value(i, 1).to_vec()));
    assert!(found.into_iter().eq(expected));
}

#[test]
fn a_store_ends_where_its_pages_do() {
    let (device, options) = scattered();
    let store = open(&device, &options).unwrap();
    let report = store.compact(&on).unwrap();
    let used = used_bytes(&store);
    assert!(report.moved_pages > 100, "{report:?}");
    assert!(report.bytes_before > used * 3 / 2, "{used} bytes are in use: {report:?}");
    assert!(report.bytes_after <= used * 5 / 4, "{used} bytes are in use: {report:?}");
    let table = store.table("t").unwrap();
    check(&table);
    // There is nothing left to do, and changes still work.
    let again = store.compact(&on).unwrap();
    assert!(again.bytes_after <= used * 5 / 4, "{used} bytes are in use: {again:?}");
    table.put(b"new", b"new").unwrap();
    drop(table);
    store.close().unwrap();
    assert!(device.size_bytes() <= used * 5 / 4, "{used} bytes are in use");
    assert_sound(&device, &options);
}

#[test]
fn others_write_while_it_goes_on() {
    let (device, options) = scattered();
    let store = open(&device, &options).unwrap();
    let table = store.table("t").unwrap();
    let turns = Cell::new(0u32);
    let report = store
        .compact(&|_, _| {
            for _ in 0..20 {
                turns.set(turns.get() + 1);
                let key = turns.get() * 7919 % (RECORDS / 2) + RECORDS / 2;
                table.put(&key.to_be_bytes(), &value(key, 1)).unwrap();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(report.bytes_after < report.bytes_before, "{report:?}");
    check(&table);
    drop(table);
    store.close().unwrap();
    assert_sound(&device, &options);
}

#[test]
fn one_that_is_broken_off_leaves_a_whole_store() {
    for parts in 1..4 {
        let (device, options) = scattered();
        let store = open(&device, &options).unwrap();
        let told = Cell::new(0);
        let broken = store.compact(&|_, _| {
            told.set(told.get() + 1);
            if told.get() == parts { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(broken.unwrap_err().kind(), ErrorKind::Interrupted);
        check(&store.table("t").unwrap());
        store.close().unwrap();
        assert_sound(&device, &options);
    }
}

/// The power is cut at each write and flush of a compaction in turn, while commits continue. The
/// store must be consistent after each cut.
#[test]
fn a_power_cut_at_any_write_leaves_a_whole_store() {
    let (device, options) = scattered();
    let content = device.content();
    let (mut cuts, mut nth) = (0, 1);
    loop {
        let clock = SimClock::new();
        let device_options = large(nth, &clock);
        let power = device_options.power.clone();
        let device = SimDevice::over(device_options, content.clone()).unwrap();
        let runtime = Runtime::Stepped { seed: nth, clock: clock.clone() };
        let options = StoreOptions { runtime, ..options.clone() };
        let store = open(&device, &options).unwrap();
        let table = store.table("t").unwrap();
        power.cut_at_change(nth);
        let turns = Cell::new(0u32);
        let compacted = store.compact(&|_, _| {
            turns.set(turns.get() + 1);
            let key = turns.get() * 7919 % (RECORDS / 2) + RECORDS / 2;
            match table.put(&key.to_be_bytes(), &value(key, 1)) {
                Ok(_) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        drop(table);
        if !power.is_cut() {
            assert!(compacted.is_ok(), "{compacted:?}");
            store.crash();
            break;
        }
        store.crash();
        cuts += 1;
        let clock = SimClock::new();
        let after = SimDevice::over(large(nth, &clock), device.content()).unwrap();
        let runtime = Runtime::Stepped { seed: nth, clock };
        let again = StoreOptions { runtime, ..options };
        let store = open(&after, &again).unwrap();
        check(&store.table("t").unwrap());
        store.close().unwrap();
        assert_sound(&after, &again);
        nth += 31;
    }
    assert!(cuts > 20, "{cuts} cuts");
}

/// Large values that lie behind deleted ones move to the front, whatever another transaction has
/// locked, and keep their content.
#[test]
fn large_values_move_to_the_front() {
    let clock = SimClock::new();
    let device = SimDevice::new(large(2, &clock)).unwrap();
    let new = StoreOptions {
        log_segment_bytes: 8 << 10,
        checkpoint_bytes: 1 << 20,
        runtime: Runtime::Stepped { seed: 2, clock },
        ..options(PAGE, FRAMES)
    };
    let store = open(&device, &new).unwrap();
    let table = store.table("t").unwrap();
    let value = |i: u32| vec![i as u8; 3000 + 100 * (i as usize % 40)];
    (0..600u32).for_each(|i| _ = table.put(&i.to_be_bytes(), &value(i)).unwrap());
    (0..600u32).filter(|i| i % 3 != 0).for_each(|i| _ = table.delete(&i.to_be_bytes()).unwrap());
    table.delete_range(..&400u32.to_be_bytes()[..]).unwrap();
    let held = 402u32.to_be_bytes();
    let mut other = store.begin();
    other.put(&table, &held, b"short").unwrap();
    let report = store.compact(&on).unwrap();
    // The held value takes at most one page more than its bytes.
    let held_bytes = (value(402).len().next_multiple_of(PAGE) + PAGE) as u64;
    assert!((1..=held_bytes).contains(&report.bytes_behind), "{report:?}");
    other.commit().unwrap();
    let again = store.compact(&on).unwrap();
    assert_eq!(again.bytes_behind, 0, "{again:?}");
    let expected = (400..600u32).filter(|i| i % 3 == 0).map(|i| match i {
        402 => (i.to_be_bytes().to_vec(), b"short".to_vec()),
        _ => (i.to_be_bytes().to_vec(), value(i)),
    });
    assert!(table.iter().map(Result::unwrap).eq(expected));
    drop(table);
    let used = used_bytes(&store);
    store.close().unwrap();
    assert!(device.size_bytes() <= used * 5 / 4, "{used} bytes are in use");
    assert_sound(&device, &StoreOptions { format: false, ..new });
}
