//! Opens stores after a crash. A copy of a device, made at any moment, stands for the device of a
//! killed process.

use crate::common;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::{copy_of, existing, options, ram};
use qpair_engine::{ErrorKind, RecoveryProgress, Store, StoreOptions};

const PAGE: usize = 512;

fn small(format: bool) -> StoreOptions {
    let base = if format { options(PAGE, 256) } else { existing(PAGE, 256) };
    StoreOptions { log_segment_bytes: 64 << 10, checkpoint_bytes: 128 << 10, ..base }
}

fn content(store: &Store, table: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let Some(table) = store.existing_table(table).unwrap() else { return BTreeMap::new() };
    table.range(..).unwrap().map(|entry| entry.unwrap()).collect()
}

#[test]
fn what_was_acknowledged_is_there_after_a_crash() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut device = ram();
    let mut store = Store::open(vec![device.clone()], &small(true)).unwrap();
    let mut model = BTreeMap::new();
    for life in 0..8 {
        let table = store.table("t").unwrap();
        for _ in 0..1500 {
            let key = random.u32(..3000).to_be_bytes().to_vec();
            if random.u8(..4) == 0 {
                table.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let len = if random.u8(..50) == 0 { 3000 } else { random.usize(..60) };
                let value = vec![random.u8(..); len];
                table.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            if random.u16(..400) == 0 {
                store.checkpoint().unwrap();
            }
        }
        let crashed = copy_of(device.as_ref(), device.size_bytes());
        drop(table);
        store.close().unwrap();
        device = crashed;
        store = Store::open(vec![device.clone()], &small(false)).unwrap();
        assert!(content(&store, "t") == model, "life {life}");
    }
    store.close().unwrap();
    common::assert_sound(&[device], PAGE);
}

#[test]
fn crash_after_crash_before_a_checkpoint_is_made() {
    let mut device = ram();
    let store = Store::open(vec![device.clone()], &small(true)).unwrap();
    let table = store.table("t").unwrap();
    let mut model = BTreeMap::new();
    for key in 0..2000u32 {
        table.put(&key.to_be_bytes(), &[1; 40]).unwrap();
        model.insert(key.to_be_bytes().to_vec(), vec![1; 40]);
    }
    device = copy_of(device.as_ref(), device.size_bytes());
    for life in 2..14u8 {
        let store = Store::open(vec![device.clone()], &small(false)).unwrap();
        assert!(content(&store, "t") == model, "life {life}");
        let table = store.table("t").unwrap();
        for key in (u32::from(life)..2000).step_by(97) {
            table.put(&key.to_be_bytes(), &[life; 30]).unwrap();
            model.insert(key.to_be_bytes().to_vec(), vec![life; 30]);
        }
        // The checkpoint that begins with the opening may be at any stage.
        device = copy_of(device.as_ref(), device.size_bytes());
    }
    Store::open(vec![device.clone()], &small(false)).unwrap().close().unwrap();
    common::assert_sound(&[device], PAGE);
}

#[test]
fn a_transaction_is_there_in_full_or_not_at_all() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &small(true)).unwrap();
    let (a, b) = (store.table("a").unwrap(), store.table("b").unwrap());
    let mut copies = Vec::new();
    for i in 0..200u32 {
        store
            .transact(|tx| {
                tx.put(&a, b"k", &i.to_be_bytes())?;
                tx.put(&b, &i.to_be_bytes(), b"x")
            })
            .unwrap();
        if i % 20 == 7 {
            copies.push((i, copy_of(device.as_ref(), device.size_bytes())));
        }
    }
    drop((a, b));
    store.close().unwrap();
    for (i, copy) in copies {
        let store = Store::open(vec![copy.clone()], &small(false)).unwrap();
        assert_eq!(content(&store, "a")[b"k".as_slice()], i.to_be_bytes());
        assert_eq!(content(&store, "b").len(), i as usize + 1);
        store.close().unwrap();
        common::assert_sound(&[copy], PAGE);
    }
}

#[test]
fn tables_that_are_made_and_dropped() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &small(true)).unwrap();
    for i in 0..20u32 {
        let table = store.table(&format!("t{i}")).unwrap();
        for k in 0..100u32 {
            table.put(&k.to_be_bytes(), &[7; 40]).unwrap();
        }
    }
    for i in 0..10 {
        store.drop_table(&format!("t{i}")).unwrap();
    }
    assert_eq!(store.drop_table("t0").unwrap_err().kind(), ErrorKind::NotFound);
    let copy = copy_of(device.as_ref(), device.size_bytes());
    store.close().unwrap();
    for device in [copy, device] {
        let store = Store::open(vec![device.clone()], &small(false)).unwrap();
        assert_eq!(store.table_names().unwrap().len(), 10);
        assert_eq!(content(&store, "t15").len(), 100);
        // Dropped tables are freed in the background, once the store may be changed.
        store.checkpoint().unwrap();
        while store.tables_being_dropped() > 0 {
            std::thread::yield_now();
        }
        store.close().unwrap();
        common::assert_sound(&[device], PAGE);
    }
}

/// Tree ids are not reused: a table that is created after another was dropped is empty, whatever
/// records of the two the log has, and it is not taken for the dropped table.
#[test]
fn a_table_made_after_one_that_was_dropped() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &small(true)).unwrap();
    for i in 0..3u8 {
        let table = store.table("t").unwrap();
        assert_eq!(content(&store, "t").len(), 0);
        table.put(&[i], b"v").unwrap();
        assert_eq!(table.get(&[i]).unwrap().unwrap(), b"v");
        store.drop_table("t").unwrap();
        assert_eq!(table.get(&[i]).unwrap_err().kind(), ErrorKind::NotFound);
        while store.tables_being_dropped() > 0 {
            std::thread::yield_now();
        }
    }
    let table = store.table("t").unwrap();
    table.put(b"k", b"v").unwrap();
    let copy = copy_of(device.as_ref(), device.size_bytes());
    drop(table);
    store.close().unwrap();
    for device in [copy, device] {
        let store = Store::open(vec![device.clone()], &small(false)).unwrap();
        assert_eq!(
            content(&store, "t").into_iter().collect::<Vec<_>>(),
            [(b"k".to_vec(), b"v".to_vec())]
        );
        store.close().unwrap();
        common::assert_sound(&[device], PAGE);
    }
}

/// A table is dropped while an image that contains it is written: the image needs the root as it
/// was.
#[test]
fn tables_dropped_beside_checkpoints() {
    for round in 0..20 {
        let device = ram();
        let store = Store::open(vec![device.clone()], &small(true)).unwrap();
        store.table("kept").unwrap().put(b"k", b"v").unwrap();
        store.table("t").unwrap();
        let other = store.clone();
        let checkpoints = std::thread::spawn(move || {
            for _ in 0..3 {
                other.checkpoint().unwrap();
            }
        });
        for _ in 0..round * 40 {
            std::hint::spin_loop();
        }
        store.drop_table("t").unwrap();
        store.table("another").unwrap();
        store.drop_table("another").unwrap();
        checkpoints.join().unwrap();
        let copy = copy_of(device.as_ref(), device.size_bytes());
        // The same for the store at its last checkpoint, with the tables that are being dropped.
        let at_checkpoint = StoreOptions { at_checkpoint: true, ..small(false) };
        let report =
            Store::open(vec![copy.clone()], &at_checkpoint).unwrap().check(&|_, _| ()).unwrap();
        assert!(report.is_sound() && report.leaked_pages == 0, "{report:#?}");
        store.close().unwrap();
        for device in [copy, device] {
            let store = Store::open(vec![device.clone()], &small(false)).unwrap();
            assert_eq!(store.table_names().unwrap(), ["kept"]);
            store.close().unwrap();
            common::assert_sound(&[device], PAGE);
        }
    }
}

#[test]
fn a_store_that_was_not_closed_is_not_opened_for_reading_only() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &small(true)).unwrap();
    store.table("t").unwrap().put(b"k", b"v").unwrap();
    let copy = copy_of(device.as_ref(), device.size_bytes());
    store.close().unwrap();
    let reading = StoreOptions { read_only: true, ..small(false) };
    assert_eq!(Store::open(vec![copy.clone()], &reading).unwrap_err().kind(), ErrorKind::Unclean);
    let at_checkpoint = StoreOptions { at_checkpoint: true, ..small(false) };
    let store = Store::open(vec![copy.clone()], &at_checkpoint).unwrap();
    assert!(store.check(&|_, _| ()).unwrap().is_sound());
    store.close().unwrap();
    assert_eq!(content(&Store::open(vec![copy], &small(false)).unwrap(), "t").len(), 1);
}

#[test]
fn a_sorted_load_survives_once_it_has_returned() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &small(true)).unwrap();
    let table = store.table("t").unwrap();
    let records = (0..2000u32).map(|i| Ok((i.to_be_bytes().to_vec(), vec![1; 40])));
    assert_eq!(table.bulk_load(records).unwrap(), 2000);
    let copy = copy_of(device.as_ref(), device.size_bytes());
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![copy], &small(false)).unwrap();
    assert_eq!(content(&store, "t").len(), 2000);
}

/// Recovery builds sound trees leaf by leaf from keys of all lengths and orders, with all page
/// sizes.
#[test]
fn whatever_the_keys_are_recovery_makes_a_sound_tree_of_them() {
    for (seed, page_size, frames) in
        [(1, 512, 128), (2, 512, 4096), (3, 4096, 128), (4, 4096, 4096)]
    {
        let mut random = fastrand::Rng::with_seed(seed);
        let device = ram();
        let options = |format| {
            let base =
                if format { options(page_size, frames) } else { existing(page_size, frames) };
            StoreOptions { checkpoint_bytes: 1 << 40, ..base }
        };
        let store = Store::open(vec![device.clone()], &options(true)).unwrap();
        let mut models: BTreeMap<&str, BTreeMap<Vec<u8>, Vec<u8>>> = BTreeMap::new();
        for round in 0..2 {
            for table in ["random", "ascending", "alike"] {
                let (handle, model) =
                    (store.table(table).unwrap(), models.entry(table).or_default());
                for batch in 0..15u32 {
                    store
                        .transact(|tx| {
                            for number in 0..100u32 {
                                let key = match table {
                                    "random" => {
                                        (0..random.usize(1..40)).map(|_| random.u8(..)).collect()
                                    }
                                    "ascending" => {
                                        ((round * 15 + batch) * 100 + number).to_be_bytes().to_vec()
                                    }
                                    _ => format!("a/long/prefix/{:09}", random.u32(..4000))
                                        .into_bytes(),
                                };
                                let len = match random.u8(..60) {
                                    0 => random.usize(..3 * page_size),
                                    1..10 => random.usize(..page_size / 4),
                                    _ => random.usize(..60),
                                };
                                let value = vec![random.u8(..); len];
                                if table != "ascending" && random.u8(..12) == 0 {
                                    tx.delete(&handle, &key)?;
                                    model.remove(&key);
                                } else {
                                    tx.put(&handle, &key, &value)?;
                                    model.insert(key, value);
                                }
                            }
                            Ok(())
                        })
                        .unwrap();
                }
            }
            // The second half of the changes is applied to an existing tree.
            if round == 0 {
                store.checkpoint().unwrap();
            }
        }
        let crashed = copy_of(device.as_ref(), device.size_bytes());
        store.close().unwrap();
        let store = Store::open(vec![crashed.clone()], &options(false)).unwrap();
        for (table, model) in &models {
            assert!(content(&store, table) == *model, "{table}, seed {seed}");
        }
        store.close().unwrap();
        common::assert_sound(&[crashed], page_size);
    }
}

/// Pages that move during a recovery are kept for the last checkpoint, and many of them make the
/// store want another one. A checkpoint at that time would be of a moment between two commits, and
/// the log would be given up for it: a crash would lose the commits that were not applied yet.
#[test]
fn a_recovery_that_moves_many_pages_can_be_interrupted_by_a_crash() {
    const ROWS: u32 = 60_000;
    let options = |format| {
        let base = if format { options(4096, 512) } else { existing(4096, 512) };
        StoreOptions { checkpoint_bytes: 1 << 40, log_segment_bytes: 1 << 20, ..base }
    };
    let value = |row: u32, version: u8| {
        let mut value = vec![version; 1200];
        value[..4].copy_from_slice(&row.to_le_bytes());
        value
    };
    let device = ram();
    // Grow the device to its final size, so that growth does not start a checkpoint.
    device.grow(200 << 20).unwrap();
    let store = Store::open(vec![device.clone()], &options(true)).unwrap();
    let table = store.table("t").unwrap();
    table
        .bulk_load((0..ROWS).map(move |row| Ok((row.to_be_bytes().to_vec(), value(row, 0)))))
        .unwrap();
    // Change one row of each leaf.
    for first in (0..ROWS).step_by(300) {
        store
            .transact(|tx| {
                let mut rows = (first..first + 300).step_by(3);
                rows.try_for_each(|row| tx.put(&table, &row.to_be_bytes(), &value(row, 1)))
            })
            .unwrap();
    }
    let crashed = copy_of(device.as_ref(), device.size_bytes());
    drop(table);
    store.close().unwrap();
    let copies: Arc<Mutex<Vec<_>>> = Arc::default();
    let (taken, source) = (copies.clone(), crashed.clone());
    let progress = RecoveryProgress::new(move |done, all| {
        let mut taken = taken.lock().unwrap();
        if done * 100 >= all * [90, 95, 100, u64::MAX / all.max(1)][taken.len().min(3)] {
            taken.push(copy_of(source.as_ref(), source.size_bytes()));
        }
    });
    Store::open(vec![crashed], &StoreOptions { progress, ..options(false) }).unwrap();
    let copies = std::mem::take(&mut *copies.lock().unwrap());
    assert_eq!(copies.len(), 3);
    for copy in copies {
        let store = Store::open(vec![copy], &options(false)).unwrap();
        let table = store.table("t").unwrap();
        for row in 0..ROWS {
            let version = u8::from(row % 3 == 0);
            assert!(
                table.get(&row.to_be_bytes()).unwrap().as_deref() == Some(&value(row, version)[..]),
                "{row}"
            );
        }
    }
}

/// A store with many tables, changed with much memory and killed, opens with the least memory that
/// can create one. Recovery takes more, and reports it.
#[test]
fn a_log_with_changes_of_more_tables_than_memory_has_pages() {
    const TABLES: u32 = 300;
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 1024)).unwrap();
    let name = |table: u32| format!("t{table}");
    for table in 0..TABLES {
        store.table(&name(table)).unwrap().put(b"k", &table.to_be_bytes()).unwrap();
    }
    let crashed = copy_of(device.as_ref(), device.size_bytes());
    let store = Store::open(vec![crashed.clone()], &existing(PAGE, 64)).unwrap();
    let report = store.report();
    let recovered = report.recovered.unwrap();
    assert!(recovered.more_memory_bytes > 0, "{recovered:?}");
    assert_eq!(report.memory_bytes, 64 * PAGE as u64 + recovered.more_memory_bytes);
    for table in 0..TABLES {
        let found = store.table(&name(table)).unwrap().get(b"k").unwrap();
        assert_eq!(found.unwrap(), table.to_be_bytes(), "{table}");
    }
    store.close().unwrap();
    // Once closed, the store needs only the memory that was given. So many tables can be open at
    // most, and these can be used.
    let store = Store::open(vec![crashed.clone()], &existing(PAGE, 64)).unwrap();
    assert_eq!(store.report().memory_bytes, 64 * PAGE as u64);
    let mut opened = Vec::new();
    let refused = loop {
        match store.table(&name(opened.len() as u32)) {
            Ok(table) => opened.push(table),
            Err(error) => break error,
        }
    };
    assert_eq!((refused.kind(), opened.len()), (ErrorKind::NoMemory, 31), "{refused}");
    assert!(refused.to_string().contains("tables are open"), "{refused}");
    assert_eq!(store.table("new").unwrap_err().kind(), ErrorKind::NoMemory);
    for (table, number) in opened.iter().zip(0u32..) {
        for key in 0..50 {
            table.put(&[key], &number.to_be_bytes()).unwrap();
        }
        assert_eq!(table.get(&[7]).unwrap().unwrap(), number.to_be_bytes());
    }
    drop(opened);
    store.close().unwrap();
    common::assert_sound(&[crashed], PAGE);
}
