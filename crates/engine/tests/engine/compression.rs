//! Tables with compressed values: callers see the values that they put, by whatever call, and the
//! store keeps fewer bytes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::common::{Device, copy_of, existing, key, options, ram, write_bytes};
use qpair_engine::{Compression, ErrorKind, Store, StoreOptions, Table};
use qpair_inspect::repair;

const PAGE: usize = 1024;
const FRAMES: u64 = 128;
const BOTH: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Values of all sizes; one in eight cannot be compressed.
fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = match random.u8(0..20) {
        0 => random.usize(0..12 * PAGE),
        1..6 => random.usize(0..64),
        _ => random.usize(64..600),
    };
    match random.u8(0..8) {
        0 => (0..len).map(|_| random.u8(..)).collect(),
        _ => {
            let number = random.u32(..);
            format!("state=open number={number} ").bytes().cycle().take(len).collect()
        }
    }
}

fn contents(table: &Table) -> Model {
    table.range(..).unwrap().map(Result::unwrap).collect()
}

/// Compares all ways to read.
fn assert_reads(store: &Store, table: &Table, model: &Model) {
    assert!(contents(table) == *model);
    let back: Vec<_> = table.range(..).unwrap().reverse().map(Result::unwrap).collect();
    assert!(back.iter().rev().map(|(key, value)| (key, value)).eq(model.iter()));
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    let values = table.multi_get(&keys).unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut tx = store.begin();
    for ((key, expected), value) in model.iter().zip(values) {
        assert!(value.as_ref() == Some(expected));
        assert!(table.get(key).unwrap().as_ref() == Some(expected));
        assert_eq!(table.get_with(key, |value| value == &expected[..]).unwrap(), Some(true));
        let mut buffer = b"before".to_vec();
        if let Some(found) = table.try_get_into(key, &mut buffer).unwrap() {
            assert!(found && buffer == [&b"before"[..], &expected[..]].concat());
        }
        assert!(snapshot.get(table, key).unwrap().as_ref() == Some(expected));
        assert!(tx.get(table, key).unwrap().as_ref() == Some(expected));
    }
    let all: Model = snapshot.range(table, ..).unwrap().map(Result::unwrap).collect();
    assert!(all == *model);
    let all: Model = tx.range(table, ..).unwrap().map(Result::unwrap).collect();
    assert!(all == *model);
    tx.rollback();
    let task = table.task();
    let found = store.spawn(move || async move {
        let (mut all, mut range) = (Model::new(), task.range(..)?);
        while let Some((key, value)) = range.next().await? {
            let mut buffer = b"before".to_vec();
            assert!(task.get_into(&key, &mut buffer).await?);
            assert!(buffer == [&b"before"[..], &value[..]].concat());
            all.insert(key, value);
        }
        Ok::<_, qpair_engine::Error>(all)
    });
    assert!(found.join().unwrap().unwrap() == *model);
}

#[test]
fn callers_see_the_values_that_they_put() {
    for (seed, compression) in (0..).zip(BOTH) {
        let mut random = fastrand::Rng::with_seed(seed);
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
        let table = store.compressed_table("t", compression).unwrap();
        assert_eq!(table.compression(), compression);
        let mut model = Model::new();
        let loaded: Vec<_> = (0..300).map(|i| (key(2 * i), value(&mut random))).collect();
        model.extend(loaded.iter().cloned());
        table.bulk_load(loaded.into_iter().map(Ok::<_, qpair_engine::Error>)).unwrap();
        for _ in 0..1500 {
            let (key, value) = (key(random.u32(0..600)), value(&mut random));
            match random.u8(0..8) {
                0 => assert_eq!(table.delete(&key).unwrap(), model.remove(&key).is_some()),
                1 => {
                    let expected = model.get(&key).map(Vec::as_slice);
                    assert!(table.compare_and_swap(&key, expected, Some(&value)).unwrap());
                    assert!(!table.compare_and_swap(&key, Some(b"other"), None).unwrap());
                    model.insert(key, value);
                }
                2 => {
                    let is_new = table.insert(&key, &value).unwrap();
                    assert_eq!(is_new, !model.contains_key(&key));
                    model.entry(key).or_insert(value);
                }
                3 => {
                    let mut tx = store.begin();
                    tx.put(&table, &key, &value).unwrap();
                    assert!(tx.get(&table, &key).unwrap().as_ref() == Some(&value));
                    let found = tx.range(&table, &key[..]..).unwrap().next().unwrap().unwrap();
                    assert!(found == (key.clone(), value.clone()));
                    if random.bool() {
                        tx.commit().unwrap();
                        model.insert(key, value);
                    } else {
                        tx.rollback();
                    }
                }
                4 => {
                    let longer = table
                        .update(&key, |there| Some([there.unwrap_or_default(), b"+"].concat()));
                    model.entry(key).or_default().push(b'+');
                    assert!(longer.unwrap().unwrap().ends_with(b"+"));
                }
                _ => {
                    table.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
            }
        }
        assert_reads(&store, &table, &model);
        let metrics = store.metrics().unwrap();
        assert!(metrics.compressed_stored_bytes < metrics.compressed_value_bytes);
        // As a crash leaves it.
        let left = copy_of(device.as_ref(), device.size_bytes());
        let backup = ram();
        store.backup(vec![backup.clone()], None, &|_, _| ControlFlow::Continue(())).unwrap();
        store.compact(&|_, _| ControlFlow::Continue(())).unwrap();
        drop(table);
        store.close().unwrap();
        for device in [device, left, backup] {
            let open = || Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
            let store = open();
            let table = store.existing_table("t").unwrap().unwrap();
            assert_eq!(table.compression(), compression);
            assert_reads(&store, &table, &model);
            drop(table);
            store.close().unwrap();
            let store = open();
            assert_eq!(store.check(&|_, _| ()).unwrap().faults, Vec::<String>::new());
            store.close().unwrap();
        }
    }
}

/// Older values of a snapshot are those of its time, in memory and on the device.
#[test]
fn snapshots_see_older_values() {
    let small = StoreOptions { versions_bytes_max: 20_000, ..options(PAGE, FRAMES) };
    let store = Store::open(vec![ram()], &small).unwrap();
    let table = store.compressed_table("t", Compression::Lz4).unwrap();
    let text = |i: u32, round: u32| format!("round {round} of record {i}; ").repeat(12);
    for i in 0..300 {
        table.put(&key(i), text(i, 0).as_bytes()).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    for round in 1..4 {
        for i in 0..300 {
            table.put(&key(i), text(i, round).as_bytes()).unwrap();
        }
    }
    for i in 0..300 {
        let old = snapshot.get(&table, &key(i)).unwrap().unwrap();
        assert_eq!(String::from_utf8(old).unwrap(), text(i, 0));
    }
    let all: Vec<_> = snapshot.range(&table, ..).unwrap().map(Result::unwrap).collect();
    assert!((0..300).all(|i| all[i as usize].1 == text(i, 0).as_bytes()));
}

#[test]
fn a_table_keeps_its_compression() {
    let store = Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
    let used = |store: &Store| store.report().pages - store.report().free_pages;
    let rows = || (0..2000).map(|i| Ok::<_, qpair_engine::Error>((key(i), vec![b'x'; 400])));
    let before = used(&store);
    store.table("plain").unwrap().bulk_load(rows()).unwrap();
    let plain = used(&store) - before;
    store.compressed_table("small", Compression::Lz4).unwrap().bulk_load(rows()).unwrap();
    let small = used(&store) - before - plain;
    assert!(small * 4 < plain, "{small} pages in place of {plain}");
    for (name, other) in [("plain", Compression::Lz4), ("small", Compression::Zstd)] {
        let error = store.compressed_table(name, other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    }
    // Calls that say nothing of it take the table as it is.
    assert_eq!(store.table("small").unwrap().compression(), Compression::Lz4);
    assert_eq!(store.table("small").unwrap().get(&key(7)).unwrap(), Some(vec![b'x'; 400]));
    store.rename_table("small", "renamed").unwrap();
    assert_eq!(store.table("renamed").unwrap().compression(), Compression::Lz4);
}

/// A repair copies values as they are stored.
#[test]
fn a_repair_keeps_the_compression() {
    let (device, target): (Device, Device) = (ram(), ram());
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.compressed_table("t", Compression::Zstd).unwrap();
    let mut random = fastrand::Rng::with_seed(9);
    let mut model = Model::new();
    for i in 0..800 {
        let value = value(&mut random);
        table.put(&key(i), &value).unwrap();
        model.insert(key(i), value);
    }
    drop(table);
    store.close().unwrap();
    // Both checkpoint records are lost, so that all leaves are candidates.
    for page in 0..2 {
        write_bytes(device.as_ref(), (64 << 10) + page * PAGE as u64, &[0; PAGE]);
    }
    let mut make = |page_size| {
        Store::open(vec![target.clone()], &StoreOptions { page_size, ..options(PAGE, FRAMES) })
    };
    let report =
        repair(std::slice::from_ref(&device), &existing(PAGE, FRAMES), &mut make, &|_, _, _| {
            ControlFlow::Continue(())
        });
    assert!(!report.unwrap().healthy);
    let store = Store::open(vec![target], &existing(PAGE, FRAMES)).unwrap();
    let names = store.table_names().unwrap();
    let table = store.existing_table(&names[0]).unwrap().unwrap();
    assert_eq!(table.compression(), Compression::Zstd);
    let found = contents(&table);
    assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)));
    assert!(found.len() * 2 > model.len(), "{} of {}", found.len(), model.len());
}

/// Stored bytes that are no value: a check names their page and record, a read of them fails, and
/// other records are unharmed.
#[test]
fn values_that_cannot_be_decompressed_are_told_by_a_check() {
    for compression in BOTH {
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
        let table = store.compressed_table("t", compression).unwrap();
        let noise: Vec<u8> = (0..6 * PAGE as u32).map(|i| ((i * i) >> 3) as u8).collect();
        for i in 0..100 {
            table.put(&key(i), &noise[..if i % 10 == 0 { 6 * PAGE } else { 90 }]).unwrap();
        }
        // Bytes behind the frame, an unknown first byte, and a length over the limit.
        let damaged = |len: usize, first: u8| {
            let mut stored = vec![first];
            stored.extend_from_slice(&(len as u32).to_le_bytes());
            stored.extend_from_slice(&noise[..len.min(5 * PAGE)]);
            stored
        };
        let bad = [(7, damaged(80, 1)), (20, damaged(5 * PAGE, 1)), (33, damaged(80, 7))];
        for (i, stored) in &bad {
            table.stored().put(&key(*i), stored).unwrap();
        }
        for i in 0..100 {
            let found = table.get(&key(i));
            match bad.iter().any(|(bad, _)| *bad == i) {
                true => assert_eq!(found.unwrap_err().kind(), ErrorKind::Corrupt),
                false => assert!(noise.starts_with(&found.unwrap().unwrap())),
            }
        }
        drop(table);
        store.close().unwrap();
        let store = Store::open(vec![device], &existing(PAGE, FRAMES)).unwrap();
        let report = store.check(&|_, _| ()).unwrap();
        assert_eq!(report.faults.len(), bad.len(), "{:?}", report.faults);
        let told = |what: &str| report.faults.iter().filter(|fault| fault.contains(what)).count();
        assert_eq!(told("has a fault in record"), 2, "{:?}", report.faults);
        assert_eq!(told("ends a large value"), 1, "{:?}", report.faults);
        assert_eq!(report.tables[1].records, 100);
        store.close().unwrap();
    }
}
