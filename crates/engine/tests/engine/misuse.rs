//! Invalid options, sizes, calls and tasks: each gets an error, and nothing is lost.
//!
//! Long, because one test for each misuse.

use crate::common;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::common::filled::{FRAMES, PAGE, filled, value};
use crate::common::{Device, assert_sound, existing, faulty, key, options, ram, reading};
use qpair_block::{DelayDevice, DelayOptions, IoError, RamDevice, RamOptions};
use qpair_engine::{
    Error, ErrorKind, Store, StoreOptions, TransactionState, VALUE_LEN_MAX, yield_now,
};

#[test]
fn options_that_cannot_be() {
    let open = |options: StoreOptions| Store::open(vec![ram()], &options).unwrap_err();
    let small = open(options(PAGE, 8));
    assert_eq!(small.kind(), ErrorKind::NoMemory);
    // The value that the error recommends is enough.
    let enough = small.way_out().unwrap().strip_prefix("give at least ").unwrap();
    let memory_bytes = qpair_block::parse_bytes(enough).unwrap();
    Store::open(vec![ram()], &StoreOptions { memory_bytes, ..options(PAGE, 8) }).unwrap();
    for (page_size, unit, depth) in [
        (500, 65536, 1),
        (256, 65536, 1),
        (131_072, 131_072, 1),
        (4096, 0, 1),
        (4096, 6144, 1),
        (4096, 65536, 0),
    ] {
        let options = StoreOptions {
            page_size,
            stripe_unit_bytes: unit,
            depth,
            memory_bytes: 64 << 20,
            ..options(PAGE, FRAMES)
        };
        assert_eq!(open(options).kind(), ErrorKind::Invalid, "{page_size} {unit} {depth}");
    }
    let overflow_table = StoreOptions { workers: usize::MAX, ..options(PAGE, FRAMES) };
    assert_eq!(open(overflow_table).kind(), ErrorKind::Invalid);
    let blocks = RamOptions { logical_block_bytes: 4096, ..RamOptions::default() };
    let device: Device = Arc::new(RamDevice::new(blocks).unwrap());
    let error = Store::open(vec![device], &options(PAGE, FRAMES)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn keys_and_values_too_long() {
    let store = Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    let longest = store.key_len_max();
    table.put(&vec![1; longest], b"fits").unwrap();
    let long = vec![1; longest + 1];
    assert_eq!(table.put(&long, b"").unwrap_err().kind(), ErrorKind::KeyTooLong);
    // Looking up a key that is too long to exist is not an error.
    assert_eq!(table.get(&long).unwrap(), None);
    assert!(!table.delete(&long).unwrap());
    let large = vec![1; VALUE_LEN_MAX + 1];
    assert_eq!(table.put(b"k", &large).unwrap_err().kind(), ErrorKind::ValueTooLong);
    assert_eq!(table.get(b"k").unwrap(), None);
    // Names are keys of the catalog.
    let longest = store.whole_key_len_max();
    for name in ["".to_owned(), "x".repeat(longest + 1)] {
        assert_eq!(store.table(&name).unwrap_err().kind(), ErrorKind::Invalid);
    }
    store.table(&"x".repeat(longest)).unwrap();
    let store = Store::open(vec![ram()], &options(4096, 64)).unwrap();
    assert_eq!(store.table(&"x".repeat(129)).unwrap_err().kind(), ErrorKind::Invalid);
    store.table(&"x".repeat(128)).unwrap();
}

#[test]
fn a_store_for_reading() {
    let device = ram();
    filled(&device, 100).close().unwrap();
    let store = Store::open(vec![device.clone()], &reading(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    assert!(store.is_read_only());
    for error in [
        table.put(b"a", b"1").unwrap_err(),
        table.delete(&key(1)).unwrap_err(),
        store.table("another").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ReadOnly);
    }
    assert!(store.existing_table("another").unwrap().is_none());
    assert_eq!(table.range(..).unwrap().count(), 100);
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn a_device_that_cannot_be_written() {
    let blank = RamDevice::new(RamOptions { read_only: true, ..RamOptions::default() }).unwrap();
    let error = Store::open(vec![Arc::new(blank)], &options(PAGE, FRAMES)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Io), "{error}");
}

/// Runs many more tasks than frames, all with pages in flight. That is slow, but every task
/// finishes.
#[test]
fn more_tasks_than_frames() {
    let delay = DelayOptions { read_us: 50, ..DelayOptions::default() };
    let delay: Device = Arc::new(DelayDevice::new(ram(), delay).unwrap());
    let store = filled(&delay, 5000);
    let table = store.table("t").unwrap();
    let tasks: Vec<_> = (0..1000u32)
        .map(|task| {
            let table = table.task();
            store.spawn(move || async move {
                for step in 0..5 {
                    let i = (task * 7919 + step * 104_729) % 5000;
                    assert_eq!(table.get(&key(i)).await.unwrap(), Some(value(i)));
                    if step == 2 {
                        table.put(&key(i), &value(i)).await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
    drop(table);
    store.close().unwrap();
    assert_sound(&[delay], PAGE);
}

#[test]
fn calls_in_the_wrong_place() {
    let store = filled(&ram(), 5000);
    let table = store.table("t").unwrap();
    // A blocking call on a worker, which would have to wait.
    let on_worker = {
        let table = table.clone();
        store.spawn(move || async move { table.get(&key(4000)) }).join().unwrap()
    };
    let error = on_worker.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.way_out().is_some());
    let checked = {
        let store = store.clone();
        store.clone().spawn(move || async move { store.check(&|_, _| ()) }).join().unwrap()
    };
    assert_eq!(checked.unwrap_err().kind(), ErrorKind::Invalid);
    // A task's call outside of the workers.
    let task = table.task();
    let key = key(1);
    let mut future = Box::pin(task.get(&key));
    let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it should not wait")
    };
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid);
    // A task's call on another store's worker.
    let other = Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
    let task = table.task();
    let outcome = other.spawn(move || async move { task.get(b"key").await }).join().unwrap();
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid);
    // With a large value, which goes to pages of its own first.
    let task = table.task();
    let outcome =
        other.spawn(move || async move { task.put(b"large", &[1; 5000]).await }).join().unwrap();
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid);
    let task = table.task();
    let mut future = Box::pin(task.put(b"large", &[1; 5000]));
    let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it should not wait")
    };
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Invalid);
    // The same in a transaction.
    let (of, to) = (store.task(), table.clone());
    let put = move || async move { of.begin().put(&to, b"large", &[1; 5000]).await };
    let (of, to) = (store.task(), table.clone());
    let small = move || async move {
        let mut tx = of.begin();
        tx.put(&to, b"small", b"1").await?;
        tx.commit().await.map(drop)
    };
    assert_eq!(other.spawn(put).join().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(other.spawn(small).join().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(table.get(b"large").unwrap(), None);
    assert_eq!(table.get(b"small").unwrap(), None);
    let empty =
        table.range((std::ops::Bound::Included(&b"b"[..]), std::ops::Bound::Excluded(&b"a"[..])));
    assert_eq!(empty.err().unwrap().kind(), ErrorKind::Invalid);
}

/// A regression: a refused blocking call on a worker ended the transaction and lost everything that
/// it had written.
#[test]
fn a_transaction_outlives_a_call_in_the_wrong_place() {
    let store = filled(&ram(), 5000);
    let table = store.table("t").unwrap();
    let mut tx = store.begin();
    tx.put(&table, b"first", b"1").unwrap();
    let of = table.clone();
    let refused = move || async move {
        let outcomes = (0..5000).step_by(50).map(|n| tx.insert(&of, &key(n), b"2").map(drop));
        let outcomes: Vec<_> = outcomes.collect();
        (tx, outcomes)
    };
    let (tx, outcomes) = store.spawn(refused).join().unwrap();
    let refused: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::Invalid), "{refused:?}");
    tx.commit().unwrap();
    assert_eq!(table.get(b"first").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Transaction ids belong to one store. A regression: a savepoint of another store cut off the
/// writes of this one.
#[test]
fn a_savepoint_of_another_store() {
    let open = || Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
    let (one, two) = (open(), open());
    let (a, b) = (one.table("t").unwrap(), two.table("t").unwrap());
    let (mut tx, mut other) = (one.begin(), two.begin());
    tx.put(&a, b"k", b"v").unwrap();
    let foreign = tx.savepoint().unwrap();
    other.put(&b, b"a key", b"a value that is longer").unwrap();
    other.savepoint().unwrap();
    assert_eq!(other.rollback_to(&foreign).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(other.get(&b, b"a key").unwrap().is_some());
}

/// A thread that creates a table waits for workers. A worker that waited for that thread in turn,
/// to open a table, would wait forever.
#[test]
fn tables_are_opened_in_tasks_while_others_are_made() {
    for workers in [1, 2] {
        let options = StoreOptions { workers, ..options(PAGE, 2 * FRAMES) };
        let store = Store::open(vec![ram()], &options).unwrap();
        store.table("t").unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..2 * workers)
            .map(|_| {
                let (of, stop) = (store.clone(), stop.clone());
                store.spawn(move || async move {
                    let mut number = 0;
                    while !stop.load(Ordering::Relaxed) {
                        // A table that is already open can be opened without waiting.
                        assert!(of.existing_table("t").unwrap().is_some());
                        number = (number + 1) % 60;
                        if let Err(error) = of.existing_table(&format!("n{number}")) {
                            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                        }
                        assert!(of.table(&format!("never {number}")).is_err());
                        assert!(of.drop_table("t").is_err());
                        yield_now().await;
                    }
                })
            })
            .collect();
        for number in 0..60 {
            store.table(&format!("n{number}")).unwrap();
            if number % 2 == 0 {
                store.drop_table(&format!("n{number}")).unwrap();
                assert!(store.existing_table(&format!("n{number}")).unwrap().is_none());
            }
        }
        stop.store(true, Ordering::Relaxed);
        tasks.into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(store.table_names().unwrap().len(), 31);
        store.close().unwrap();
    }
}

#[test]
fn a_task_that_waits_on_its_worker() {
    let store = filled(&ram(), 100);
    let of = store.clone();
    let outcome = store.spawn(move || async move {
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let later = of.spawn(move || async move {
            while !until.load(Ordering::Relaxed) {
                yield_now().await;
            }
        });
        let done = of.spawn(|| async { 7 });
        while !done.is_finished() {
            yield_now().await;
        }
        let refused = later.join().map_err(|error| error.kind());
        stop.store(true, Ordering::Relaxed);
        (refused, done.join().unwrap())
    });
    assert_eq!(outcome.join().unwrap(), (Err(ErrorKind::Invalid), 7));
}

#[test]
fn a_task_that_panics() {
    let store = filled(&ram(), 1000);
    let table = store.table("t").unwrap();
    let others: Vec<_> = (0..50u32)
        .map(|task| {
            let table = table.task();
            store.spawn(move || async move {
                for i in 0..100 {
                    assert_eq!(
                        table.get(&key((task + i) % 1000)).await.unwrap(),
                        Some(value((task + i) % 1000))
                    );
                    if task % 10 == 3 && i == 50 {
                        std::panic::resume_unwind(Box::new("on purpose"));
                    }
                }
            })
        })
        .collect();
    for (task, other) in others.into_iter().enumerate() {
        match other.join() {
            Ok(()) => assert_ne!(task % 10, 3),
            Err(error) => {
                assert_eq!(task % 10, 3);
                assert_eq!(error.kind(), ErrorKind::Closed);
            }
        }
    }
    // The panic occurs while the future is made, not while it runs.
    let made = store
        .spawn(|| -> std::future::Ready<()> { std::panic::resume_unwind(Box::new("on purpose")) });
    assert_eq!(made.join().unwrap_err().kind(), ErrorKind::Closed);
    for _ in 0..4 {
        assert_eq!(store.spawn(|| async { 7 }).join().unwrap(), 7);
    }
    drop(table);
    store.close().unwrap();
}

/// Drops tasks while their pages and large values are in flight: no frame is lost.
#[test]
fn tasks_that_are_dropped_in_flight() {
    let delay = DelayOptions { read_us: 200, write_us: 200, ..DelayOptions::default() };
    let device: Device = Arc::new(DelayDevice::new(ram(), delay).unwrap());
    let store = filled(&device, 4000);
    let table = store.table("t").unwrap();
    for i in 0..4 {
        table.put(format!("large {i}").as_bytes(), &[i; 9000]).unwrap();
    }
    for round in 0..300u32 {
        let table = table.task();
        let polls = round % 7;
        store
            .spawn(move || async move {
                let large = vec![round as u8; 9000];
                let (near, far) = (key(round * 13 % 4000), key(round * 977 % 4000));
                let mut futures: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> = vec![
                    Box::pin(async { drop(table.get(&near).await) }),
                    Box::pin(async { drop(table.get(b"large 2").await) }),
                    Box::pin(async { drop(table.get(&far).await) }),
                    Box::pin(async { drop(table.put(b"large 3", &large).await) }),
                    Box::pin(async { drop(table.delete(&near).await) }),
                ];
                for _ in 0..=polls {
                    std::future::poll_fn(|context| {
                        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
                        Poll::Ready(())
                    })
                    .await;
                    yield_now().await;
                }
            })
            .join()
            .unwrap();
    }
    // All frames are still available: large reads need many at once, and lookups all of the tree.
    for _ in 0..3 {
        for i in 0..3 {
            let found = table.get(format!("large {i}").as_bytes()).unwrap();
            assert_eq!(found, Some(vec![i; 9000]));
        }
        assert!(table.range(..).unwrap().map(Result::unwrap).count() > 3000);
    }
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device], &existing(PAGE, FRAMES)).unwrap();
    let report = store.check(&|_, _| ()).unwrap();
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(report.leaked_pages, 0);
}

/// Errors and tasks of one store do not affect another store of the process.
#[test]
fn a_closed_store_says_so() {
    let store = filled(&ram(), 100);
    let table = store.table("t").unwrap();
    let other = store.clone();
    let snapshot = store.snapshot().unwrap();
    let mut tx = store.begin();
    assert!(tx.get(&table, &key(1)).unwrap().is_some());
    let mut committed = store.begin();
    committed.put(&table, &key(2), b"new").unwrap();
    let committed = committed.commit().unwrap();
    let mut range = table.range(..).unwrap();
    assert!(range.next().unwrap().is_ok());
    let ran = Arc::new(AtomicBool::new(false));
    store.close().unwrap();
    let flag = ran.clone();
    let task = other.spawn(move || async move { flag.store(true, Ordering::Relaxed) });
    assert_eq!(task.join().unwrap_err().kind(), ErrorKind::Closed);
    assert!(!ran.load(Ordering::Relaxed));
    assert_eq!(other.clone().close().map_err(|error| error.kind()), Ok(()));
    // A transaction only gathers its writes, and is refused when it commits.
    let mut late = other.begin();
    let _ = late.put(&table, b"k", b"v");
    // This also applies to data that is still in memory.
    let refused = [
        table.put(&key(1), b"late").map(drop),
        table.delete(&key(1)).map(drop),
        table.get(&key(99)).map(drop),
        snapshot.get(&table, &key(1)).map(drop),
        tx.get(&table, &key(1)).map(drop),
        tx.get(&table, &key(2)).map(drop),
        table.range(..).and_then(|mut all| all.try_for_each(|of| of.map(drop))),
        other.table("t").map(drop),
        other.existing_table("none").map(drop),
        other.table_names().map(drop),
        other.snapshot().map(drop),
        other.drop_table("t"),
        other.checkpoint(),
        late.commit().map(drop),
        other.transact(|tx| tx.put(&table, b"k", b"v")),
    ];
    for (at, outcome) in refused.into_iter().enumerate() {
        assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::Closed), "call {at}");
    }
    // A range still returns the records that it has read, and then the error.
    assert_eq!(range.find_map(Result::err).unwrap().kind(), ErrorKind::Closed);
    committed.wait_durable().unwrap();
}

/// A device error other than EIO keeps its own kind.
#[test]
fn the_device_has_the_word() {
    let (device, _, control) = faulty();
    let store = filled(&device, 3000);
    let table = store.table("t").unwrap();
    control.set_error(IoError::NO_SPACE);
    control.fail_reads(true);
    assert_eq!(table.get(&key(1500)).unwrap_err().kind(), ErrorKind::NoSpace);
}

/// The last owner of a store is one of its own tasks: the store is closed even so, and marked
/// clean.
#[test]
fn a_store_whose_last_owner_is_a_task() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let task = table.task();
    let handle = store.spawn(move || async move {
        wait.recv().unwrap();
        for i in 0..500 {
            task.put(&key(i), &value(i)).await.unwrap();
        }
    });
    drop((table, store));
    go.send(()).unwrap();
    handle.join().unwrap();
    // The close continues in the background. Until it is done, the superblock says that the store
    // is open.
    let report = loop {
        match Store::open(vec![device.clone()], &reading(PAGE, FRAMES)) {
            Ok(store) => break store.check(&|_, _| ()).unwrap(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unclean),
        }
        std::thread::yield_now();
    };
    assert!(report.is_sound() && report.leaked_pages == 0);
    assert_eq!(report.tables[1].records, 500);
}

/// In the closure of a transaction, a call outside of the transaction would wait for the calling
/// thread itself.
#[test]
fn changes_beside_ones_own_transaction() {
    let device = common::ram();
    let store = Store::open(vec![device.clone()], &options(512, 256)).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"other", b"0").unwrap();
    let refused = |outcome: Result<(), Error>| {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.context().contains("wait for itself"), "{error}");
    };
    let large = [1; 3000];
    let outcome: Result<(), Error> = store.transact(|tx| {
        tx.put(&table, b"key", b"1")?;
        refused(table.put(b"key", b"2").map(drop));
        refused(table.put(b"key", &large).map(drop));
        refused(table.delete(b"key").map(drop));
        refused(store.transact(|inner| inner.put(&table, b"key", b"2")));
        refused(store.transact(|inner| {
            inner.put(&table, b"third", b"2")?;
            refused(table.put(b"third", b"3").map(drop));
            inner.lock(&table, b"key")
        }));
        // Other calls may change rows that the transaction has not changed.
        table.put(b"other", b"1")?;
        // Another thread waits for its turn.
        let waiting = table.clone();
        let waits = std::thread::spawn(move || waiting.put(b"key", b"3"));
        while !store.transactions().iter().any(|tx| tx.state == TransactionState::Waiting) {
            std::thread::yield_now();
        }
        drop(waits);
        Ok(())
    });
    outcome.unwrap();
    while table.get(b"key").unwrap().unwrap() != b"3" {
        std::thread::yield_now();
    }
    table.put(b"key", b"4").unwrap();
    assert_eq!(table.get(b"other").unwrap().unwrap(), b"1");
    assert_eq!(table.get(b"third").unwrap(), None);
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], 512);
}

/// A blocking call on a worker is refused even if all pages are in memory. Otherwise it would work
/// with little data only.
#[test]
fn blocking_calls_on_a_worker_are_refused_with_all_in_memory() {
    for log in [true, false] {
        let store =
            Store::open(vec![ram()], &StoreOptions { log, ..options(PAGE, FRAMES) }).unwrap();
        let table = store.table("t").unwrap();
        table.put(b"k", b"v").unwrap();
        assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
        let inside = (store.clone(), table.clone());
        let kinds = store.spawn(move || async move {
            let (store, table) = inside;
            let (snapshot, mut own) = (store.snapshot().unwrap(), store.begin());
            let range = table.range(..).unwrap().next().unwrap().map(|_| ());
            let of_snapshot = snapshot.range(&table, ..).unwrap().next().unwrap();
            [
                table.get(b"k").map(|_| ()),
                table.put(b"k", b"w").map(|_| ()),
                table.delete(b"k").map(|_| ()),
                range,
                snapshot.get(&table, b"k").map(|_| ()),
                of_snapshot.map(|_| ()),
                own.get(&table, b"k").map(|_| ()),
                own.lock(&table, b"k"),
                own.put(&table, b"k", b"w"),
                store.begin().commit().map(|_| ()),
            ]
            .map(|outcome| outcome.map_err(|error| error.kind()))
        });
        assert_eq!(kinds.join().unwrap(), [Err(ErrorKind::Invalid); 10], "log: {log}");
        assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
    }
}

/// A progress callback of a removal panics: the panic reaches the caller's thread, and the store
/// continues to work.
#[test]
fn a_panic_in_what_is_told_of_a_removal() {
    let store = Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..3000 {
        table.put(&key(i), b"v").unwrap();
    }
    let removal = std::panic::AssertUnwindSafe(|| {
        table.delete_range_with(.., |removed| panic!("at {removed}"))
    });
    let panic = std::panic::catch_unwind(removal).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>().unwrap(), "at 1000");
    assert_eq!(table.range(..).unwrap().count(), 2000);
    assert_eq!(table.delete_range(..).unwrap(), 2000);
    drop(table);
    store.close().unwrap();
}
