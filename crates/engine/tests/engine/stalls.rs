//! Tests what delays commits, in virtual time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{existing, key, options, ram};
use qpair_block::time::SimClock;
use qpair_block::{BlockDevice, DelayDevice, DelayOptions, FaultDevice, FaultOptions, Op};
use qpair_engine::{
    Durability, ErrorKind, Isolation, Runtime, Store, StoreOptions, TransactionOptions,
};
use qpair_sim_block::{SimDevice, SimLatency, SimOptions};

fn stepped(options: StoreOptions, seed: u64, clock: &SimClock) -> StoreOptions {
    StoreOptions { workers: 2, runtime: Runtime::Stepped { seed, clock: clock.clone() }, ..options }
}

/// A lookup waits for a slow read when a checkpoint begins. Commits do not wait: only the end of
/// the checkpoint depends on that read, not its instant.
#[test]
fn a_read_under_way_does_not_keep_the_barrier_of_a_checkpoint_closed() {
    const READ_NS: u64 = 200_000_000;
    for seed in 0..20 {
        let clock = SimClock::new();
        let device = SimDevice::new(SimOptions::new(seed, &clock)).unwrap();
        let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(device.clone())];
        let store = Store::open(members, &stepped(options(512, 128), seed, &clock)).unwrap();
        let (cold, hot) = (store.table("cold").unwrap(), store.table("hot").unwrap());
        (0..3000).for_each(|i| _ = cold.put(&key(i), &[1; 40]).unwrap());
        hot.put(b"key", b"value").unwrap();
        device.set_latency(SimLatency { read_ns: READ_NS, spike: 0.0, ..SimLatency::default() });
        let lookups: Vec<_> = (0..4)
            .map(|i| {
                let cold = cold.task();
                store.spawn(move || async move { cold.get(&key(700 * i)).await })
            })
            .collect();
        let (over, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (task, stop, times, now) = (hot.task(), over.clone(), ends.clone(), clock.clone());
        let puts = store.spawn(move || async move {
            while !stop.load(Ordering::Relaxed) {
                times.lock().unwrap().push(now.now_ns());
                task.put(b"key", b"value").await.unwrap();
            }
            times.lock().unwrap().push(now.now_ns());
        });
        // The puts continue, so that the clock does not jump to the ends of the reads.
        for _ in 0..50 {
            let _ = store.step();
        }
        let begun = clock.now_ns();
        store.checkpoint().unwrap();
        assert!(clock.now_ns() - begun > READ_NS / 2, "no read was under way");
        over.store(true, Ordering::Relaxed);
        puts.join().unwrap();
        let ends = std::mem::take(&mut *ends.lock().unwrap());
        let longest = ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(longest < READ_NS / 20, "seed {seed}: a put took {longest} ns");
        for lookup in lookups {
            assert_eq!(lookup.join().unwrap().unwrap().unwrap(), [1; 40]);
        }
        drop((cold, hot));
        store.close().unwrap();
        let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(device)];
        let store = Store::open(members, &stepped(existing(512, 128), seed, &clock)).unwrap();
        let cold = store.table("cold").unwrap();
        assert_eq!(cold.range(..).unwrap().map(Result::unwrap).count(), 3000);
    }
}

/// A serializable transaction has read a range that takes long to read again. Other commits do not
/// wait for that.
#[test]
fn a_serializable_range_keeps_nobody_waiting_while_it_is_compared() {
    for seed in 0..10 {
        let clock = SimClock::new();
        let device = SimDevice::new(SimOptions::new(seed, &clock)).unwrap();
        device.set_latency(SimLatency { spike: 0.0, ..SimLatency::default() });
        let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(device.clone())];
        let store = Store::open(members, &stepped(options(512, 128), seed, &clock)).unwrap();
        let (cold, hot) = (store.table("cold").unwrap(), store.table("hot").unwrap());
        (0..3000).for_each(|i| _ = cold.put(&key(i), &[1; 40]).unwrap());
        hot.put(b"key", b"value").unwrap();
        let options =
            TransactionOptions { isolation: Isolation::Serializable, ..Default::default() };
        let (tx, of, result, more) = (store.task(), cold.clone(), hot.clone(), hot.task());
        let mut transaction = tx.begin_with(&options);
        let (over, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (task, stop, times, now) = (hot.task(), over.clone(), ends.clone(), clock.clone());
        let sum = store.spawn(move || async move {
            let (mut range, mut sum) = (transaction.range(&of, ..)?, 0u64);
            while let Some((_, value)) = range.next().await? {
                sum += u64::from(value[0]);
            }
            drop(range);
            // So many keys that those of the commits since are no longer kept, and all that was
            // read is compared.
            for i in 0..200 {
                more.put(&[i; 80], b"").await?;
            }
            transaction.put(&result, b"sum", &sum.to_be_bytes()).await?;
            let begun = now.now_ns();
            transaction.commit().await?;
            Ok::<_, qpair_engine::Error>((sum, now.now_ns() - begun))
        });
        let now = clock.clone();
        let puts = store.spawn(move || async move {
            while !stop.load(Ordering::Relaxed) {
                times.lock().unwrap().push(now.now_ns());
                task.put(b"key", b"value").await.unwrap();
            }
        });
        let (sum, commit_ns) = sum.join().unwrap().unwrap();
        over.store(true, Ordering::Relaxed);
        puts.join().unwrap();
        assert_eq!(sum, 3000);
        let ends = std::mem::take(&mut *ends.lock().unwrap());
        let longest = ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(longest < commit_ns / 3, "seed {seed}: a put took {longest} of {commit_ns} ns");
        // A read and a concurrent write of the same record still conflict.
        let mut transaction = store.begin_with(&options);
        assert_eq!(transaction.range(&cold, ..).unwrap().count(), 3000);
        transaction.put(&hot, b"sum", b"").unwrap();
        cold.put(&key(3001), &[1; 40]).unwrap();
        assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Conflict);
        drop((cold, hot));
        store.close().unwrap();
    }
}

/// Concurrent commits with large values share flushes. A regression: each made its own flush, one
/// after the other.
#[test]
fn commits_with_large_values_share_flushes() {
    const TASKS: u64 = 64;
    for seed in 0..5 {
        let clock = SimClock::new();
        let device = SimDevice::new(SimOptions::new(seed, &clock)).unwrap();
        let device = FaultDevice::new(Arc::new(device), FaultOptions::default()).unwrap();
        let control = device.control();
        let members: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(device)];
        let store = Store::open(members, &stepped(options(512, 256), seed, &clock)).unwrap();
        let table = store.table("t").unwrap();
        table.put(b"key", b"value").unwrap();
        let before = control.seen(Op::Flush);
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let table = table.task();
                store.spawn(move || async move { table.put(&task.to_be_bytes(), &[1; 2000]).await })
            })
            .collect();
        tasks.into_iter().for_each(|task| _ = task.join().unwrap().unwrap());
        let flushes = control.seen(Op::Flush) - before;
        assert!(flushes < TASKS / 4, "seed {seed}: {flushes} flushes for {TASKS} commits");
        drop(table);
        store.close().unwrap();
    }
}

/// A task that waits for the device is woken by the end of the request. A regression: such tasks
/// polled instead, and made tens of thousands of turns.
#[test]
fn waits_for_the_device_keep_no_worker_awake() {
    let delays = DelayOptions { write_us: 20_000, ..DelayOptions::default() };
    let device: Arc<dyn BlockDevice> = Arc::new(DelayDevice::new(ram(), delays).unwrap());
    let options = StoreOptions {
        workers: 1,
        versions_bytes_max: 256 << 10,
        history_bytes_max: 64 << 20,
        ..options(4096, 256)
    };
    let store = Store::open(vec![device], &options).unwrap();
    let table = store.table("t").unwrap();
    let of = |i: u32| (key(i), vec![1; 1000]);
    table.bulk_load((0..3000).map(|i| Ok(of(i)))).unwrap();
    let snapshot = store.snapshot().unwrap();
    let turns = || store.metrics().unwrap().worker_turn_us.count();
    let quick =
        TransactionOptions { durability: Durability::Async, ..TransactionOptions::default() };
    let (mut of_changes, mut of_checkpoints) = (0, 0);
    for turn in 0..10 {
        let before = turns();
        for part in 0..10 {
            // Older values are made faster than the device stores them, and pages leave memory.
            let change = store.transact_with(&quick, |tx| {
                (0..20).try_for_each(|i| {
                    tx.put(&table, &key((turn * 200 + part * 20 + i) * 7 % 3000), &[2; 1000])
                })
            });
            change.unwrap();
        }
        let between = turns();
        store.checkpoint().unwrap();
        of_changes += between - before;
        of_checkpoints += turns() - between;
    }
    assert!(store.metrics().unwrap().history_bytes > 0, "nothing went to the device");
    assert!(of_changes < 20_000, "{of_changes} turns in changes");
    assert!(of_checkpoints < 5000, "{of_checkpoints} turns in checkpoints");
    drop(snapshot);
}
