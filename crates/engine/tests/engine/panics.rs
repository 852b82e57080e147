//! A panic of the engine fails the store, and every caller gets the error; a panic of the program
//! ends only the task that panicked.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::common::{assert_sound, existing, key, options, ram, ram_of};
use qpair_block::time::SimClock;
use qpair_engine::{Canary, ErrorKind, Runtime, Store, StoreOptions};

const PAGE: usize = 512;
const FRAMES: u64 = 96;
const RECORDS: u32 = 1000;

fn value(i: u32) -> Vec<u8> {
    format!("value {i}").into_bytes()
}

/// Plants a panic and makes changes and reads in many tasks at once. Once one task gets the error,
/// all must.
fn falls(canary: Canary, runtime: impl Fn() -> Runtime) {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    (0..RECORDS).for_each(|i| _ = table.put(&key(2 * i), &value(i)).unwrap());
    drop(table);
    store.close().unwrap();

    let planted = StoreOptions {
        workers: 3,
        canary: Some(canary),
        runtime: runtime(),
        checkpoint_bytes: 16 << 10,
        ..existing(PAGE, FRAMES)
    };
    let store = Store::open(vec![device.clone()], &planted).unwrap();
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let failed = if let Ok(table) = store.table("t") {
        let tasks: Vec<_> = (0..12u32)
            .map(|client| {
                let (table, acknowledged) = (table.task(), acknowledged.clone());
                store.spawn(move || async move {
                    for i in 0..RECORDS {
                        let at = 2 * (i * 37 + client * 83) + 1;
                        table.put(&key(at), &value(i)).await?;
                        acknowledged.lock().unwrap().push((at, i));
                        table.get(&key(2 * (at % RECORDS))).await?;
                    }
                    Ok::<_, qpair_engine::Error>(())
                })
            })
            .collect();
        for task in tasks {
            // The tasks that panicked are gone. The others get the error, and none waits for ever.
            let kind = task.join().and_then(|outcome| outcome).unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::Closed | ErrorKind::Panicked), "{kind:?}");
        }
        for error in [
            table.put(&key(1), b"").unwrap_err(),
            table.get(&key(0)).unwrap_err(),
            table.delete(&key(0)).unwrap_err(),
            store.checkpoint().unwrap_err(),
            store.transact(|tx| tx.put(&table, &key(1), b"")).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Panicked, "{error}");
            assert!(error.to_string().contains("the engine panicked"), "{error}");
            assert!(error.way_out().is_some());
        }
        true
    } else {
        true
    };
    assert!(failed);
    store.close().unwrap_err();
    let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..RECORDS {
        assert_eq!(table.get(&key(2 * i)).unwrap(), Some(value(i)));
    }
    for (at, i) in acknowledged.lock().unwrap().iter() {
        let found = table.get(&key(*at)).unwrap();
        assert!(found.is_some(), "{at} was acknowledged as {i}");
    }
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn a_panic_of_the_engine_fails_the_store() {
    Canary::PANICS.into_iter().for_each(|canary| falls(canary, || Runtime::Threads));
}

#[test]
fn the_same_whatever_the_order() {
    for seed in 0..10 {
        let runtime = || Runtime::Stepped { seed, clock: SimClock::new() };
        Canary::PANICS.into_iter().for_each(|canary| falls(canary, runtime));
    }
}

#[test]
fn a_panic_of_the_program_ends_what_panicked() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    (0..10).for_each(|i| _ = table.put(&key(i), &value(i)).unwrap());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        store.transact::<()>(|tx| {
            tx.put(&table, &key(1), b"never").unwrap();
            panic!("of the program");
        })
    }));
    assert!(panicked.is_err());
    let (task, of) = (store.task(), table.clone());
    let handle = store.spawn(move || async move {
        task.transact::<()>(async |tx| {
            tx.put(&of, &key(2), b"never").await?;
            tx.get(&of, &key(3)).await?;
            panic!("of the program");
        })
        .await
    });
    assert_eq!(handle.join().unwrap_err().kind(), ErrorKind::Closed);
    // Progress is reported on the caller's thread.
    let told = catch_unwind(AssertUnwindSafe(|| {
        table.delete_range_with(key(5).., |_| -> ControlFlow<()> {
            panic!("of the program");
        })
    }));
    assert!(told.is_err());
    // The rows are unlocked, nothing of the transaction is visible, and the store works.
    for i in 0..5 {
        assert_eq!(table.get(&key(i)).unwrap(), Some(value(i)));
        table.put(&key(i), &value(i + 1)).unwrap();
    }
    store.checkpoint().unwrap();
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn a_store_that_fails_to_open_lets_go_of_its_devices() {
    for seed in 0..20 {
        let device = ram_of(64 << 20);
        let runtime = || Runtime::Stepped { seed, clock: SimClock::new() };
        let stepped = StoreOptions {
            workers: 3,
            runtime: runtime(),
            checkpoint_bytes: 8 << 20,
            ..options(PAGE, 4 * FRAMES)
        };
        let store = Store::open(vec![device.clone()], &stepped).unwrap();
        let tables: Vec<_> = (0..3).map(|i| store.table(&format!("t{i}")).unwrap()).collect();
        for i in 0..RECORDS {
            tables[i as usize % 3].put(&key(i * 37 % RECORDS), &value(i)).unwrap();
        }
        drop(tables);
        store.crash();
        // One of the tasks of the recovery panics while others are still under way.
        let planted = StoreOptions {
            format: false,
            canary: Some(Canary::PanicInSplit),
            runtime: runtime(),
            ..stepped
        };
        let error = Store::open(vec![device.clone()], &planted).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked, "{error}");
        assert_eq!(Arc::strong_count(&device), 1, "seed {seed}");
        let store = Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap();
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}
