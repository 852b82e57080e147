//! Drops futures while they wait, as a time-out does: no operation may be left half done. Also
//! polls futures only if their own waker was called, as `FuturesUnordered` does.

use crate::common;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{Device, existing, options, ram};
use qpair_engine::{ErrorKind, Store, StoreOptions, Table, yield_now};

const PAGE: usize = 512;

/// Returns a closed store with records by number. Every `large_every`th record has a large value.
fn filled(records: u32, large_every: u32) -> Device {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    for key in 0..records {
        let len = if key % large_every == 7 { 1500 } else { 40 };
        table.put(&key.to_be_bytes(), &vec![key as u8; len]).unwrap();
    }
    drop(table);
    store.close().unwrap();
    device
}

fn used_pages(store: &Store) -> u64 {
    let report = store.report();
    report.pages - report.free_pages
}

/// Polls a future once. Returns the result, if it is available.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Whether `future` completes within this many polls, each in a turn of the worker.
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

/// The first change of an incarnation begins the logs and makes a checkpoint. It can be dropped at
/// any point without leaving either half done.
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
        // After a crash, the acknowledged change is there, whatever happened to the other one.
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

/// Returns a store, a table with a record, and a table for a sorted load.
fn to_be_loaded(device: &Device) -> (Store, Table, Table) {
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let (table, loaded) = (store.table("t").unwrap(), store.table("loaded").unwrap());
    table.put(b"before", b"1").unwrap();
    (store, table, loaded)
}

/// A sorted load ends with a checkpoint. A regression: dropping the future at that point left the
/// barrier closed, and no change was possible any more.
#[test]
fn the_end_of_a_load_is_dropped() {
    let mut dropped = 0;
    for polls in 0..60 {
        let device = ram();
        let (store, table, loaded) = to_be_loaded(&device);
        let (tasks, loading) = (table.task(), loaded.task());
        let came = store
            .spawn(move || async move {
                let mut loader = loading.bulk_loader().await.unwrap();
                for key in 0..200u32 {
                    loader.push(&key.to_be_bytes(), &[9; 40]).await.unwrap();
                }
                let came = comes_within(polls, loader.finish()).await;
                tasks.put(b"after", b"3").await.unwrap();
                came
            })
            .join()
            .unwrap();
        dropped += u32::from(!came);
        let count = loaded.range(..).unwrap().count();
        assert!(count == 0 || count == 200, "{count} records");
        assert_eq!(table.get(b"after").unwrap().as_deref(), Some(&b"3"[..]));
        drop((table, loaded));
        store.close().unwrap();
    }
    assert!(dropped > 2, "dropped {dropped} times only");
}

/// Drops a load at each of its steps. A regression: the load kept its pages until the store was
/// reopened. A load whose push was dropped continued with pages that did not exist.
#[test]
fn a_load_is_dropped() {
    let mut dropped = 0;
    for polls in 1..60 {
        let device = ram();
        let (store, table, loaded) = to_be_loaded(&device);
        store.checkpoint().unwrap();
        let before = used_pages(&store);
        let loading = loaded.task();
        let came = store
            .spawn(move || async move {
                let mut loader = loading.bulk_loader().await.unwrap();
                for key in 0..2000u32 {
                    let len = match key {
                        1907 => 100_000,
                        _ if key % 100 == 7 => 1500,
                        _ => 40,
                    };
                    let value = vec![key as u8; len];
                    let key_bytes = key.to_be_bytes();
                    let pushed = loader.push(&key_bytes, &value);
                    if key != 1907 {
                        pushed.await.unwrap();
                    } else if !comes_within(polls, pushed).await {
                        for _ in 0..2 {
                            let key = (key + 1).to_be_bytes();
                            let refused = loader.push(&key, b"x").await.unwrap_err();
                            assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
                        }
                        match polls % 2 {
                            0 => drop(loader),
                            _ => {
                                let refused = loader.finish().await.unwrap_err();
                                assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
                            }
                        }
                        return false;
                    }
                }
                true
            })
            .join()
            .unwrap();
        dropped += u32::from(!came);
        assert_eq!(loaded.range(..).unwrap().count(), 0);
        store.checkpoint().unwrap();
        assert_eq!(used_pages(&store), before, "{polls} polls");
        loaded.put(b"after", b"3").unwrap();
        drop((table, loaded));
        store.close().unwrap();
        common::assert_sound(&[device], PAGE);
    }
    assert!(dropped > 2, "dropped {dropped} times only");
}

/// The future of a range's next record is dropped while it waits. The range must continue at that
/// record. A regression: it ended, or continued behind the record.
#[test]
fn a_range_goes_on_where_it_was() {
    let device = filled(4000, 400);

    let small = StoreOptions { workers: 1, ..existing(PAGE, 128) };
    let store = Store::open(vec![device], &small).unwrap();
    let table = store.table("t").unwrap();
    for kind in ["transaction", "snapshot", "table"] {
        let (tasks, of, table) = (store.task(), kind, table.clone());
        let read = store.spawn(move || async move {
            let mut dropped = 0;
            let mut keys = Vec::new();
            let all = ..;
            // Each future is polled once and dropped, several times. The pages of a large value
            // that it has read are lost with it.
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
                    let mut range = transaction.range(&table, all).unwrap();
                    read!(range);
                }
                "snapshot" => {
                    let snapshot = tasks.snapshot().unwrap();
                    let mut range = snapshot.range(&table, all).unwrap();
                    read!(range);
                }
                _ => {
                    let table = table.task();
                    let mut range = table.range(all).unwrap();
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

/// A future's own waker, as `FuturesUnordered` gives one.
struct Woken {
    woken: AtomicBool,
    task: Waker,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Relaxed);
        self.task.wake_by_ref();
    }
}

/// Awaits all futures. Each is polled only after it was woken.
async fn all_of<T>(futures: Vec<Pin<Box<dyn Future<Output = T>>>>) -> Vec<T> {
    let task = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    let woken = || Arc::new(Woken { woken: AtomicBool::new(true), task: task.clone() });
    let mut open: Vec<_> = futures.into_iter().map(|future| (future, woken())).collect();
    let mut results = Vec::new();
    poll_fn(|_| {
        open.retain_mut(|(future, woken)| {
            if !woken.woken.swap(false, Ordering::Relaxed) {
                return true;
            }
            let waker = Waker::from(woken.clone());
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => results.push(result),
                Poll::Pending => return true,
            }
            false
        });
        if open.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results
}

/// Futures with wakers of their own are woken. A regression: the worker woke the task but none of
/// the futures in it, and the task slept for ever.
#[test]
fn futures_with_wakers_of_their_own_are_woken() {
    let device = filled(3000, 100);

    let store = Store::open(vec![device], &existing(PAGE, 128)).unwrap();
    let table = store.table("t").unwrap();
    let (of, tasks) = (table.clone(), store.task());
    let gets = store.spawn(move || async move {
        let get = |key: u32| -> Pin<Box<dyn Future<Output = Option<Vec<u8>>>>> {
            let table = of.task();
            Box::pin(async move { table.get(&key.to_be_bytes()).await.unwrap() })
        };
        let found = all_of((0..3000).step_by(31).map(get).collect()).await;
        // Commit several values, some of them large.
        let put = |key: u32| -> Pin<Box<dyn Future<Output = Option<Vec<u8>>>>> {
            let (tasks, table) = (tasks.clone(), of.clone());
            Box::pin(async move {
                let mut transaction = tasks.begin();
                let len = if key.is_multiple_of(7) { 2000 } else { 30 };
                transaction.put(&table, &key.to_be_bytes(), &vec![1; len]).await.unwrap();
                transaction.commit().await.unwrap();
                None
            })
        };
        all_of((0..3000).step_by(53).map(put).collect()).await;
        found.into_iter().flatten().count()
    });
    assert_eq!(gets.join().unwrap(), 97);
    assert_eq!(table.get(&0u32.to_be_bytes()).unwrap().unwrap(), vec![1; 2000]);
    drop(table);
    store.close().unwrap();
}
