//! Reads return durable data only: a power cut undoes no commit whose data a read has returned.

use std::sync::{Arc, Mutex};

use crate::common::{existing, options};
use qpair_block::time::SimClock;
use qpair_block::{BlockDevice, FaultDevice, FaultOptions, Op};
use qpair_engine::{
    Durability, Error, ErrorKind, Result, Runtime, Store, StoreOptions, TaskTable,
    TransactionOptions, yield_now,
};
use qpair_sim_block::{SimDevice, SimOptions};

const NEW: &[u8] = b"new";

fn stepped(options: StoreOptions, seed: u64, clock: &SimClock) -> StoreOptions {
    StoreOptions { workers: 2, runtime: Runtime::Stepped { seed, clock: clock.clone() }, ..options }
}

/// The ways in which a program can read a record.
const WAYS: [&str; 7] = [
    "get",
    "range",
    "a snapshot's get",
    "a snapshot's range",
    "a transaction that read a key",
    "a transaction that read a range",
    "an error of a closure",
];

async fn read(
    store: &Store,
    table: &TaskTable,
    way: usize,
    durability: Durability,
) -> Result<Option<Vec<u8>>> {
    let (tx, of) = (store.task(), store.table("t")?);
    let options = TransactionOptions { durability, ..TransactionOptions::default() };
    Ok(match way {
        0 => table.get(b"key").await?,
        1 => table.range(..)?.next().await?.map(|record| record.1),
        2 => tx.snapshot()?.get(&of, b"key").await?,
        3 => tx.snapshot()?.range(&of, ..)?.next().await?.map(|record| record.1),
        4 => {
            let mut transaction = tx.begin_with(&options);
            let value = transaction.get(&of, b"key").await?;
            transaction.commit().await?;
            value
        }
        5 => {
            let mut transaction = tx.begin_with(&options);
            let record = transaction.range(&of, ..)?.next().await?;
            transaction.commit().await?;
            record.map(|record| record.1)
        }
        _ => {
            let mut seen = None;
            let outcome = tx
                .transact_with(&options, async |transaction| {
                    seen = transaction.get(&of, b"key").await?;
                    Err::<(), Error>(store.table("").unwrap_err())
                })
                .await;
            assert!(outcome.is_err());
            seen
        }
    })
}

/// For many power cuts and each way to read, counts how often a read returned a record that was
/// lost, and how often the record survived.
fn lost(read_non_durable: bool, durability: Durability) -> ([u32; WAYS.len()], [u32; WAYS.len()]) {
    let (mut lost, mut kept) = ([0; WAYS.len()], [0; WAYS.len()]);
    for (way, seed) in (0..WAYS.len()).flat_map(|way| (0..40).map(move |seed| (way, seed))) {
        let clock = SimClock::new();
        let device_options = SimOptions::new(seed, &clock);
        let power = device_options.power.clone();
        let device = SimDevice::new(device_options).unwrap();
        let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(device.clone())];
        let made = StoreOptions { read_non_durable, ..options(512, 96) };
        let store = Store::open(members, &stepped(made, seed, &clock)).unwrap();
        let table = store.table("t").unwrap();
        table.put(b"key", b"old").unwrap();
        let task = table.task();
        drop(store.spawn(move || async move { task.put(b"key", NEW).await }));
        let saw = Arc::new(Mutex::new(false));
        let (seen, of, task) = (saw.clone(), store.clone(), table.task());
        drop(store.spawn(move || async move {
            while !*seen.lock().unwrap() {
                let value = read(&of, &task, way, durability).await.unwrap();
                *seen.lock().unwrap() = value.as_deref() == Some(NEW);
                yield_now().await;
            }
        }));
        for _ in 0..fastrand::Rng::with_seed(seed).u32(1..120) {
            let _ = store.step();
        }
        power.cut();
        let content = device.content();
        drop(table);
        store.crash();
        let after = SimDevice::over(SimOptions::new(seed, &clock), content).unwrap();
        let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(after)];
        let store = Store::open(members, &stepped(existing(512, 96), seed, &clock)).unwrap();
        let found = store.table("t").unwrap().get(b"key").unwrap().unwrap();
        match (*saw.lock().unwrap(), found == NEW) {
            (true, true) => kept[way] += 1,
            (true, false) => lost[way] += 1,
            (false, _) => {}
        }
        store.crash();
    }
    (lost, kept)
}

#[test]
fn a_power_cut_takes_back_nothing_that_was_read() {
    let (lost, kept) = lost(false, Durability::Sync);
    assert_eq!(lost, [0; WAYS.len()], "{WAYS:?}");
    assert!(kept.iter().all(|kept| *kept > 0), "{kept:?} of {WAYS:?}");
}

#[test]
fn who_asks_for_it_reads_ahead_of_that() {
    let (lost, _) = lost(true, Durability::Async);
    assert!(lost.iter().all(|lost| *lost > 0), "{lost:?} of {WAYS:?}");
}

#[test]
fn what_never_becomes_durable_is_an_error_to_read() {
    let device = FaultDevice::new(crate::common::ram(), FaultOptions::default()).unwrap();
    let (control, device) = (device.control(), Arc::new(device));
    let store = Store::open(vec![device], &options(512, 96)).unwrap();
    let (table, other) = (store.table("t").unwrap(), store.table("other").unwrap());
    other.put(b"key", b"old").unwrap();
    table.put(b"key", b"old").unwrap();
    control.fail_nth(Op::Write, 1);
    assert_eq!(table.put(b"key", NEW).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(table.get(b"key").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(table.range(..).unwrap().next().unwrap().is_err());
    assert!(store.snapshot().unwrap().get(&table, b"key").is_err());
    assert!(store.transact(|tx| tx.get(&table, b"key")).is_err());
    assert_eq!(other.get(b"key").unwrap().unwrap(), b"old");
    let ahead = TransactionOptions { durability: Durability::Async, ..Default::default() };
    assert_eq!(store.transact_with(&ahead, |tx| tx.get(&table, b"key")).unwrap().unwrap(), NEW);
}
