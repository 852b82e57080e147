//! Many transactions at once: constant sums, stable snapshots, wait cycles, and dropped tasks.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use crate::common::{assert_sound, options, ram};
use qpair_engine::{
    ErrorKind, Isolation, Store, StoreOptions, Table, TaskStore, TransactionOptions,
    TransactionState, yield_now,
};

const PAGE: usize = 512;
const ACCOUNTS: u64 = 40;
const EACH: u64 = 1000;

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

fn account(index: u64) -> Vec<u8> {
    format!("account {index:04}").into_bytes()
}

/// Moves money between two accounts. An account without money is deleted.
async fn transfer(store: &TaskStore, table: &Table, random: &mut fastrand::Rng) {
    let (from, to) = (random.u64(0..ACCOUNTS), random.u64(0..ACCOUNTS));
    if from == to {
        return;
    }
    let (from, to, amount) = (account(from), account(to), random.u64(0..EACH));
    let early = random.bool();
    store
        .transact(async |tx| {
            if early {
                tx.lock(table, &from).await?;
                tx.lock(table, &to).await?;
            }
            let has = tx.get(table, &from).await?.map_or(0, |value| number(&value));
            let amount = amount.min(has);
            if has == amount {
                tx.delete(table, &from).await?;
            } else {
                tx.put(table, &from, &(has - amount).to_le_bytes()).await?;
            }
            let other = tx.get(table, &to).await?.map_or(0, |value| number(&value));
            if other + amount > 0 {
                tx.put(table, &to, &(other + amount).to_le_bytes()).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
}

#[test]
fn money_is_neither_made_nor_lost() {
    for frames in [64, 1024] {
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(PAGE, frames)).unwrap();
        let table = store.table("accounts").unwrap();
        for index in 0..ACCOUNTS {
            table.put(&account(index), &EACH.to_le_bytes()).unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..8)
            .map(|seed| {
                let (store_task, table, stop) = (store.task(), table.clone(), stop.clone());
                store.spawn(move || async move {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut done = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        transfer(&store_task, &table, &mut random).await;
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let (store_task, table) = (store.task(), table.clone());
                store.spawn(move || async move {
                    for round in 0..60 {
                        let snapshot = store_task.snapshot().unwrap();
                        let mut sums = Vec::new();
                        for pass in 0..3 {
                            let range = snapshot.range(&table, ..).unwrap();
                            let mut range = if pass == 1 { range.reverse() } else { range };
                            let mut seen = Vec::new();
                            while let Some(record) = range.next().await.unwrap() {
                                seen.push(record);
                            }
                            assert_eq!(
                                seen.iter().map(|(_, value)| number(value)).sum::<u64>(),
                                ACCOUNTS * EACH,
                                "reader {reader}, round {round}, pass {pass}"
                            );
                            if pass == 1 {
                                seen.reverse();
                            }
                            sums.push(seen);
                            yield_now().await;
                        }
                        assert!(sums.windows(2).all(|pair| pair[0] == pair[1]));
                        for (key, value) in &sums[0] {
                            let again = snapshot.get(&table, key).await.unwrap();
                            assert_eq!(again.as_ref(), Some(value));
                        }
                    }
                })
            })
            .collect();
        // Threads run beside the tasks.
        for round in 0..60 {
            let moved = store.transact(|tx| {
                let (a, b) = (account(round % ACCOUNTS), account((round + 7) % ACCOUNTS));
                let has = tx.get_for_update(&table, &a)?.map_or(0, |value| number(&value));
                let other = tx.get(&table, &b)?.map_or(0, |value| number(&value));
                tx.put(&table, &a, &(has + other).to_le_bytes())?;
                tx.delete(&table, &b)?;
                Ok(())
            });
            moved.unwrap();
            let snapshot = store.snapshot().unwrap();
            let records = snapshot.range(&table, ..).unwrap().map(Result::unwrap);
            assert_eq!(records.map(|(_, value)| number(&value)).sum::<u64>(), ACCOUNTS * EACH);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        let done: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert!(done > 0);
        assert!(store.transactions().is_empty());
        drop(table);
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}

#[test]
fn no_update_is_lost() {
    let store = Store::open(vec![ram()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    const TASKS: u64 = 6;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (store_task, table) = (store.task(), table.clone());
            store.spawn(move || async move {
                for _ in 0..100 {
                    store_task
                        .transact(async |tx| {
                            let value = tx.get(&table, b"counter").await?;
                            yield_now().await;
                            let next = value.map_or(0, |value| number(&value)) + 1;
                            tx.put(&table, b"counter", &next.to_le_bytes()).await
                        })
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join().unwrap());
    assert_eq!(number(&table.get(b"counter").unwrap().unwrap()), TASKS * 100);
}

#[test]
fn a_circle_of_waiting_is_found() {
    for size in [2, 3, 5] {
        let store = Store::open(vec![ram()], &options(PAGE, 256)).unwrap();
        let table = store.table("t").unwrap();
        let locked = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..size)
            .map(|index: u64| {
                let (store_task, table, locked) = (store.task(), table.clone(), locked.clone());
                store.spawn(move || async move {
                    let mut tx = store_task.begin();
                    tx.lock(&table, &account(index)).await.unwrap();
                    locked.fetch_add(1, Ordering::Relaxed);
                    while locked.load(Ordering::Relaxed) < size {
                        yield_now().await;
                    }
                    let outcome = tx.lock(&table, &account((index + 1) % size)).await;
                    match outcome {
                        Ok(()) => tx.commit().await.map(|_| true).unwrap(),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                            false
                        }
                    }
                })
            })
            .collect();
        let went_on = tasks.into_iter().map(|task| task.join().unwrap());
        let went_on = went_on.filter(|went_on| *went_on).count() as u64;
        // Transactions that close the cycle at the same time may all get the error; at least one
        // does.
        assert!(went_on < size, "{went_on} of {size}");
        assert!(store.transactions().is_empty());
    }
}

#[test]
fn who_waits_is_listed() {
    let store = Store::open(vec![ram()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    let named = TransactionOptions { name: Some("holder".into()), ..TransactionOptions::default() };
    let mut holder = store.begin_with(&named);
    holder.put(&table, b"x", b"1").unwrap();
    let (store_task, other) = (store.task(), table.clone());
    let waiter = store.spawn(move || async move {
        let mut tx = store_task.begin();
        tx.put(&other, b"x", b"2").await.unwrap();
        tx.commit().await.unwrap();
    });
    while store.transactions().iter().all(|info| info.state != TransactionState::Waiting) {
        std::thread::yield_now();
    }
    let open = store.transactions();
    let info = open.iter().find(|info| info.name.as_deref() == Some("holder")).unwrap();
    assert_eq!((info.locks, info.worker, info.state), (1, None, TransactionState::Active));
    assert!(info.write_set_bytes > 0);
    holder.commit().unwrap();
    waiter.join().unwrap();
    assert_eq!(table.get(b"x").unwrap().unwrap(), b"2");
}

#[test]
fn an_old_snapshot_is_given_up_when_older_values_outgrow_their_bound() {
    let options =
        StoreOptions { versions_bytes_max: 200 << 10, history_bytes_max: 0, ..options(4096, 256) };
    let store = Store::open(vec![ram()], &options).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"x", b"before").unwrap();
    let old = store.snapshot().unwrap();
    let named = TransactionOptions { name: Some("report".into()), ..TransactionOptions::default() };
    let mut report = store.begin_with(&named);
    report.get(&table, b"x").unwrap();
    for round in 0..100u32 {
        table.put(b"x", &[1; 900]).unwrap();
        table.put(&round.to_be_bytes(), &[1; 900]).unwrap();
    }
    assert_eq!(old.get(&table, b"x").unwrap().as_deref(), Some(&b"before"[..]));
    for _ in 0..1000 {
        table.put(b"x", &[2; 900]).unwrap();
    }
    let error = old.get(&table, b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotLost, "{error}");
    let error = report.get(&table, b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotLost);
    assert!(error.to_string().contains("report"), "{error}");
    let new = store.snapshot().unwrap();
    assert_eq!(new.get(&table, b"x").unwrap(), Some(vec![2; 900]));
}

/// Drops a task during a commit, at every point where it waits: the commit is made as a whole or
/// not at all, and its locks are released.
#[test]
fn a_commit_that_is_dropped_is_whole() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 64)).unwrap();
    let table = store.table("t").unwrap();
    for index in 0..600u32 {
        table.put(&index.to_be_bytes(), &[0; 100]).unwrap();
    }
    let mut whole = 0;
    for polls in 0..60u32 {
        let (store_task, other) = (store.task(), table.clone());
        let finished = store.spawn(move || async move {
            let mut tx = store_task.begin();
            for index in (0..600u32).step_by(37) {
                // The lengths differ, so that leaves split.
                let value = vec![polls as u8 + 1; 60 + polls as usize * 2];
                tx.put(&other, &index.to_be_bytes(), &value).await.unwrap();
            }
            let mut commit = pin!(tx.commit());
            let mut left = polls;
            std::future::poll_fn(|context| match commit.as_mut().poll(context) {
                Poll::Ready(outcome) => Poll::Ready(outcome.map(|_| true)),
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
        // The locks are released, whichever task completes the commit.
        let tag = |tx: &mut qpair_engine::Transaction, index: u32| {
            tx.get_for_update(&table, &index.to_be_bytes()).unwrap().unwrap()[0]
        };
        let mut tx = store.begin();
        let first = tag(&mut tx, 0);
        assert!((37..600u32).step_by(37).all(|index| tag(&mut tx, index) == first));
        assert!(!finished || first == polls as u8 + 1);
        whole += u32::from(finished);
    }
    assert!(whole > 0);
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn a_close_tells_those_who_wait_for_locks() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 64)).unwrap();
    let table = store.table("t").unwrap();
    let mut forgotten = store.begin();
    forgotten.put(&table, b"x", &[1; 3000]).unwrap();
    let (store_task, other) = (store.task(), table.clone());
    let waiter = store.spawn(move || async move {
        store_task.begin().put(&other, b"x", b"2").await.unwrap_err().kind()
    });
    while store.transactions().len() < 2 {
        std::thread::yield_now();
    }
    store.clone().close().unwrap();
    assert_eq!(waiter.join().unwrap(), ErrorKind::Closed);
    assert_eq!(forgotten.commit().unwrap_err().kind(), ErrorKind::Closed);
    drop((table, store));
    assert_sound(&[device], PAGE);
}

#[test]
fn a_transaction_that_begins_with_a_range_sees_one_point_only() {
    let store = Store::open(vec![ram()], &options(PAGE, 64)).unwrap();
    let table = store.table("counter").unwrap();
    table.put(b"count", &0u64.to_le_bytes()).unwrap();
    // The transaction records its ranges, which makes the time between a range's read of a leaf and
    // its end longest.
    let chosen =
        TransactionOptions { isolation: Isolation::Serializable, ..TransactionOptions::default() };
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (table, stop) = (table.clone(), stop.clone());
        std::thread::spawn(move || {
            for count in 1u64.. {
                table.put(b"count", &count.to_le_bytes()).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        })
    };
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (task, table, chosen) = (store.task(), table.clone(), chosen.clone());
            store.spawn(move || async move {
                for _ in 0..150_000 {
                    let mut tx = task.begin_with(&chosen);
                    let first = {
                        let mut range = tx.range(&table, ..).unwrap();
                        range.next().await.unwrap().unwrap().1
                    };
                    let again = tx.get(&table, b"count").await.unwrap().unwrap();
                    assert_eq!(number(&first), number(&again));
                }
            })
        })
        .collect();
    for _ in 0..150_000 {
        let mut tx = store.begin_with(&chosen);
        let first = tx.range(&table, ..).unwrap().next().unwrap().unwrap().1;
        let again = tx.get(&table, b"count").unwrap().unwrap();
        assert_eq!(number(&first), number(&again));
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}
