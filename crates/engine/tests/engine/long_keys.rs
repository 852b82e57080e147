//! Keys that are too long for a page: the superblocks announce their groups before there are any,
//! and what reads stores knows them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::common::{
    Device, SUPERBLOCKS, assert_sound, copy_of, existing, options, ram, read_bytes, reading,
};
use qpair_engine::{
    Canary, ErrorKind, Isolation, KEY_LEN_MAX, Store, StoreOptions, Table, TableOptions,
    TransactionOptions,
};

const PAGE: usize = 4096;
const FRAMES: u64 = 128;
const LONG_KEYS: u64 = 1 << 11;

/// Returns whether the newest superblock of a device says that there may be long keys.
fn is_announced(device: &Device) -> bool {
    let word = |superblock: &[u8], at: usize| {
        u64::from_le_bytes(superblock[at..at + 8].try_into().unwrap())
    };
    let superblocks = SUPERBLOCKS.map(|at| read_bytes(device.as_ref(), at, 4096));
    let newest = superblocks.iter().max_by_key(|superblock| word(superblock, 72)).unwrap();
    word(newest, 16) & LONG_KEYS != 0
}

fn made(page_size: usize) -> (Store, Device) {
    let device = ram();
    (Store::open(vec![device.clone()], &options(page_size, FRAMES)).unwrap(), device)
}

/// Returns a key of this length that has `number` at its end, or behind its first byte.
fn long(number: u32, len: usize, at_end: bool) -> Vec<u8> {
    let number = format!("{number:06}").into_bytes();
    let filler = vec![b'-'; len - number.len() - 1];
    match at_end {
        true => [b"k", &filler[..], &number].concat(),
        false => [b"k", &number[..], &filler].concat(),
    }
}

fn all(table: &Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
    table.iter().map(Result::unwrap).collect()
}

#[test]
fn the_superblocks_announce_the_first_one() {
    let (store, device) = made(PAGE);
    let table = store.table("t").unwrap();
    table.put(&[1; 1024], b"plain").unwrap();
    assert!(!table.delete(&[1; 1025]).unwrap());
    let mut dropped = store.begin();
    assert!(!dropped.delete(&table, &[1; 1025]).unwrap());
    dropped.lock(&table, &[1; 1025]).unwrap();
    drop(dropped);
    assert!(!table.compare_and_swap(&[1; 1025], Some(b""), Some(b"")).unwrap());
    assert_eq!(table.get(&[1; 1025]).unwrap(), None);
    let refused = table.put(&vec![1; KEY_LEN_MAX + 1], b"").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::KeyTooLong);
    assert_eq!(table.get(&vec![1; KEY_LEN_MAX + 1]).unwrap(), None);
    assert!(!table.delete(&vec![1; KEY_LEN_MAX + 1]).unwrap());
    assert!(!is_announced(&device));
    table.put(&[1; 1025], b"long").unwrap();
    assert!(is_announced(&device));
    // A crash keeps the bit and the record; so does a close after the record is gone.
    let crashed = copy_of(device.as_ref(), device.size_bytes());
    drop(table);
    store.close().unwrap();
    for device in [device, crashed] {
        let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
        let table = store.table("t").unwrap();
        assert_eq!(table.get(&[1; 1025]).unwrap().as_deref(), Some(&b"long"[..]));
        assert!(table.delete(&[1; 1025]).unwrap());
        drop(table);
        store.close().unwrap();
        assert!(is_announced(&device));
        assert_sound(&[device], PAGE);
    }
}

/// Also a sorted load and a transaction announce it.
#[test]
fn each_way_to_put_announces_it() {
    let (store, device) = made(PAGE);
    let table = store.table("t").unwrap();
    table.bulk_load([Ok((vec![7; 1025], vec![]))]).unwrap();
    assert!(is_announced(&device));
    let (store, device) = made(PAGE);
    let table = store.table("t").unwrap();
    let mut transaction = store.begin();
    assert!(transaction.insert(&table, &[7; 1025], b"").unwrap());
    transaction.commit().unwrap();
    assert!(is_announced(&device));
}

#[test]
fn tables_with_a_time_to_live_take_none() {
    let (store, device) = made(PAGE);
    let hour = TableOptions::default().ttl(Duration::from_secs(3600));
    let table = store.table_with("t", &hour).unwrap();
    for len in [1014, 1024, 1025, KEY_LEN_MAX] {
        let key = vec![7; len];
        assert_eq!(table.put(&key, b"").unwrap_err().kind(), ErrorKind::KeyTooLong);
        assert_eq!(table.insert(&key, b"").unwrap_err().kind(), ErrorKind::KeyTooLong);
        let loaded = table.bulk_load([Ok((key.clone(), vec![]))]).unwrap_err();
        assert_eq!(loaded.kind(), ErrorKind::KeyTooLong);
        assert_eq!(table.get(&key).unwrap(), None);
        assert!(!table.delete(&key).unwrap());
    }
    assert!(!is_announced(&device));
    table.put(&[7; 1013], b"").unwrap();
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn a_check_finds_one_that_is_not_announced() {
    let device = ram();
    let planted = StoreOptions { canary: Some(Canary::UnmarkedLongKeys), ..options(PAGE, FRAMES) };
    let store = Store::open(vec![device.clone()], &planted).unwrap();
    let table = store.table("t").unwrap();
    table.put(&[1; 1025], b"long").unwrap();
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device], &reading(PAGE, FRAMES)).unwrap();
    let report = store.check(&|_, _| ()).unwrap();
    assert!(report.faults.iter().any(|fault| fault.contains("long keys")), "{report:#?}");
}

#[test]
fn a_check_finds_a_damaged_group_and_counts_records() {
    let (store, device) = made(PAGE);
    let table = store.table("t").unwrap();
    for number in 0..5 {
        table.put(&long(number, 2000, true), b"v").unwrap();
    }
    table.put(b"short", b"v").unwrap();
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    let report = store.check(&|_, _| ()).unwrap();
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(report.tables.iter().find(|of| of.name == "t").unwrap().records, 6);
    let table = store.table("t").unwrap();
    let (group_key, group) = table.stored().first().unwrap().unwrap();
    assert_eq!(group_key.len(), 1025);
    table.stored().put(&group_key, &group[..group.len() - 1]).unwrap();
    let damaged = table.get(&long(4, 2000, true)).unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::Corrupt);
    assert_eq!(table.iter().find_map(Result::err).unwrap().kind(), ErrorKind::Corrupt);
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device], &existing(PAGE, FRAMES)).unwrap();
    let report = store.check(&|_, _| ()).unwrap();
    assert!(report.faults.iter().any(|fault| fault.contains("group")), "{report:#?}");
}

#[test]
fn a_group_has_a_limit() {
    let (store, _device) = made(PAGE);
    let table = store.table("t").unwrap();
    let value = vec![1; 6 << 20];
    table.put(&long(1, 1100, true), &value).unwrap();
    table.put(&long(2, 1100, true), &value).unwrap();
    let refused = table.put(&long(3, 1100, true), &value).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ValueTooLong);
    assert_eq!(table.count().unwrap(), 2);
    // Another head is another group.
    table.put(&long(3, 1100, false), &value).unwrap();
    assert_eq!(table.get(&long(2, 1100, true)).unwrap().unwrap(), value);
}

/// Transactions that change different keys of one group do not lose each other's changes.
#[test]
fn concurrent_changes_of_a_group() {
    let (store, device) = made(PAGE);
    let table = store.table("t").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (store, table) = (&store, &table);
            scope.spawn(move || {
                for number in 0..50u32 {
                    let key = long(thread * 1000 + number, 1500, true);
                    match number % 3 {
                        0 => assert!(!table.put(&key, b"v").unwrap()),
                        1 => assert!(table.insert(&key, b"v").unwrap()),
                        _ => store.transact(|tx| tx.put(table, &key, b"v")).unwrap(),
                    }
                    if number % 5 == 0 {
                        assert!(table.delete(&key).unwrap());
                    }
                }
            });
        }
    });
    assert_eq!(table.count().unwrap(), 4 * 40);
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// A serializable transaction that has read a part of a group conflicts with a change of it.
#[test]
fn serializable_reads_of_groups_are_validated() {
    let (store, _device) = made(PAGE);
    let table = store.table("t").unwrap();
    let serializable =
        TransactionOptions { isolation: Isolation::Serializable, ..TransactionOptions::default() };
    for by_range in [false, true] {
        let mut tx = store.begin_with(&serializable);
        let from = long(5, 1500, true);
        match by_range {
            true => assert_eq!(tx.range(&table, from..).unwrap().count(), 0),
            false => assert_eq!(tx.get(&table, &from).unwrap(), None),
        }
        tx.put(&table, b"seen", b"none").unwrap();
        table.put(&long(5, 1500, true), b"").unwrap();
        assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict);
        assert!(table.delete(&long(5, 1500, true)).unwrap());
    }
}

/// Sorted loads, snapshots, a crash and a backup, in pages of each size.
#[test]
fn pages_of_each_size() {
    for page_size in [512, 1024, 2048, 4096, 8192, 65_536] {
        let (store, device) = made(page_size);
        let table = store.table("t").unwrap();
        let (mut model, mut random) = (BTreeMap::new(), fastrand::Rng::with_seed(1));
        for number in 0..300u32 {
            let len = if number % 50 == 0 { KEY_LEN_MAX } else { random.usize(10..3000) };
            let value = vec![number as u8; random.usize(0..200)];
            model.insert(long(number * 7919 % 300, len, number % 2 == 0), value);
        }
        let sorted = model.clone().into_iter().map(Ok);
        assert_eq!(table.bulk_load(sorted).unwrap(), model.len() as u64);
        assert!(all(&table) == model, "{page_size}");
        let (snapshot, before) = (store.snapshot().unwrap(), model.clone());
        for (index, key) in before.keys().enumerate() {
            match index % 3 {
                0 => {
                    assert!(table.delete(key).unwrap());
                    model.remove(key);
                }
                1 => {
                    table.put(key, b"changed").unwrap();
                    model.insert(key.clone(), b"changed".to_vec());
                }
                _ => {}
            }
        }
        let seen: BTreeMap<_, _> =
            snapshot.range(&table, ..).unwrap().map(|record| record.unwrap()).collect();
        assert!(seen == before, "{page_size}");
        drop(snapshot);
        let (crashed, backup) = (copy_of(device.as_ref(), device.size_bytes()), ram());
        store.backup(vec![backup.clone()], None, &|_, _| ControlFlow::Continue(())).unwrap();
        assert!(is_announced(&backup));
        drop(table);
        store.close().unwrap();
        for device in [device, crashed, backup] {
            let store = Store::open(vec![device.clone()], &existing(page_size, FRAMES)).unwrap();
            let table = store.table("t").unwrap();
            assert!(all(&table) == model, "{page_size}");
            assert_eq!(table.delete_range(..).unwrap(), model.len() as u64);
            drop(table);
            store.close().unwrap();
            assert_sound(&[device], page_size);
        }
    }
}
