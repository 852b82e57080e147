//! Sorted loads, and readers of the table during a load.

use std::panic::AssertUnwindSafe;

use crate::common::{assert_sound, key, options, ram};
use qpair_engine::{Error, ErrorKind, Store, StoreOptions};

const PAGE: usize = 512;

/// A regression: the leaves of a load said that they had never changed, so older snapshots did not
/// look for the values that they had seen there.
#[test]
fn older_snapshots_keep_what_they_have_seen() {
    for records in [1, 5, 2000] {
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
        let table = store.table("t").unwrap();
        let seen = [key(3), key(500_000)];
        for key in &seen {
            table.put(key, b"before").unwrap();
        }
        let snapshot = store.snapshot().unwrap();
        let mut tx = store.begin();
        assert!(tx.get(&table, &seen[0]).unwrap().is_some());
        for key in &seen {
            table.delete(key).unwrap();
        }
        table.bulk_load((1..=records).map(|n| Ok((key(n), b"loaded".to_vec())))).unwrap();
        for key in &seen {
            assert_eq!(snapshot.get(&table, key).unwrap().as_deref(), Some(&b"before"[..]));
            assert_eq!(tx.get(&table, key).unwrap().as_deref(), Some(&b"before"[..]));
        }
        for reverse in [false, true] {
            let range = snapshot.range(&table, ..).unwrap();
            let range = if reverse { range.reverse() } else { range };
            let found = range.map(Result::unwrap).filter(|(_, value)| value == b"before");
            assert_eq!(found.count(), 2, "{records} records, reverse {reverse}");
        }
        let loaded = table.range(..).unwrap().map(Result::unwrap);
        assert_eq!(loaded.filter(|(_, value)| value == b"loaded").count(), records as usize);
        tx.rollback();
        drop((snapshot, table));
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}

/// A load is refused if the table was changed since the load began, even if the table is empty
/// again.
#[test]
fn a_table_that_was_changed_meanwhile_is_refused() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    let task = table.task();
    let outcome = store.spawn(move || async move {
        let mut loader = task.bulk_loader().await?;
        for n in 0..100 {
            loader.push(&key(n), b"loaded").await?;
        }
        task.put(&key(5), b"between").await?;
        task.delete(&key(5)).await?;
        loader.finish().await
    });
    assert_eq!(outcome.join().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(table.range(..).unwrap().count(), 0);
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// The caller's iterator runs on the caller's thread: it may read this store, wait for another
/// thread that changes it, and panic.
#[test]
fn records_come_from_the_callers_thread() {
    let device = ram();
    let store =
        Store::open(vec![device.clone()], &StoreOptions { workers: 1, ..options(PAGE, 256) });
    let store = store.unwrap();
    let (from, to) = (store.table("from").unwrap(), store.table("to").unwrap());
    let records = 10_000;
    from.bulk_load((0..records).map(|n| Ok((key(n), b"value".to_vec())))).unwrap();
    assert_eq!(to.bulk_load(from.range(..).unwrap()).unwrap(), u64::from(records));
    assert_eq!(to.range(..).unwrap().count(), records as usize);

    // On the only worker, the iterator would block the other thread's puts.
    let waiting = store.table("waiting").unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let from = &from;
        scope.spawn(move || {
            for n in 0..100 {
                from.put(&key(n), b"another").unwrap();
                sender.send((key(n), b"value".to_vec())).unwrap();
            }
        });
        assert_eq!(waiting.bulk_load(receiver.into_iter().map(Ok)).unwrap(), 100);
    });

    let broken = store.table("broken").unwrap();
    let panics = std::panic::catch_unwind(AssertUnwindSafe(|| {
        broken.bulk_load((0..50_000).map(|n| {
            assert!(n < 40_000, "as a test may");
            Ok((key(n), b"value".to_vec()))
        }))
    }));
    assert!(panics.is_err());
    assert_eq!(broken.range(..).unwrap().count(), 0);
    let kind = |outcome: Result<u64, Error>| outcome.unwrap_err().kind();
    assert_eq!(kind(from.bulk_load(std::iter::empty())), ErrorKind::Invalid);
    let falls = (0..records).rev().map(|n| Ok((key(n), b"value".to_vec())));
    assert_eq!(kind(broken.bulk_load(falls)), ErrorKind::Invalid);
    drop((from, to, waiting, broken));
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}
