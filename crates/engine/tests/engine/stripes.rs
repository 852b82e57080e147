//! Stores over several members, and values around every edge of a page.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{assert_sound, existing, options, ram};
use qpair_block::BlockDevice;
use qpair_engine::{Store, StoreOptions, VALUE_LEN_MAX};

/// Runs random operations on a store and a map, over `members` members. The store is closed and
/// reopened in between.
fn run(members: usize, unit_bytes: u64, page_size: usize, seed: u64) {
    let what = format!("{members} members, unit {unit_bytes}, pages {page_size}, seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let devices: Vec<Arc<dyn BlockDevice>> = (0..members).map(|_| ram()).collect();
    let new = StoreOptions { stripe_unit_bytes: unit_bytes, ..options(page_size, 64) };
    let mut store = Store::open(devices.clone(), &new).unwrap();
    let mut model = BTreeMap::new();
    for round in 0..4 {
        let table = store.table("t").unwrap();
        for _ in 0..800 {
            let key = format!("key {}", random.u32(0..2000)).into_bytes();
            if random.u8(0..4) == 0 {
                assert_eq!(table.delete(&key).unwrap(), model.remove(&key).is_some(), "{what}");
            } else {
                let len = match random.u8(0..30) {
                    0 => random.usize(0..6 * unit_bytes as usize),
                    _ => random.usize(0..100),
                };
                let value = vec![random.u8(..); len];
                let replaced = model.insert(key.clone(), value.clone()).is_some();
                assert_eq!(table.put(&key, &value).unwrap(), replaced, "{what}");
            }
        }
        let all: BTreeMap<_, _> = table.range(..).unwrap().map(Result::unwrap).collect();
        assert!(all == model, "{what}, round {round}");
        drop(table);
        store.close().unwrap();
        let report = assert_sound(&devices, page_size);
        assert_eq!(report.tables[1].records, model.len() as u64, "{what}");
        store = Store::open(devices.clone(), &existing(page_size, 64)).unwrap();
        assert_eq!(store.report().members, members);
        assert_eq!(store.report().stripe_unit_bytes, unit_bytes);
    }
    // Every member has a share of the pages.
    if members > 1 {
        let sizes: Vec<_> = devices.iter().map(|device| device.size_bytes()).collect();
        assert!(sizes.iter().all(|size| *size == sizes[0]), "{what}: {sizes:?}");
    }
}

#[test]
fn one_two_and_three_members() {
    for members in 1..=3 {
        for unit_bytes in [4 << 10, 64 << 10] {
            for page_size in [512, 4096] {
                run(members, unit_bytes, page_size, members as u64 * 100 + unit_bytes);
            }
        }
    }
}

/// Returns bytes that differ from place to place, so that a page in the wrong place is noticed.
fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 251 + i + salt) as u8).collect()
}

#[test]
fn values_around_the_edges_of_pages() {
    for page_size in [512, 4096, 65536] {
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(page_size, 64)).unwrap();
        let table = store.table("t").unwrap();
        // The sizes at which values leave the leaf, and at which they begin another page.
        let (inline, part) = ((page_size - 64) / 4, page_size - 64);
        let edges = [0, 24, inline - 8, part, 2 * part, 15 * part, 16 * part, 17 * part, 33 * part];
        let lens: Vec<usize> = edges
            .iter()
            .flat_map(|edge| (edge.saturating_sub(2)..=edge + 2).chain([edge + 24, edge + 64]))
            .collect();
        for (i, len) in lens.iter().enumerate() {
            table.put(&(i as u64).to_be_bytes(), &pattern(*len, i)).unwrap();
        }
        // Shrink and grow each value in turn: from overflow pages to inline and back.
        for (i, len) in lens.iter().enumerate() {
            let key = (i as u64).to_be_bytes();
            let other = lens[(i * 7 + 3) % lens.len()];
            assert!(table.put(&key, &pattern(other, 99)).unwrap());
            assert!(table.get(&key).unwrap().unwrap() == pattern(other, 99), "{page_size} {other}");
            assert!(table.put(&key, &pattern(*len, i)).unwrap());
        }
        let scanned = table.range(..).unwrap();
        for (i, (entry, len)) in scanned.zip(&lens).enumerate() {
            assert!(entry.unwrap().1 == pattern(*len, i), "{page_size} {len}");
        }
        drop(table);
        store.close().unwrap();
        let store = Store::open(vec![device.clone()], &existing(page_size, 64)).unwrap();
        let table = store.table("t").unwrap();
        for (i, len) in lens.iter().enumerate() {
            let value = table.get(&(i as u64).to_be_bytes()).unwrap().unwrap();
            assert!(value == pattern(*len, i), "{page_size} {len}");
        }
        for i in 0..lens.len() as u64 {
            assert!(table.delete(&i.to_be_bytes()).unwrap());
        }
        drop(table);
        store.close().unwrap();
        let report = assert_sound(&[device], page_size);
        assert_eq!(report.tables[1].overflow_pages, 0);
    }
}

#[test]
fn the_largest_value() {
    for page_size in [4096, 65536] {
        let devices = vec![ram(), ram()];
        let store = Store::open(devices.clone(), &options(page_size, 64)).unwrap();
        let table = store.table("t").unwrap();
        let value = pattern(VALUE_LEN_MAX, 5);
        table.put(b"large", &value).unwrap();
        table.put(b"one less", &value[1..]).unwrap();
        assert!(table.get(b"large").unwrap().unwrap() == value);
        // The pages are reused: if not by the next value, which may come before they are free, then
        // by a later one.
        let pages = store.report().pages;
        for _ in 0..5 {
            table.delete(b"large").unwrap();
            table.put(b"large", &value).unwrap();
        }
        assert!(store.report().pages < pages + 3 * (VALUE_LEN_MAX / page_size) as u64);
        drop(table);
        store.close().unwrap();
        assert_sound(&devices, page_size);
        let store = Store::open(devices, &existing(page_size, 64)).unwrap();
        let table = store.table("t").unwrap();
        assert!(table.get(b"one less").unwrap().unwrap() == value[1..]);
    }
}
