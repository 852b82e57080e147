//! Removes ranges of records.

use std::sync::Arc;

use crate::common::{assert_sound, options, ram};
use qpair_block::{BlockDevice, RamDevice, RamOptions};
use qpair_engine::{ErrorKind, Store, StoreOptions};

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
        .range(..)
        .unwrap()
        .map(|entry| u32::from_be_bytes(entry.unwrap().0[..].try_into().unwrap()))
        .collect();
    assert_eq!(left, (0..100).chain(2900..3000).collect::<Vec<_>>());
    assert_eq!(snapshot.range(&table, ..).unwrap().count(), 3000);
    drop(snapshot);
    let invalid = table.delete_range(&to[..]..&from[..]).unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::Invalid);
    let task = table.task();
    let rest = store.spawn(move || async move { task.delete_range(..).await });
    assert_eq!(rest.join().unwrap().unwrap(), 200);
    drop(table);
    store.close().unwrap();
    assert_eq!(assert_sound(&[device], PAGE).tables[1].records, 0);
}

/// Fewer records are removed at once if there is no space for the leaves of a thousand records, or
/// no room in a transaction.
#[test]
fn a_range_on_a_full_device() {
    for transaction_bytes_max in [usize::MAX, 1000] {
        let fixed = RamOptions { size_bytes: 2 << 20, growable: false, ..RamOptions::default() };
        let device: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(fixed).unwrap());
        let small = StoreOptions {
            transaction_bytes_max,
            checkpoint_bytes: 64 << 10,
            ..options(PAGE, 128)
        };
        let store = Store::open(vec![device.clone()], &small).unwrap();
        let table = store.table("t").unwrap();
        let key = |i: u32| i.wrapping_mul(2_654_435_761).to_be_bytes();
        let put = |i: &u32| table.put(&key(*i), &[1; 100]).is_ok();
        let filled = (0..).take_while(put).count() as u64;
        assert!(filled > 2000, "{filled}");
        assert_eq!(table.delete_range(..).unwrap(), filled);
        drop(table);
        store.close().unwrap();
        assert_eq!(assert_sound(&[device], PAGE).tables[1].records, 0);
    }
}
