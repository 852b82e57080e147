//! Compaction: a store becomes as short as what is in it, while it is open, and stays whole.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{Device, assert_sound, options};
use qpair_block::sim::{SimClock, SimDevice, SimOptions};
use qpair_engine::{ErrorKind, Runtime, Store, StoreOptions, Table, Transaction};

const PAGE: usize = 512;
/// A fifth of what the records need.
const FRAMES: u64 = 256;
const RECORDS: u32 = 10_000;

fn on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn value(i: u32, turn: u32) -> [u8; 60] {
    [(i ^ turn) as u8; 60]
}

/// Puts all records in an order that is not theirs.
fn put_all(store: &Store, table: &Table, turn: u32) {
    let all: Vec<u32> = (0..RECORDS).map(|i| i * 7919 % RECORDS).collect();
    for some in all.chunks(500) {
        let put = |tx: &mut Transaction| {
            some.iter().try_for_each(|i| tx.put(table, &i.to_be_bytes(), &value(*i, turn)))
        };
        store.transact(put).unwrap();
    }
}

/// A device with a store whose pages lie all over it, and half of which is free; and its options.
fn scattered() -> (Device, StoreOptions) {
    let clock = SimClock::new();
    let device = SimOptions { size_bytes_max: 256 << 20, ..SimOptions::new(1, &clock) };
    let device: Device = Arc::new(SimDevice::new(device).unwrap());
    let new = StoreOptions {
        log_segment_bytes: 8 << 10,
        checkpoint_bytes: 1 << 20,
        runtime: Runtime::Stepped { seed: 1, clock },
        ..options(PAGE, FRAMES)
    };
    let store = Store::open(vec![device.clone()], &new).unwrap();
    let table = store.table("t").unwrap();
    put_all(&store, &table, 0);
    put_all(&store, &table, 1);
    table.delete_range(..&(RECORDS / 2).to_be_bytes()[..]).unwrap();
    drop(table);
    store.close().unwrap();
    (device, StoreOptions { format: false, ..new })
}

fn used_bytes(store: &Store) -> u64 {
    let report = store.report();
    (report.pages - report.free_pages - report.retained_pages) * PAGE as u64
}

fn check(table: &Table) {
    for i in 0..RECORDS {
        let expected = (i >= RECORDS / 2).then(|| value(i, 1).to_vec());
        assert_eq!(table.get(&i.to_be_bytes()).unwrap(), expected, "record {i}");
    }
}

#[test]
fn a_store_ends_where_its_pages_do() {
    let (device, options) = scattered();
    let store = Store::open(vec![device.clone()], &options).unwrap();
    let report = store.compact(&on).unwrap();
    let used = used_bytes(&store);
    assert!(report.moved_pages > 100, "{report:?}");
    assert!(report.bytes_before > used * 3 / 2, "{used} bytes are in use: {report:?}");
    assert!(report.bytes_after <= used * 5 / 4, "{used} bytes are in use: {report:?}");
    let table = store.table("t").unwrap();
    check(&table);
    // There is nothing left to do, and changes go on.
    let again = store.compact(&on).unwrap();
    assert!(again.bytes_after <= used * 5 / 4, "{used} bytes are in use: {again:?}");
    table.put(b"new", b"new").unwrap();
    drop(table);
    store.close().unwrap();
    assert!(device.size_bytes() <= used * 5 / 4, "{used} bytes are in use");
    assert_sound(std::slice::from_ref(&device), PAGE);
}

#[test]
fn others_write_while_it_goes_on() {
    let (device, options) = scattered();
    let store = Store::open(vec![device.clone()], &options).unwrap();
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
    assert_sound(std::slice::from_ref(&device), PAGE);
}

#[test]
fn one_that_is_broken_off_leaves_a_whole_store() {
    for parts in 1..4 {
        let (device, options) = scattered();
        let store = Store::open(vec![device.clone()], &options).unwrap();
        let told = Cell::new(0);
        let broken = store.compact(&|_, _| {
            told.set(told.get() + 1);
            if told.get() == parts { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(broken.unwrap_err().kind(), ErrorKind::Interrupted);
        check(&store.table("t").unwrap());
        store.close().unwrap();
        assert_sound(std::slice::from_ref(&device), PAGE);
    }
}
