//! Ranges of records removed at once.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod common;

use common::{assert_sound, options, ram};
use qpair_engine::{ErrorKind, Store};

const PAGE: usize = 512;

#[test]
fn a_range_larger_than_a_transaction() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..3000u32 {
        let len = if i % 500 == 0 { 3000 } else { 30 };
        table.put(&i.to_be_bytes(), &vec![1; len]).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    let (from, to) = (100u32.to_be_bytes(), 2900u32.to_be_bytes());
    assert_eq!(table.delete_range(&from[..]..&to[..]).unwrap(), 2800);
    assert_eq!(table.delete_range(&from[..]..&to[..]).unwrap(), 0);
    let left: Vec<u32> = table
        .range::<[u8], _>(..)
        .unwrap()
        .map(|entry| u32::from_be_bytes(entry.unwrap().0[..].try_into().unwrap()))
        .collect();
    assert_eq!(left, (0..100).chain(2900..3000).collect::<Vec<_>>());
    assert_eq!(snapshot.range::<[u8], _>(&table, ..).unwrap().count(), 3000);
    drop(snapshot);
    let invalid = table.delete_range(&to[..]..&from[..]).unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::Invalid);
    let task = table.task();
    let rest = store.spawn(move || async move { task.delete_range::<[u8], _>(..).await });
    assert_eq!(rest.join().unwrap().unwrap(), 200);
    drop(table);
    store.close().unwrap();
    assert_eq!(assert_sound(&[device], PAGE).tables[1].records, 0);
}
