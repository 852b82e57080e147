//! Transactions whose writes do not fit into their memory: they go to the device, and all else is
//! as ever.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use qpair_block::{BlockDevice, RamDevice, RamOptions};

use crate::common::{
    Device, SUPERBLOCKS, assert_sound, copy_of, existing, options, ram, read_bytes,
};
use qpair_engine::{
    Durability, ErrorKind, Isolation, Store, StoreOptions, Table, TransactionOptions,
};

const PAGE: usize = 512;
const FRAMES: u64 = 512;
const ROWS: u32 = 20_000;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn small() -> TransactionOptions {
    TransactionOptions { write_set_bytes_max: 16 << 10, ..TransactionOptions::default() }
}

fn key(i: u32) -> Vec<u8> {
    i.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()
}

fn content(table: &Table) -> Map {
    table.range(..).unwrap().map(Result::unwrap).collect()
}

/// Opens the store as a crash of the process leaves it now.
fn recovered(device: &Device, options: StoreOptions) -> (Store, Device) {
    let left = copy_of(device.as_ref(), device.size_bytes());
    (Store::open(vec![left.clone()], &options).unwrap(), left)
}

fn has_bit(device: &Device) -> bool {
    let superblocks = SUPERBLOCKS.map(|at| read_bytes(device.as_ref(), at, 4096));
    let word = |superblock: &[u8], at: usize| {
        u64::from_le_bytes(superblock[at..at + 8].try_into().unwrap())
    };
    let newest = superblocks.iter().max_by_key(|superblock| word(superblock, 72)).unwrap();
    word(newest, 16) & 1 << 12 != 0
}

/// The reads of a large transaction itself, other readers, a crash and a close see what they would
/// see of a small one.
#[test]
fn a_large_transaction_is_as_a_small_one() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    let mut before = Map::new();
    for i in (0..ROWS).step_by(3) {
        table.put(&key(i), b"old").unwrap();
        before.insert(key(i), b"old".to_vec());
    }
    let old = store.snapshot().unwrap();
    let mut after = before.clone();
    let mut tx = store.begin_with(&small());
    for i in 0..ROWS {
        if i % 5 == 0 {
            tx.delete(&table, &key(i)).unwrap();
            after.remove(&key(i));
        } else {
            // Some values lie on pages of their own, and some are written twice.
            let value = vec![i as u8; if i % 1000 == 1 { 2000 } else { 20 }];
            tx.put(&table, &key(i), &value).unwrap();
            after.insert(key(i), value);
        }
        if i % 7 == 0 {
            tx.put(&table, &key(i / 2), b"again").unwrap();
            after.insert(key(i / 2), b"again".to_vec());
        }
    }
    for i in (0..ROWS).step_by(11) {
        assert_eq!(tx.get(&table, &key(i)).unwrap(), after.get(&key(i)).cloned());
        let found = tx.insert(&table, &key(i), b"no").unwrap();
        assert_eq!(found, !after.contains_key(&key(i)));
        if found {
            after.insert(key(i), b"no".to_vec());
        }
    }
    let seen: Map = tx.range(&table, ..).unwrap().map(Result::unwrap).collect();
    assert!(seen == after);
    let reverse: Vec<_> = tx.range(&table, ..).unwrap().reverse().map(Result::unwrap).collect();
    assert!(reverse.into_iter().rev().eq(after.clone()));
    assert!(content(&table) == before && !has_bit(&device), "others see nothing");
    tx.commit().unwrap();
    assert!(content(&table) == after && has_bit(&device));
    let then: Map = old.range(&table, ..).unwrap().map(Result::unwrap).collect();
    assert!(then == before);
    for i in (0..ROWS).step_by(13) {
        assert_eq!(old.get(&table, &key(i)).unwrap(), before.get(&key(i)).cloned());
    }
    let (again, left) = recovered(&device, existing(PAGE, FRAMES));
    assert!(content(&again.table("t").unwrap()) == after);
    again.close().unwrap();
    assert_sound(std::slice::from_ref(&left), PAGE);
    assert!(!has_bit(&left));
    drop((table, old));
    store.close().unwrap();
    assert!(!has_bit(&device));
    assert_sound(&[device], PAGE);
}

/// A snapshot that is taken while a large commit makes its changes sees none of them, although its
/// before-images do not fit into memory.
#[test]
fn readers_beside_a_large_commit_see_all_of_it_or_nothing() {
    let device = ram();
    let little = StoreOptions { versions_bytes_max: 256 << 10, ..options(PAGE, 2048) };
    let store = Store::open(vec![device.clone()], &little).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..ROWS {
        table.put(&key(i), &[0]).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = |seed: u64| {
            let (store, table, stop) = (&store, &table, &stop);
            move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = store.snapshot().unwrap();
                    let round = snapshot.get(table, &key(0)).unwrap();
                    for _ in 0..50 {
                        let i = random.u32(0..ROWS);
                        assert_eq!(snapshot.get(table, &key(i)).unwrap(), round, "key {i}");
                    }
                    let from = key(random.u32(0..ROWS));
                    for record in snapshot.range(table, &from[..]..).unwrap().take(200) {
                        assert_eq!(Some(record.unwrap().1), round);
                    }
                }
            }
        };
        let readers: Vec<_> = (0..2).map(|seed| scope.spawn(reader(seed))).collect();
        for round in 1..=4u8 {
            let mut tx = store.begin_with(&small());
            for i in 0..ROWS {
                tx.put(&table, &key(i), &[round]).unwrap();
            }
            tx.commit().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert!(content(&table).values().all(|value| *value == [4]));
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// Locks whose rows have left memory keep others waiting, and conflicts and deadlocks are found.
#[test]
fn rows_that_left_memory_are_locked() {
    let store = Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    table.put(&key(1), b"before").unwrap();
    let mut large = store.begin_with(&small());
    for i in 0..ROWS / 10 {
        large.lock(&table, &key(i)).unwrap();
    }
    let impatient = TransactionOptions {
        lock_timeout: Some(std::time::Duration::from_millis(1)),
        ..TransactionOptions::default()
    };
    let mut other = store.begin_with(&impatient);
    for i in (0..ROWS / 10).step_by(97) {
        assert_eq!(other.lock(&table, &key(i)).unwrap_err().kind(), ErrorKind::TimedOut);
    }
    other.put(&table, &key(ROWS), b"free").unwrap();
    other.commit().unwrap();
    // Whoever waits gets the lock when the large transaction ends, and sees its snapshot overtaken.
    let mut old = store.begin();
    assert_eq!(old.get(&table, b"nothing").unwrap(), None);
    let waiter = {
        let (tasks, table) = (store.task(), table.clone());
        store.spawn(move || async move {
            let mut tx = tasks.begin();
            let value = tx.get_for_update(&table, &key(1)).await.unwrap();
            tx.put(&table, &key(1), b"after").await.unwrap();
            tx.commit().await.unwrap();
            value
        })
    };
    while store
        .transactions()
        .iter()
        .all(|info| info.state != qpair_engine::TransactionState::Waiting)
    {
        std::thread::yield_now();
    }
    large.put(&table, &key(1), b"large").unwrap();
    large.commit().unwrap();
    assert_eq!(waiter.join().unwrap().as_deref(), Some(&b"large"[..]));
    assert_eq!(table.get(&key(1)).unwrap().as_deref(), Some(&b"after"[..]));
    assert_eq!(old.put(&table, &key(1), b"late").unwrap_err().kind(), ErrorKind::Conflict);
    old.rollback();
    // Two that lock the same rows in other orders: one of them is told.
    let mut first = store.begin_with(&small());
    for i in 0..1000 {
        first.put(&table, &key(i), b"first").unwrap();
    }
    let (tasks, other) = (store.task(), table.clone());
    let second = store.spawn(move || async move {
        let mut tx = tasks.begin_with(&small());
        for i in (500..2000).rev() {
            match tx.put(&other, &key(i), b"second").await {
                Ok(()) => {}
                Err(error) => return Err(error.kind()),
            }
        }
        tx.commit().await.map(drop).map_err(|error| error.kind())
    });
    while store
        .transactions()
        .iter()
        .all(|info| info.state != qpair_engine::TransactionState::Waiting)
    {
        std::thread::yield_now();
    }
    let outcome = (1000..2000).try_for_each(|i| first.put(&table, &key(i), b"first"));
    match outcome {
        Ok(()) => {
            assert_eq!(second.join().unwrap(), Err(ErrorKind::Conflict));
            first.commit().unwrap();
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict);
            first.rollback();
            second.join().unwrap().unwrap();
        }
    }
    drop(table);
    store.close().unwrap();
}

/// Drops the task of a large transaction at every point where it waits: nothing of it stays, or all
/// of it once its commit has a timestamp.
#[test]
fn a_large_transaction_that_is_dropped_is_whole_or_nothing() {
    let device = ram();
    let little = StoreOptions { versions_bytes_max: 64 << 10, ..options(PAGE, 256) };
    let store = Store::open(vec![device.clone()], &little).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..600 {
        table.put(&key(i), &[0; 30]).unwrap();
    }
    let tiny = TransactionOptions { write_set_bytes_max: 2000, ..TransactionOptions::default() };
    let (mut whole, mut polls) = (0, 0u32);
    while whole < 3 {
        let (tasks, other, tiny) = (store.task(), table.clone(), tiny.clone());
        let finished = store.spawn(move || async move {
            let mut run = pin!(async {
                let mut tx = tasks.begin_with(&tiny);
                for i in 0..600 {
                    tx.put(&other, &key(i), &[polls as u8; 30]).await?;
                }
                tx.commit().await.map(|_| true)
            });
            let mut left = polls;
            std::future::poll_fn(|context| match run.as_mut().poll(context) {
                Poll::Ready(outcome) => Poll::Ready(outcome),
                Poll::Pending if left == 0 => Poll::Ready(Ok(false)),
                Poll::Pending => {
                    left -= 1;
                    Poll::Pending
                }
            })
            .await
            .unwrap()
        });
        let finished = finished.join().unwrap();
        let mut tx = store.begin();
        let first = tx.get_for_update(&table, &key(0)).unwrap().unwrap();
        for i in 1..600 {
            assert_eq!(tx.get_for_update(&table, &key(i)).unwrap().as_ref(), Some(&first));
        }
        assert!(!finished || first[0] == polls as u8);
        whole += u32::from(finished);
        polls += 1 + polls / 20;
    }
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// A crash finds as much of the log as was written: a commit in parts is there, or no part of it
/// is.
#[test]
fn of_a_commit_in_parts_all_or_nothing_is_recovered() {
    let device = ram();
    let unchecked = StoreOptions { workers: 1, checkpoint_bytes: 1 << 30, ..options(PAGE, 2048) };
    let store = Store::open(vec![device.clone()], &unchecked).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..1000 {
        table.put(&key(i), &[9; 100]).unwrap();
    }
    let tiny = TransactionOptions {
        write_set_bytes_max: 4000,
        durability: Durability::Async,
        ..TransactionOptions::default()
    };
    for round in 0..4u8 {
        let mut tx = store.begin_with(&tiny);
        for i in 0..1000 {
            tx.put(&table, &key(i), &[round; 100]).unwrap();
        }
        tx.commit().unwrap();
        // The last parts may not be written yet.
        let (again, _) = recovered(&device, existing(PAGE, 2048));
        let values = content(&again.table("t").unwrap());
        let first = values.values().next().unwrap();
        assert!(values.len() == 1000 && values.values().all(|value| value == first));
        again.close().unwrap();
    }
    table.put(b"last", b"1").unwrap();
    let (again, _) = recovered(&device, existing(PAGE, 2048));
    assert_eq!(again.table("t").unwrap().get(&key(7)).unwrap().as_deref(), Some(&[3; 100][..]));
    again.close().unwrap();
    drop(table);
    store.close().unwrap();
}

/// A store may be closed, or run out of space, while a large transaction is open.
#[test]
fn a_close_and_a_full_device_take_nothing_but_the_transaction() {
    let fixed = RamOptions { size_bytes: 3 << 20, growable: false, ..RamOptions::default() };
    let device: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(fixed).unwrap());
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..1000 {
        table.put(&key(i), b"there").unwrap();
    }
    for _ in 0..3 {
        let mut tx = store.begin_with(&small());
        let full = (0..).find_map(|i| tx.put(&table, &key(i), &[1; 100]).err()).unwrap();
        assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
        // What was written before can still be read.
        assert_eq!(tx.get(&table, &key(5)).unwrap().as_deref(), Some(&[1; 100][..]));
        tx.rollback();
        table.put(b"room", b"again").unwrap();
    }
    let mut open = store.begin_with(&small());
    for i in 0..2000 {
        open.put(&table, &key(i), b"never").unwrap();
    }
    store.clone().close().unwrap();
    assert!(open.get(&table, &key(0)).is_err());
    assert!(open.commit().is_err());
    drop((table, store));
    assert_sound(std::slice::from_ref(&device), PAGE);
    let store = Store::open(vec![device], &existing(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    assert!((0..1000).all(|i| table.get(&key(i)).unwrap().as_deref() == Some(b"there")));
}

/// Savepoints before, between and after writes that went to the device.
#[test]
fn a_large_transaction_is_rolled_back_to_any_savepoint() {
    let store = Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..20 {
        let mut tx = store.begin_with(&small());
        let (mut model, mut points) = (Map::new(), Vec::new());
        for _ in 0..60 {
            for _ in 0..random.u32(0..150) {
                let key = key(random.u32(0..1000));
                if random.bool() {
                    tx.put(&table, &key, &[random.u8(..); 40]).unwrap();
                    let value = tx.get(&table, &key).unwrap().unwrap();
                    model.insert(key, value);
                } else {
                    assert_eq!(tx.delete(&table, &key).unwrap(), model.remove(&key).is_some());
                }
            }
            match random.u8(0..3) {
                0 => points.push((tx.savepoint().unwrap(), model.clone())),
                1 if !points.is_empty() => {
                    points.truncate(random.usize(0..points.len()) + 1);
                    let (point, then) = &points[points.len() - 1];
                    tx.rollback_to(point).unwrap();
                    model.clone_from(then);
                }
                _ => {}
            }
            let seen: Map = tx.range(&table, ..).unwrap().map(Result::unwrap).collect();
            assert!(seen == model);
        }
        tx.commit().unwrap();
        assert!(content(&table) == model);
        table.delete_range(..).unwrap();
    }
    let mut tx = store.begin_with(&small());
    let refused = (0..10_000).find_map(|i| {
        tx.savepoint().unwrap();
        tx.put(&table, &key(i), &[1; 40]).err()
    });
    assert_eq!(refused.unwrap().kind(), ErrorKind::TooLarge);
    tx.rollback();
    drop(table);
    store.close().unwrap();
}

/// A serializable transaction notices what a large commit changed, and its own large commit is
/// validated.
#[test]
fn large_commits_are_serializable() {
    let store = Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    let reads = store.table("reads").unwrap();
    reads.put(b"read", b"0").unwrap();
    let strict = TransactionOptions { isolation: Isolation::Serializable, ..small() };
    for large in [false, true] {
        for changed in [false, true] {
            let mut reader = store.begin_with(&strict);
            assert!(reader.get(&reads, b"read").unwrap().is_some());
            assert_eq!(reader.range(&reads, &b"s"[..]..).unwrap().count(), 0);
            for i in 0..if large { 2000 } else { 1 } {
                reader.put(&table, &key(i), b"of the reader").unwrap();
            }
            let mut writer = store.begin_with(&small());
            for i in 10_000..12_000 {
                writer.put(&table, &[&[0][..], &key(i)].concat(), b"x").unwrap();
            }
            if changed {
                writer.put(&reads, b"read", b"1").unwrap();
            }
            writer.commit().unwrap();
            let outcome = reader.commit().map(drop).map_err(|error| error.kind());
            assert_eq!(outcome, if changed { Err(ErrorKind::Conflict) } else { Ok(()) });
        }
    }
    drop((table, reads));
    store.close().unwrap();
}
