//! Changes that do not fit on a full device of fixed size.

use std::sync::Arc;

use crate::common::{assert_sound, existing, options};
use qpair_block::{BlockDevice, RamDevice, RamOptions};
use qpair_engine::{ErrorKind, Remedy, Store, StoreOptions};

const PAGE: usize = 512;

fn fixed(size_bytes: u64) -> Arc<dyn BlockDevice> {
    let options = RamOptions { size_bytes, growable: false, ..RamOptions::default() };
    Arc::new(RamDevice::new(options).unwrap())
}

/// The transaction's record is larger than the log can get. Each checkpoint moves some inner pages,
/// which must not lead to another checkpoint.
#[test]
fn a_transaction_without_room_for_its_record_is_refused() {
    let device = fixed(2 << 20);
    let small = StoreOptions { checkpoint_bytes: 100 << 10, ..options(PAGE, 98) };
    let store = Store::open(vec![device], &small).unwrap();
    let table = store.table("t").unwrap();
    let put = |keys: &mut dyn Iterator<Item = u32>, value: u8| {
        let keys: Vec<u32> = keys.collect();
        let put = store.transact(|tx| {
            keys.iter().try_for_each(|key| tx.put(&table, &key.to_be_bytes(), &[value; 40]))
        });
        put.map(drop).map_err(|error| error.kind())
    };
    let mut rows = 0;
    while put(&mut (rows..rows + 100), 7).is_ok() {
        rows += 100;
    }
    assert!(rows > 5000);
    assert_eq!(put(&mut (0..rows).step_by(7), 8), Err(ErrorKind::NoSpace));
    assert!(!store.is_read_only());
    assert_eq!(table.get(&0u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 40][..]));
    drop(table);
    store.close().unwrap();
}

/// The transaction's record fits the log, but its leaves would need more free pages than there are.
/// An error after the timestamp would be too late: the transaction could then be neither completed
/// nor undone.
#[test]
fn a_transaction_without_room_for_its_leaves_is_refused_before_its_timestamp() {
    let device = fixed(4 << 20);
    let small = StoreOptions {
        checkpoint_bytes: 100 << 10,
        log_segment_bytes: 256 << 10,
        ..options(PAGE, 98)
    };
    let store = Store::open(vec![device], &small).unwrap();
    let table = store.table("t").unwrap();
    let mut rows = 0u32;
    loop {
        let put = store.transact(|tx| {
            (rows..rows + 100).try_for_each(|key| tx.put(&table, &key.to_be_bytes(), &[7; 40]))
        });
        if put.is_err() {
            break;
        }
        rows += 100;
        if rows.is_multiple_of(1000) {
            store.checkpoint().unwrap();
        }
    }
    assert!(rows > 30_000, "{rows}");
    let delete = |keys: &mut dyn Iterator<Item = u32>| {
        let keys: Vec<u32> = keys.collect();
        let deleted = store.transact(|tx| {
            keys.iter().try_for_each(|key| tx.delete(&table, &key.to_be_bytes()).map(drop))
        });
        deleted.map(drop)
    };
    let refused = delete(&mut (0..rows).step_by(17)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    assert!(refused.to_string().contains("free pages"), "{refused}");
    assert!(!store.is_read_only());
    assert!(table.get(&17u32.to_be_bytes()).unwrap().is_some());
    // The records can be removed in smaller transactions.
    for first in (0..rows).step_by(100) {
        delete(&mut (first..rows.min(first + 100))).unwrap();
    }
    assert!(!store.is_read_only());
    assert_eq!(table.get(&17u32.to_be_bytes()).unwrap(), None);
    drop(table);
    store.close().unwrap();
}

/// A refused transaction changes nothing, and one that is accepted completes, with any amount of
/// free space and beside other transactions.
#[test]
fn transactions_of_many_leaves_on_a_device_that_is_nearly_full() {
    let device = fixed(2 << 20);
    let small = StoreOptions { checkpoint_bytes: 100 << 10, ..options(PAGE, 98) };
    let store = Store::open(vec![device], &small).unwrap();
    let table = store.table("t").unwrap();
    let mut rows = 0u32;
    let fill = |first: u32| {
        store
            .transact(|tx| {
                let keys = first..first + 100;
                keys.into_iter().try_for_each(|key| tx.put(&table, &key.to_be_bytes(), &[7; 40]))
            })
            .is_ok()
    };
    while fill(rows) {
        rows += 100;
    }
    store.checkpoint().unwrap();
    let outcomes = std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..4u32)
            .map(|task| {
                let (store, table) = (&store, &table);
                scope.spawn(move || {
                    let (mut made, mut refused) = (0, 0);
                    for turn in 0..40u32 {
                        let count = [3, 10, 40, 150, 600][(turn % 5) as usize];
                        let step = (rows / count) as usize;
                        // Each task has keys of its own, and all are in the same leaves.
                        let keys = ((turn % 7) * 4 + task..rows).step_by(step / 4 * 4);
                        let changed = store.transact(|tx| {
                            keys.clone().try_for_each(|key| match turn % 2 {
                                0 => tx.put(table, &key.to_be_bytes(), &[turn as u8; 40]),
                                _ => tx.delete(table, &key.to_be_bytes()).map(drop),
                            })
                        });
                        match changed {
                            Ok(_) => made += 1,
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                                refused += 1;
                            }
                        }
                    }
                    (made, refused)
                })
            })
            .collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect::<Vec<(u32, u32)>>()
    });
    assert!(!store.is_read_only());
    assert!(outcomes.iter().all(|(made, _)| *made > 0), "{outcomes:?}");
    drop(table);
    store.close().unwrap();
}

/// A checkpoint leaves the segments of the logs to the logs. When space runs out, they become free
/// pages again.
#[test]
fn segments_that_logs_have_behind_them_are_room_for_records() {
    let device = fixed(8 << 20);
    let size_pages = (8 << 20) / PAGE as u64;
    let store = Store::open(vec![device.clone()], &options(PAGE, 98)).unwrap();
    let table = store.table("t").unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let error = loop {
        if let Err(error) = table.put(&random.u64(..).to_be_bytes(), &[7; 40]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    drop(table);
    store.close().unwrap();
    let report = assert_sound(&[device], PAGE);
    assert!(report.free_pages < size_pages / 5, "{} of {size_pages} free", report.free_pages);
}

/// After every page has moved a few times, the free pages are single and scattered. A large value
/// is refused only if there are too few of them.
#[test]
fn a_large_value_finds_its_pages_wherever_they_are() {
    const FRAMES: u64 = 98;
    const LARGE: usize = 16 << 10;
    let device = fixed(4 << 20);
    let small = StoreOptions { checkpoint_bytes: 100 << 10, ..options(PAGE, FRAMES) };
    let store = Store::open(vec![device.clone()], &small).unwrap();
    let (table, large) = (store.table("t").unwrap(), store.table("large").unwrap());
    let mut random = fastrand::Rng::with_seed(3);
    let mut model = std::collections::BTreeMap::new();
    let records = 30_000u32;
    for first in (0..records).step_by(100) {
        store
            .transact(|tx| {
                (first..first + 100).try_for_each(|i| tx.put(&table, &i.to_be_bytes(), &[1; 40]))
            })
            .unwrap();
    }
    for i in (0..records).filter(|i| i / 500 % 2 == 1) {
        table.delete(&i.to_be_bytes()).unwrap();
    }
    for turn in 0..60u8 {
        for _ in 0..60 {
            let i = random.u32(0..records) / 1000 * 1000 + random.u32(0..500);
            table.put(&i.to_be_bytes(), &[turn; 40]).unwrap();
            model.insert(i, turn);
        }
        store.checkpoint().unwrap();
    }
    let free = store.report().free_pages;
    let mut put = 0u32;
    let refused = loop {
        let value: Vec<u8> = (0..LARGE).map(|at| (at as u32 + put) as u8).collect();
        match large.put(&put.to_be_bytes(), &value) {
            Ok(_) => put += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    store.checkpoint().unwrap();
    let left = store.report().free_pages;
    // The pages kept for pages in memory, and the pages that the value needs.
    let (kept, needed) = (7 * (FRAMES + 32) / 4, LARGE as u64 / 448 + 1);
    assert!(
        put > 20 && left < kept + needed + 64,
        "{free} pages, {put} values, {left} pages left: {refused}"
    );
    for at in 0..put {
        let value: Vec<u8> = (0..LARGE).map(|byte| (byte as u32 + at) as u8).collect();
        assert!(large.get(&at.to_be_bytes()).unwrap() == Some(value), "{at}");
    }
    for (i, turn) in model {
        assert_eq!(table.get(&i.to_be_bytes()).unwrap().unwrap(), [turn; 40]);
    }
    drop((table, large));
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// Fills a table with records of 40 bytes until the device is full. Returns the number of records.
fn fill(store: &Store) -> u32 {
    let table = store.table("t").unwrap();
    let mut rows = 0u32;
    while store
        .transact(|tx| {
            (rows..rows + 100).try_for_each(|key| tx.put(&table, &key.to_be_bytes(), &[7; 40]))
        })
        .is_ok()
    {
        rows += 100;
    }
    rows
}

/// A regression: the reserve for dirty pages depended on the memory alone. With 4,096 frames each
/// change of a nearly full store, even a delete, needed 7,000 free pages, and there were 500. Such
/// a store could not be changed at all after it was opened with more memory.
#[test]
fn a_nearly_full_store_takes_changes_whatever_its_memory() {
    let device = fixed(4 << 20);
    let store = Store::open(vec![device.clone()], &options(PAGE, 98)).unwrap();
    let rows = fill(&store);
    assert!(rows > 40_000, "{rows}");
    store.close().unwrap();
    for frames in [4096, 512] {
        let store = Store::open(vec![device.clone()], &existing(PAGE, frames)).unwrap();
        let table = store.table("t").unwrap();
        for key in (0..rows).step_by(rows as usize / 50) {
            table.put(&key.to_be_bytes(), &[8; 40]).unwrap();
        }
        drop(table);
        store.close().unwrap();
    }
    // Deletes make room, and then all of the memory is used again.
    let store = Store::open(vec![device.clone()], &existing(PAGE, 4096)).unwrap();
    let table = store.table("t").unwrap();
    for key in 0..rows {
        table.delete(&key.to_be_bytes()).unwrap();
    }
    assert_eq!(table.range(..).unwrap().count(), 0);
    for key in 0..rows / 2 {
        table.put(&key.to_be_bytes(), &[9; 40]).unwrap();
    }
    drop(table);
    store.close().unwrap();
    let report = assert_sound(&[device], PAGE);
    assert!(report.free_pages > 0);
}

/// An open store can be filled nearly as far with much memory as with little.
#[test]
fn a_device_is_filled_as_far_with_much_memory_as_with_little() {
    let rows = [98, 2048].map(|frames| {
        let device = fixed(4 << 20);
        let store = Store::open(vec![device.clone()], &options(PAGE, frames)).unwrap();
        let rows = fill(&store);
        let table = store.table("t").unwrap();
        for key in (0..rows).step_by(rows as usize / 50) {
            table.put(&key.to_be_bytes(), &[8; 40]).unwrap();
            assert!(table.delete(&(key + 1).to_be_bytes()).unwrap());
        }
        drop(table);
        store.close().unwrap();
        assert_sound(&[device], PAGE);
        rows
    });
    assert!(rows[1] >= rows[0] - rows[0] / 8, "{rows:?}");
}

/// A regression: 30 MB of sorted records did not load into 55 MiB, because as many pages as memory
/// has were reserved for changes that were never made.
#[test]
fn a_sorted_load_fits_into_a_small_device() {
    let device = fixed(4 << 20);
    let store = Store::open(vec![device.clone()], &options(PAGE, 8192)).unwrap();
    let table = store.table("t").unwrap();
    let loader = table.task();
    let loaded = store.spawn(move || async move {
        let mut loader = loader.bulk_loader().await?;
        for key in 0..45_000u32 {
            loader.push(&key.to_be_bytes(), &[7; 40]).await?;
        }
        loader.finish().await
    });
    assert_eq!(loaded.join().unwrap().unwrap(), 45_000);
    table.put(&7u32.to_be_bytes(), &[8; 40]).unwrap();
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// Each additional worker needs frames, and segments for its log.
#[test]
fn a_full_store_that_is_opened_with_too_many_workers_says_so() {
    let device = fixed(4 << 20);
    let with = |workers| StoreOptions { workers, ..existing(PAGE, 512) };
    let store =
        Store::open(vec![device.clone()], &StoreOptions { format: true, ..with(1) }).unwrap();
    let mut rows = fill(&store);
    let table = store.table("t").unwrap();
    while table.put(&rows.to_be_bytes(), &[7; 40]).is_ok() {
        rows += 1;
    }
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device.clone()], &with(16)).unwrap();
    let table = store.table("t").unwrap();
    let refused = table.delete(&7u32.to_be_bytes()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    assert!(refused.way_out().unwrap().contains("fewer workers than 16"), "{refused}");
    assert_eq!(refused.remedy(), Some(Remedy::FewerWorkers));
    assert_eq!(table.get(&7u32.to_be_bytes()).unwrap().unwrap(), [7; 40]);
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device.clone()], &with(1)).unwrap();
    let table = store.table("t").unwrap();
    assert!(table.delete(&7u32.to_be_bytes()).unwrap());
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// A regression: each of many changes that found no space at the same time made a checkpoint of its
/// own, one after the other, though the first served all of them.
#[test]
fn changes_that_find_no_space_together_share_their_checkpoints() {
    const TASKS: u32 = 256;
    let device = fixed(4 << 20);
    let store = Store::open(vec![device.clone()], &options(PAGE, 512)).unwrap();
    let rows = fill(&store);
    let table = store.table("t").unwrap();
    let before = store.metrics().unwrap().checkpoints;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let table = table.task();
            store.spawn(move || async move {
                let mut key = rows + task;
                while table.put(&key.to_be_bytes(), &[7; 40]).await.is_ok() {
                    key += TASKS;
                }
                (key - rows) / TASKS
            })
        })
        .collect();
    let put: u32 = tasks.into_iter().map(|task| task.join().unwrap()).sum();
    let checkpoints = store.metrics().unwrap().checkpoints - before;
    assert!(checkpoints < 20, "{checkpoints} checkpoints for {put} records");
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}
