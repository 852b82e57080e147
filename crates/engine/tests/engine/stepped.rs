//! Stores whose workers are stepped by the thread that opened them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::{assert_sound, existing, options, ram};
use qpair_block::time::SimClock;
use qpair_block::{FaultDevice, FaultOptions, Op, RamDevice, RamOptions};
use qpair_engine::{ErrorKind, Runtime, Step, Store, StoreOptions, yield_now};

fn stepped(options: StoreOptions, seed: u64) -> StoreOptions {
    StoreOptions {
        workers: 3,
        runtime: Runtime::Stepped { seed, clock: SimClock::new() },
        ..options
    }
}

#[test]
fn works_closes_and_opens_again() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &stepped(options(512, 96), 1)).unwrap();
    let table = store.table("t").unwrap();
    let mut model = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..200 {
        // Many tasks at once, with far more data than memory.
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (key, value) = (rng.u32(..2000), rng.u64(..));
                model.insert(key, value);
                let table = table.task();
                store.spawn(move || async move {
                    let value = [value.to_be_bytes(); 8].concat();
                    table.put(&key.to_be_bytes(), &value).await
                })
            })
            .collect();
        for task in tasks {
            task.join().unwrap().unwrap();
        }
        let key = rng.u32(..2000);
        assert_eq!(table.delete(&key.to_be_bytes()).unwrap(), model.remove(&key).is_some());
    }
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device], &stepped(existing(512, 96), 2)).unwrap();
    let table = store.table("t").unwrap();
    let found: Vec<_> = table.range(..).unwrap().map(|entry| entry.unwrap().0).collect();
    assert_eq!(found, model.keys().map(|key| key.to_be_bytes().to_vec()).collect::<Vec<_>>());
    assert!(store.statistics().unwrap().evictions > 0);
}

/// Returns the order in which twelve tasks on three workers make twenty steps each.
fn order(seed: u64) -> Vec<u32> {
    let store = Store::open(vec![ram()], &stepped(options(512, 96), seed)).unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..12)
        .map(|number| {
            let order = order.clone();
            store.spawn(move || async move {
                for _ in 0..20 {
                    order.lock().unwrap().push(number);
                    yield_now().await;
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join().unwrap());
    drop(store);
    Arc::into_inner(order).unwrap().into_inner().unwrap()
}

#[test]
fn the_seed_decides_the_order() {
    assert_eq!(order(7), order(7));
    assert_ne!(order(7), order(8));
}

#[test]
fn waiting_for_what_cannot_come_is_an_error() {
    let store = Store::open(vec![ram()], &stepped(options(512, 96), 1)).unwrap();
    let error = store.spawn(std::future::pending::<()>).join().unwrap_err();
    assert!(error.to_string().contains("deadlock"), "{error}");
    assert_eq!(store.step(), Step::Stuck);
    store.crash();
}

#[test]
fn a_crash_leaves_the_store_as_it_is() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &stepped(options(512, 96), 1)).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"key", b"value").unwrap();
    let task = table.task();
    let handle = store.spawn(move || async move {
        loop {
            task.put(b"another", b"value").await.unwrap();
            yield_now().await;
        }
    });
    for _ in 0..20 {
        assert_eq!(store.step(), Step::Progress);
    }
    store.crash();
    assert_eq!(handle.join().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(table.put(b"key", b"other").unwrap_err().kind(), ErrorKind::Closed);
    drop(table);
    let store = Store::open(vec![device], &stepped(existing(512, 96), 1)).unwrap();
    assert_eq!(store.table("t").unwrap().get(b"key").unwrap().unwrap(), b"value");
}

#[test]
fn a_task_may_be_the_last_to_let_go() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &stepped(options(512, 96), 1)).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"key", b"value").unwrap();
    let (task, last) = (table.task(), store.clone());
    let handle = store.spawn(move || async move {
        yield_now().await;
        drop((task, last));
    });
    drop((store, table));
    handle.join().unwrap();
    let store = Store::open(vec![device], &stepped(existing(512, 96), 1)).unwrap();
    assert_eq!(store.table("t").unwrap().get(b"key").unwrap().unwrap(), b"value");
}

/// Large values that are put and replaced while an image is written give their pages to the image.
/// Recovery then finds the values in a log, and their pages in the image. An image whose flush
/// failed may count as well.
#[test]
fn large_values_come_and_go_while_images_are_written() {
    const KEYS: u8 = 4;
    for seed in 0..80 {
        let mut random = fastrand::Rng::with_seed(seed);
        let below = RamDevice::new(RamOptions {
            size_bytes: 1280 << 10,
            growable: false,
            ..RamOptions::default()
        });
        let device = FaultDevice::new(Arc::new(below.unwrap()), FaultOptions::default()).unwrap();
        let (control, device) = (device.control(), Arc::new(device));
        // Without a log, and with a record whose flush fails.
        let fails = seed % 2 == 0;
        let small = StoreOptions {
            log: !fails,
            checkpoint_bytes: 16 << 10,
            log_segment_bytes: 8 << 10,
            ..options(512, 96)
        };
        let store = Store::open(vec![device.clone()], &stepped(small.clone(), seed)).unwrap();
        let table = store.table("t").unwrap();
        for row in 0..3000_u32 {
            table.put(&row.to_be_bytes(), &[0; 40]).unwrap();
        }
        for client in 0..9_u64 {
            let (table, mut random) = (table.task(), fastrand::Rng::with_seed(seed << 8 | client));
            drop(store.spawn(move || async move {
                loop {
                    let value = random.u8(..);
                    let outcome = match client < 6 {
                        true => table.put(&[random.u8(..KEYS)], &[value; 1500]).await,
                        false => table.put(&random.u32(..3000).to_be_bytes(), &[value; 40]).await,
                    };
                    if outcome.is_err_and(|error| error.kind() != ErrorKind::NoSpace) {
                        return;
                    }
                    yield_now().await;
                }
            }));
        }
        let steps = random.u32(500..6000);
        for step in 0..steps {
            if fails && step + 400 == steps {
                control.fail_nth(Op::Flush, 2);
                let _ = store.checkpoint();
            }
            let _ = store.step();
        }
        assert_eq!(store.is_read_only(), fails, "seed {seed}");
        store.crash();
        control.heal();
        drop(table);
        let store = Store::open(vec![device.clone()], &stepped(existing(512, 96), seed)).unwrap();
        let table = store.table("t").unwrap();
        for key in 0..KEYS {
            let value = table.get(&[key]).unwrap().unwrap_or_default();
            assert!(value.iter().all(|byte| *byte == value[0]), "seed {seed}");
        }
        drop(table);
        store.close().unwrap();
        assert_sound(&[device], 512);
    }
}
