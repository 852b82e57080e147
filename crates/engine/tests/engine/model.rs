//! Compares the store with a model: random operations, tiny pools, every page size.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::{encrypted, options, ram};
use qpair_engine::{Store, StoreOptions, Table, TaskTable};

fn compare(table: &Table, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let all: Vec<_> = table.range(..).unwrap().map(Result::unwrap).collect();
    assert_eq!(all.len(), model.len());
    assert!(all.iter().zip(model).all(|((k, v), (mk, mv))| k == mk && v == mv));
    let back: Vec<_> = table.range(..).unwrap().reverse().map(Result::unwrap).collect();
    assert!(back.iter().zip(model.iter().rev()).all(|((k, v), (mk, mv))| k == mk && v == mv));
    assert_eq!(back.len(), model.len());
}

fn random_key(random: &mut fastrand::Rng, longest: usize) -> Vec<u8> {
    let mut key = match random.u8(0..4) {
        0 => b"shared/prefix/of/some/length/".to_vec(),
        1 => b"shared/".to_vec(),
        _ => vec![],
    };
    match random.u8(0..20) {
        0 => key.resize(random.usize(0..longest), b'x'),
        _ => key.extend_from_slice(format!("{}", random.u32(0..3000)).as_bytes()),
    }
    key.truncate(longest);
    key
}

fn random_value(random: &mut fastrand::Rng, page_size: usize) -> Vec<u8> {
    let len = match random.u8(0..40) {
        0 => random.usize(0..20 * page_size),
        1..5 => random.usize(0..page_size / 2),
        _ => random.usize(0..60),
    };
    let byte = random.u8(..);
    (0..len).map(|i| byte.wrapping_add(i as u8)).collect()
}

/// Runs operations on a store with these options.
fn run(seed: u64, mut options: StoreOptions, operations: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let device = ram();
    let page_size = options.page_size;
    let mut model = BTreeMap::new();
    let mut store = Store::open(vec![device.clone()], &options).unwrap();
    options.format = false;
    let mut table = store.table("t").unwrap();
    let longest = store.whole_key_len_max();
    for i in 0..operations {
        let key = random_key(&mut random, longest);
        // Phases of growth and of shrinking, so that pages are merged too.
        let deletes = if (i / 1500) % 2 == 0 { 2 } else { 8 };
        match random.u8(0..12) {
            n if n < deletes => {
                assert_eq!(table.delete(&key).unwrap(), model.remove(&key).is_some())
            }
            n if n < 10 => {
                let value = random_value(&mut random, page_size);
                assert_eq!(table.put(&key, &value).unwrap(), model.contains_key(&key));
                model.insert(key, value);
            }
            10 => assert_eq!(table.get(&key).unwrap().as_ref(), model.get(&key)),
            _ => {
                let mut ends = [key, random_key(&mut random, longest)];
                ends.sort();
                let [from, to] = ends;
                let bounds = (Bound::Excluded(from), Bound::Included(to));
                if bounds.0 == Bound::Excluded(vec![])
                    || matches!((&bounds.0, &bounds.1), (Bound::Excluded(a), Bound::Included(b)) if a == b)
                {
                    continue;
                }
                let ours: Vec<_> =
                    table.range(bounds.clone()).unwrap().take(50).map(Result::unwrap).collect();
                let theirs: Vec<_> =
                    model.range(bounds).take(50).map(|(k, v)| (k.clone(), v.clone())).collect();
                assert_eq!(ours, theirs);
            }
        }
        if i % 2000 == 1999 {
            compare(&table, &model);
            drop(table);
            store.close().unwrap();
            store = Store::open(vec![device.clone()], &options).unwrap();
            table = store.table("t").unwrap();
            compare(&table, &model);
        }
    }
    compare(&table, &model);
    for key in model.keys().cloned().collect::<Vec<_>>() {
        assert!(table.delete(&key).unwrap());
    }
    compare(&table, &BTreeMap::new());
    drop(table);
    store.close().unwrap();
}

#[test]
fn pages_of_512_bytes() {
    run(1, options(512, 64), 6000);
}

#[test]
fn pages_of_4_kib() {
    run(2, options(4096, 64), 10_000);
}

#[test]
fn pages_of_64_kib() {
    run(3, options(65536, 64), 4000);
}

#[test]
fn encrypted_pages() {
    run(4, encrypted(options(512, 64)), 6000);
    run(5, encrypted(options(8192, 64)), 3000);
}

/// Many tasks on two workers, each with its own keys, all in the same few leaves of a pool that is
/// too small.
#[test]
fn concurrent_tasks_in_a_tiny_pool() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(512, 128)).unwrap();
    let table = store.table("t").unwrap();
    let tasks: Vec<_> = (0..32u64)
        .map(|task| {
            let table = table.task();
            store.spawn(move || worker(table, task))
        })
        .collect();
    let mut expected = BTreeMap::new();
    for task in tasks {
        expected.extend(task.join().unwrap());
    }
    compare(&table, &expected);
    drop(table);
    store.close().unwrap();
    let store =
        Store::open(vec![device], &StoreOptions { format: false, ..options(512, 128) }).unwrap();
    compare(&store.table("t").unwrap(), &expected);
}

async fn worker(table: TaskTable, task: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(task);
    let mut model = BTreeMap::new();
    for _ in 0..600 {
        let key = format!("{:05}/{task}", random.u32(0..500)).into_bytes();
        match random.u8(0..10) {
            0..5 => {
                let value = random_value(&mut random, 512);
                assert_eq!(table.put(&key, &value).await.unwrap(), model.contains_key(&key));
                model.insert(key, value);
            }
            5..7 => assert_eq!(table.delete(&key).await.unwrap(), model.remove(&key).is_some()),
            _ => assert_eq!(table.get(&key).await.unwrap().as_ref(), model.get(&key)),
        }
    }
    model
}

/// Sorted loads of many sizes, followed by lookups, scans and changes.
#[test]
fn sorted_loads() {
    for (page_size, records, seed) in
        [(512, 0, 1), (512, 1, 2), (512, 30_000, 3), (4096, 60_000, 4), (65536, 30_000, 5)]
    {
        let mut random = fastrand::Rng::with_seed(seed);
        let device = ram();
        let options = options(page_size, 128);
        let store = Store::open(vec![device.clone()], &options).unwrap();
        let table = store.table("t").unwrap();
        let mut model = BTreeMap::new();
        for _ in 0..records {
            let key = if random.u8(0..100) == 0 {
                random_key(&mut random, store.whole_key_len_max())
            } else {
                random.u64(..).to_be_bytes().to_vec()
            };
            let len = if random.u16(0..1000) == 0 { 3 * page_size } else { random.usize(0..40) };
            model.insert(key, vec![len as u8; len]);
        }
        let sorted: Vec<_> = model.clone().into_iter().map(Ok).collect();
        assert_eq!(table.bulk_load(sorted).unwrap(), model.len() as u64);
        compare(&table, &model);
        if !model.is_empty() {
            assert!(table.bulk_load(vec![Ok((vec![1], vec![]))]).is_err());
        }
        for _ in 0..500 {
            let key = random.u64(..).to_be_bytes().to_vec();
            table.put(&key, b"later").unwrap();
            model.insert(key, b"later".to_vec());
        }
        compare(&table, &model);
        drop(table);
        store.close().unwrap();
        let store = Store::open(vec![device], &StoreOptions { format: false, ..options }).unwrap();
        compare(&store.table("t").unwrap(), &model);
    }
}

#[test]
fn an_unsorted_load_changes_nothing() {
    let store = Store::open(vec![ram()], &options(512, 128)).unwrap();
    let table = store.table("t").unwrap();
    let mut records: Vec<_> =
        (0..5000u32).map(|i| Ok((i.to_be_bytes().to_vec(), vec![7; 30]))).collect();
    records.push(Ok((vec![0], vec![])));
    assert!(table.bulk_load(records).is_err());
    compare(&table, &BTreeMap::new());
    let free = store.report().free_pages;
    // The log's segments remain, and a few pages.
    let pages = store.report().pages;
    assert!(free + 6 * 128 + 40 > pages, "pages of the load were given back: {free} of {pages}");
}
