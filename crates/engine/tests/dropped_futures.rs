//! Futures that are dropped while they wait, as by a time-out: whatever they were at, nothing is left half done.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod common;

use std::future::{Future, poll_fn};
use std::ops::Bound;
use std::pin::{Pin, pin};
use std::task::Poll;

use common::{existing, options, ram};
use qpair_engine::{Store, StoreOptions, yield_now};

const PAGE: usize = 512;

/// Polls once; the result, if it is there.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Whether it came to its end within so many polls, each in a turn of the worker.
async fn comes_within<T>(polls: u32, future: impl Future<Output = T>) -> bool {
    let mut future = pin!(future);
    for _ in 0..polls {
        if poll_once(future.as_mut()).await.is_some() {
            return true;
        }
        yield_now().await;
    }
    false
}

/// The first change of a store's life makes a checkpoint. Who dropped it left the gate shut: later changes waited for ever.
#[test]
fn the_first_change_is_dropped() {
    let mut dropped = 0;
    for polls in 0..60 {
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
        let table = store.table("t").unwrap();
        table.put(b"before", b"1").unwrap();
        drop(table);
        store.close().unwrap();

        let store = Store::open(vec![device.clone()], &existing(PAGE, 256)).unwrap();
        let table = store.table("t").unwrap();
        let tasks = table.task();
        let came = store
            .spawn(move || async move {
                let came = comes_within(polls, tasks.put(b"dropped", &[2; 2000])).await;
                tasks.put(b"after", b"3").await.unwrap();
                came
            })
            .join()
            .unwrap();
        dropped += u32::from(!came);
        // As a crash leaves it: what was acknowledged is there, whatever became of the other.
        let crashed = common::copy_of(device.as_ref(), device.size_bytes());
        drop(table);
        store.close().unwrap();
        for device in [crashed, device] {
            let store = Store::open(vec![device.clone()], &existing(PAGE, 256)).unwrap();
            let table = store.table("t").unwrap();
            assert_eq!(table.get(b"before").unwrap().as_deref(), Some(&b"1"[..]));
            assert_eq!(table.get(b"after").unwrap().as_deref(), Some(&b"3"[..]));
            let value = table.get(b"dropped").unwrap();
            assert!(value.is_none_or(|value| value == [2; 2000]), "{polls} polls");
            drop(table);
            store.close().unwrap();
            common::assert_sound(&[device], PAGE);
        }
    }
    assert!(dropped > 2, "dropped {dropped} times only");
}

/// A sorted load ends with a checkpoint. Who dropped that left the gate shut: no change came through any more.
#[test]
fn the_end_of_a_load_is_dropped() {
    let mut dropped = 0;
    for polls in 0..60 {
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
        let (table, loaded) = (store.table("t").unwrap(), store.table("loaded").unwrap());
        table.put(b"before", b"1").unwrap();
        let (tasks, loading) = (table.task(), loaded.task());
        let came = store
            .spawn(move || async move {
                let mut loader = loading.bulk_loader().await.unwrap();
                for key in 0..200u32 {
                    loader.push(&key.to_be_bytes(), &[9; 40]).await.unwrap();
                }
                let came = comes_within(polls, loader.finish()).await;
                assert!(comes_within(100_000, tasks.put(b"after", b"3")).await, "{polls} polls");
                came
            })
            .join()
            .unwrap();
        dropped += u32::from(!came);
        let count = loaded.range::<[u8], _>(..).unwrap().count();
        assert!(count == 0 || count == 200, "{count} records");
        assert_eq!(table.get(b"after").unwrap().as_deref(), Some(&b"3"[..]));
        drop((table, loaded));
        store.close().unwrap();
    }
    assert!(dropped > 2, "dropped {dropped} times only");
}

/// The next record of a range was waited for and dropped: the range was over, or went on behind it.
#[test]
fn a_range_goes_on_where_it_was() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    for key in 0..4000u32 {
        let len = if key % 400 == 7 { 1500 } else { 40 };
        table.put(&key.to_be_bytes(), &vec![key as u8; len]).unwrap();
    }
    drop(table);
    store.close().unwrap();

    let small = StoreOptions { workers: 1, ..existing(PAGE, 128) };
    let store = Store::open(vec![device], &small).unwrap();
    let table = store.table("t").unwrap();
    for kind in ["transaction", "snapshot", "table"] {
        let (tasks, of, table) = (store.task(), kind, table.clone());
        let read = store.spawn(move || async move {
            let mut dropped = 0;
            let mut keys = Vec::new();
            let all = (Bound::Unbounded, Bound::Unbounded);
            // Each next is polled once and dropped, some times; what a large value has read is lost with it.
            let mut tries = 0;
            macro_rules! read {
                ($range:expr) => {
                    loop {
                        let next = match tries {
                            0..3 => poll_once(pin!($range.next())).await,
                            _ => Some($range.next().await),
                        };
                        tries = if next.is_some() { 0 } else { tries + 1 };
                        match next {
                            Some(Ok(Some((key, value)))) => {
                                let number = u32::from_be_bytes(key.try_into().unwrap());
                                assert!(value.iter().all(|byte| *byte == number as u8));
                                keys.push(number);
                            }
                            Some(Ok(None)) => break,
                            Some(Err(error)) => panic!("{error}"),
                            None => dropped += 1,
                        }
                        if dropped % 7 == 3 {
                            yield_now().await;
                        }
                    }
                };
            }
            match of {
                "transaction" => {
                    let mut transaction = tasks.begin();
                    let mut range = transaction.range::<[u8], _>(&table, all).unwrap();
                    read!(range);
                }
                "snapshot" => {
                    let snapshot = tasks.snapshot().unwrap();
                    let mut range = snapshot.range::<[u8], _>(&table, all).unwrap();
                    read!(range);
                }
                _ => {
                    let table = table.task();
                    let mut range = table.range::<[u8], _>(all).unwrap();
                    read!(range);
                }
            }
            (keys, dropped)
        });
        let (keys, dropped) = read.join().unwrap();
        assert!(keys.iter().copied().eq(0..4000), "{kind}: {} records", keys.len());
        assert!(dropped > 10, "{kind}: dropped {dropped} times only");
    }
    drop(table);
    store.close().unwrap();
}
