//! Concurrency: scans beside changes, and changes beside a close.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{assert_sound, existing, options, ram};
use qpair_engine::{ErrorKind, Store, TaskTable};

const PAGE: usize = 512;

/// The number of keys that exist throughout.
const STABLE: u32 = 600;

fn stable(i: u32) -> Vec<u8> {
    format!("{:05}", i * 10).into_bytes()
}

/// Puts and deletes keys between the stable ones until told to stop. Returns the number of
/// operations.
async fn churn(table: TaskTable, stop: Arc<AtomicBool>, seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        // Waves over neighbouring keys, so that leaves fill, split, empty and merge.
        let start = random.u32(0..STABLE * 10);
        let fill = random.bool();
        for i in start..start + 60 {
            let key = format!("{:05}/{}", i | 1, random.u8(0..8)).into_bytes();
            if fill {
                let len = if random.u8(0..50) == 0 { 1500 } else { random.usize(0..60) };
                table.put(&key, &vec![seed as u8; len]).await.unwrap();
            } else {
                table.delete(&key).await.unwrap();
            }
            done += 1;
        }
    }
    done
}

/// Scans once, and checks that the keys are in order and unique, and that every stable key has its
/// value.
async fn scan(table: TaskTable, reverse: bool) -> u64 {
    let range = table.range(..).unwrap();
    let mut range = if reverse { range.reverse() } else { range };
    let (mut seen, mut last) = (0u32, None::<Vec<u8>>);
    let mut records = 0;
    while let Some((key, value)) = range.next().await.unwrap() {
        if let Some(last) = &last {
            assert!(if reverse { key < *last } else { key > *last }, "{key:?} after {last:?}");
        }
        if !key.contains(&b'/') {
            let expected = if reverse { STABLE - 1 - seen } else { seen };
            assert_eq!(key, stable(expected), "a stable key was missed");
            assert_eq!(value, b"stable");
            seen += 1;
        }
        last = Some(key);
        records += 1;
    }
    assert_eq!(seen, STABLE);
    records
}

#[test]
fn scans_beside_changes() {
    for frames in [64, 1024] {
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(PAGE, frames)).unwrap();
        let table = store.table("t").unwrap();
        for i in 0..STABLE {
            table.put(&stable(i), b"stable").unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let churners: Vec<_> = (0..6)
            .map(|seed| {
                let (table, stop) = (table.task(), stop.clone());
                store.spawn(move || churn(table, stop, seed))
            })
            .collect();
        let scanners: Vec<_> = (0..8)
            .map(|i| {
                let table = table.task();
                store.spawn(move || async move {
                    for round in 0..12 {
                        scan(table.clone(), (i + round) % 2 == 0).await;
                    }
                })
            })
            .collect();
        // Use the blocking iterator, too.
        for _ in 0..5 {
            let stable_keys = table
                .range(..)
                .unwrap()
                .map(Result::unwrap)
                .filter(|(key, _)| !key.contains(&b'/'));
            assert!(stable_keys.map(|(key, _)| key).eq((0..STABLE).map(stable)));
        }
        for scanner in scanners {
            scanner.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        let done: u64 = churners.into_iter().map(|churner| churner.join().unwrap()).sum();
        assert!(done > 0);
        drop(table);
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}

/// A store is closed while others change it: every acknowledged put is in it, and it is consistent.
/// A put that comes too late is refused.
#[test]
fn changes_beside_a_close() {
    for seed in 0..30u64 {
        let device = ram();
        let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
        let table = store.table("t").unwrap();
        for i in 0..500u32 {
            table.put(&i.to_be_bytes(), &[0; 30]).unwrap();
        }
        let started = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..8u64)
            .map(|task| {
                let (table, started) = (table.task(), started.clone());
                store.spawn(move || async move {
                    let mut random = fastrand::Rng::with_seed(seed * 100 + task);
                    let mut acknowledged = Vec::new();
                    started.fetch_add(1, Ordering::Relaxed);
                    for i in 0..20_000u32 {
                        let key = [&random.u32(..).to_be_bytes()[..], &[task as u8]].concat();
                        let len = if i % 50 == 7 { 1500 } else { 30 };
                        match table.put(&key, &vec![task as u8; len]).await {
                            Ok(_) => acknowledged.push((key, len)),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                                return acknowledged;
                            }
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        let outside = {
            let table = table.clone();
            std::thread::spawn(move || {
                let mut acknowledged = Vec::new();
                for i in 0..20_000u32 {
                    let key = format!("outside {i}").into_bytes();
                    match table.put(&key, &[9; 30]) {
                        Ok(_) => acknowledged.push((key, 30)),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                            break;
                        }
                    }
                }
                acknowledged
            })
        };
        while started.load(Ordering::Relaxed) < 8 {
            std::thread::yield_now();
        }
        drop(table);
        store.close().unwrap();
        let mut acknowledged: Vec<_> =
            tasks.into_iter().flat_map(|task| task.join().unwrap()).collect();
        acknowledged.extend(outside.join().unwrap());
        let report = assert_sound(std::slice::from_ref(&device), PAGE);
        let store = Store::open(vec![device], &existing(PAGE, 256)).unwrap();
        let table = store.table("t").unwrap();
        for (key, len) in &acknowledged {
            let found = table.get(key).unwrap().map(|value| value.len());
            assert_eq!(found, Some(*len), "seed {seed}");
        }
        assert!(report.tables[1].records >= 500);
    }
}
