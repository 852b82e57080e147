//! Attacks on transactions whose writes go to the device: random operations against a model, power
//! cuts, a feed beside them, and what a rollback to a savepoint leaves behind.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qpair_block::time::SimClock;
use qpair_block::{RamDevice, RamOptions};
use qpair_sim_block::{SimDevice, SimOptions};

use crate::common::{Device, assert_sound, copy_of, encrypted, existing, options, ram, with_log};
use qpair_engine::{
    ErrorKind, Next, Runtime, Savepoint, Store, StoreOptions, Table, Transaction,
    TransactionOptions,
};

const PAGE: usize = 512;
const FRAMES: u64 = 256;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn limited(write_set_bytes_max: usize) -> TransactionOptions {
    TransactionOptions { write_set_bytes_max, ..TransactionOptions::default() }
}

fn content(table: &Table) -> Map {
    table.range(..).unwrap().map(Result::unwrap).collect()
}

/// Returns one of 400 keys; some are too long to be whole in a page.
fn key(random: &mut fastrand::Rng) -> Vec<u8> {
    let i = random.u32(0..400);
    let head = if i.is_multiple_of(7) { vec![b'l'; PAGE / 3] } else { Vec::new() };
    [head, i.wrapping_mul(2_654_435_761).to_be_bytes().to_vec()].concat()
}

/// Returns a value; some are on pages of their own.
fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = if random.u8(0..30) == 0 { 3 * PAGE } else { random.usize(0..60) };
    vec![random.u8(..); len]
}

fn bound(random: &mut fastrand::Rng) -> Bound<Vec<u8>> {
    let mut key = key(random);
    key.truncate(random.usize(0..=key.len()));
    match random.u8(0..3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Returns the bounds of a range that has a beginning before its end.
fn bounds(random: &mut fastrand::Rng) -> Bounds {
    loop {
        let bounds = (bound(random), bound(random));
        match &bounds {
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b))
                if a >= b => {}
            _ => return bounds,
        }
    }
}

fn assert_range(tx: &mut Transaction, table: &Table, model: &Map, random: &mut fastrand::Rng) {
    let bounds = bounds(random);
    let mut expected: Vec<_> =
        model.range(bounds.clone()).map(|(key, value)| (key.clone(), value.clone())).collect();
    let range = tx.range(table, bounds).unwrap();
    let mut both = Vec::new();
    match random.u8(0..3) {
        0 => {
            let most = random.usize(0..40);
            expected.truncate(most);
            both.extend(range.limit(most).map(Result::unwrap));
        }
        1 => {
            expected.reverse();
            both.extend(range.reverse().map(Result::unwrap));
        }
        _ => {
            let (mut range, mut back) = (range, Vec::new());
            while let Some(record) = if random.bool() { range.next() } else { range.next_back() } {
                let record = record.unwrap();
                let is_front = both.len() < expected.len() && expected[both.len()] == record;
                if is_front { both.push(record) } else { back.push(record) }
            }
            both.extend(back.into_iter().rev());
        }
    }
    assert!(both == expected);
}

/// Makes one random operation in a transaction and in the model.
fn step(tx: &mut Transaction, table: &Table, model: &mut Map, random: &mut fastrand::Rng) {
    let (key, value) = (key(random), value(random));
    match random.u8(0..24) {
        0..10 => {
            tx.put(table, &key, &value).unwrap();
            model.insert(key, value);
        }
        10..12 => {
            let inserted = tx.insert(table, &key, &value).unwrap();
            assert_eq!(inserted, !model.contains_key(&key));
            model.entry(key).or_insert(value);
        }
        12..15 => assert_eq!(tx.delete(table, &key).unwrap(), model.remove(&key).is_some()),
        15 => {
            let expected = model.get(&key).cloned();
            assert!(tx.compare_and_swap(table, &key, expected.as_deref(), Some(&value)).unwrap());
            model.insert(key, value);
        }
        16 if random.u8(0..6) == 0 => {
            let bounds = bounds(random);
            let gone: Vec<_> = model.range(bounds.clone()).map(|(key, _)| key.clone()).collect();
            assert_eq!(tx.delete_range(table, bounds).unwrap(), gone.len() as u64);
            gone.iter().for_each(|key| assert!(model.remove(key).is_some()));
        }
        16..19 => assert_range(tx, table, model, random),
        19 => tx.lock(table, &key).unwrap(),
        20 => assert_eq!(tx.get_for_update(table, &key).unwrap(), model.get(&key).cloned()),
        _ => assert_eq!(tx.get(table, &key).unwrap(), model.get(&key).cloned()),
    }
}

/// Compares transactions of every kind of operation with a model: with limits from a byte on, with
/// and without a log, encrypted, and with memory for few older values.
#[test]
fn limited_transactions_match_a_model() {
    for seed in 0..8u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut made = StoreOptions {
            workers: 1 + (seed % 2) as usize,
            log: seed != 5,
            checkpoint_bytes: 128 << 10,
            versions_bytes_max: if seed < 4 { 32 << 10 } else { 64 << 20 },
            history_bytes_max: if seed % 4 == 3 { 0 } else { 1 << 30 },
            ..options(PAGE, FRAMES)
        };
        if seed == 6 {
            made = encrypted(made);
        }
        let device = ram();
        let store = Store::open(vec![device.clone()], &made).unwrap();
        let table = store.table("t").unwrap();
        let mut committed = Map::new();
        for _ in 0..14 {
            let snapshot = store.snapshot().unwrap();
            let before = committed.clone();
            let mut tx = store.begin_with(&limited([1, 300, 2000, 16 << 10][random.usize(0..4)]));
            let mut points: Vec<(Savepoint, Map)> = Vec::new();
            let mut model = committed.clone();
            for _ in 0..random.usize(0..250) {
                match random.u8(0..40) {
                    0 => points.push((tx.savepoint().unwrap(), model.clone())),
                    1 if !points.is_empty() => {
                        points.truncate(random.usize(0..points.len()) + 1);
                        let (point, then) = &points[points.len() - 1];
                        tx.rollback_to(point).unwrap();
                        model.clone_from(then);
                    }
                    _ => step(&mut tx, &table, &mut model, &mut random),
                }
            }
            assert!(content(&table) == committed, "seed {seed}: others see nothing");
            if random.u8(0..4) == 0 {
                tx.rollback();
            } else {
                tx.commit().unwrap();
                committed = model;
            }
            assert!(content(&table) == committed, "seed {seed}");
            match snapshot.range(&table, ..).unwrap().collect::<Result<Map, _>>() {
                Ok(seen) => assert!(seen == before, "seed {seed}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::SnapshotLost),
            }
        }
        if made.log {
            let left = copy_of(device.as_ref(), device.size_bytes());
            let again = StoreOptions { format: false, ..made.clone() };
            let again = Store::open(vec![left], &again).unwrap();
            assert!(content(&again.table("t").unwrap()) == committed, "seed {seed}");
        }
        drop(table);
        store.close().unwrap();
        if made.encryption.is_none() {
            assert_sound(&[device], PAGE);
        }
    }
}

/// Cuts the power at any write: a large commit is there as a whole or not at all, and is there if
/// it was acknowledged.
#[test]
fn a_power_cut_leaves_whole_commits() {
    const ROWS: u32 = 300;
    let value = |i: u32, round: u8| vec![round; if i % 50 == 7 { 1500 } else { 20 }];
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let clock = SimClock::new();
        let disk =
            SimOptions { volatile_write_cache: random.bool(), ..SimOptions::new(seed, &clock) };
        let power = disk.power.clone();
        let device = SimDevice::new(disk).unwrap();
        let made = StoreOptions {
            workers: random.usize(1..3),
            runtime: Runtime::Stepped { seed, clock },
            checkpoint_bytes: if random.bool() { 32 << 10 } else { 1 << 30 },
            versions_bytes_max: if random.bool() { 16 << 10 } else { 16 << 20 },
            ..options(PAGE, 512)
        };
        let store = Store::open(vec![Arc::new(device.clone())], &made).unwrap();
        let table = store.table("t").unwrap();
        for i in 0..ROWS {
            table.put(&i.to_be_bytes(), &value(i, 0)).unwrap();
        }
        let limit = limited([1, 2000, 8000][random.usize(0..3)]);
        power.cut_at_change(random.u64(1..600));
        let (mut acknowledged, mut begun) = (0, 0);
        for round in 1..5 {
            begun = round;
            let mut tx = store.begin_with(&limit);
            let put =
                (0..ROWS).try_for_each(|i| tx.put(&table, &i.to_be_bytes(), &value(i, round)));
            if put.and_then(|()| tx.commit()).is_err() {
                break;
            }
            acknowledged = round;
        }
        power.cut();
        drop(table);
        let left = device.content();
        drop(store);
        let clock = SimClock::new();
        let device: Device =
            Arc::new(SimDevice::over(SimOptions::new(seed, &clock), left).unwrap());
        let again =
            StoreOptions { format: false, runtime: Runtime::Stepped { seed, clock }, ..made };
        let store = Store::open(vec![device.clone()], &again).unwrap();
        let table = store.table("t").unwrap();
        let round = table.get(&0u32.to_be_bytes()).unwrap().unwrap()[0];
        assert!((acknowledged..=begun).contains(&round), "seed {seed}");
        for i in 0..ROWS {
            assert_eq!(table.get(&i.to_be_bytes()).unwrap(), Some(value(i, round)), "seed {seed}");
        }
        drop(table);
        store.close().unwrap();
        let read = StoreOptions { read_only: true, ..again };
        let store = Store::open(vec![device], &read).unwrap();
        let report = store.check(&|_, _| ()).unwrap();
        assert!(report.is_sound() && report.leaked_pages == 0, "seed {seed}: {report:#?}");
    }
}

/// A feed gives commits in parts as a whole, also if it begins or breaks while one is made.
#[test]
fn a_feed_has_commits_in_parts() {
    for bytes_max in [1 << 20, 8 << 10] {
        let store = Store::open(vec![ram()], &options(PAGE, 512)).unwrap();
        let table = store.table("t").unwrap();
        table.put(&[0], &[0]).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut round = 0u8;
                while !stop.load(Ordering::Relaxed) {
                    round = round.wrapping_add(1);
                    let mut tx = store.begin_with(&limited(1000));
                    for i in 0..if round.is_multiple_of(3) { 200 } else { 50 } {
                        tx.put(&table, &[i], &[round; 20]).unwrap();
                    }
                    tx.commit().unwrap();
                }
            });
            let mut feed = store.change_feed(bytes_max).unwrap();
            let mut given = 0;
            while given < 40 {
                feed.begin(&store).unwrap();
                loop {
                    match feed.next(&store).unwrap() {
                        Next::Nothing => {}
                        Next::Broken(_) => break,
                        Next::Changes(changes) => {
                            // All of a commit's first 50 rows, and the same of each.
                            let first: Vec<_> = changes.records.values().take(50).collect();
                            assert!(first.len() == 50 && first.iter().all(|of| *of == first[0]));
                            given += 1;
                            if given % 10 == 0 {
                                break;
                            }
                        }
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop(table);
        store.close().unwrap();
    }
}

/// Writes that were rolled back do not keep a commit from succeeding when their table was dropped.
#[test]
fn a_table_whose_writes_were_rolled_back_may_be_dropped() {
    for limit in [1 << 20, 1] {
        let store = Store::open(vec![ram()], &options(PAGE, FRAMES)).unwrap();
        let (kept, dropped) = (store.table("kept").unwrap(), store.table("dropped").unwrap());
        let mut tx = store.begin_with(&limited(limit));
        tx.put(&kept, b"1", b"1").unwrap();
        let savepoint = tx.savepoint().unwrap();
        for i in 0..100 {
            tx.put(&dropped, &[i], b"1").unwrap();
        }
        tx.rollback_to(&savepoint).unwrap();
        drop(dropped);
        store.drop_table("dropped").unwrap();
        tx.commit().unwrap();
        drop(kept);
        store.close().unwrap();
    }
}

/// Writes that were rolled back, or overwritten, need no room in the log.
#[test]
fn writes_that_are_gone_need_no_log() {
    for limit in [1 << 20, 1000] {
        let fixed = RamOptions { size_bytes: 2 << 20, growable: false, ..RamOptions::default() };
        let log: Device = Arc::new(RamDevice::new(fixed).unwrap());
        let made = StoreOptions { workers: 1, ..options(4096, FRAMES) };
        let store = Store::open(vec![ram()], &with_log(made, &log)).unwrap();
        let table = store.table("t").unwrap();
        let mut tx = store.begin_with(&limited(limit));
        tx.put(&table, b"1", b"1").unwrap();
        let savepoint = tx.savepoint().unwrap();
        for _ in 0..100 {
            for i in 0..100 {
                tx.put(&table, &[i], &[9; 100]).unwrap();
            }
            tx.rollback_to(&savepoint).unwrap();
        }
        tx.commit().unwrap();
        drop(table);
        store.close().unwrap();
    }
}

/// A store may be closed at any moment of a large commit.
#[test]
fn a_close_beside_a_large_commit() {
    const ROWS: u32 = 400;
    for round in 0..12u64 {
        let device = ram();
        let made = StoreOptions { versions_bytes_max: 32 << 10, ..options(PAGE, 512) };
        let store = Store::open(vec![device.clone()], &made).unwrap();
        let table = store.table("t").unwrap();
        for i in 0..ROWS {
            table.put(&i.to_be_bytes(), &[0; 30]).unwrap();
        }
        let (tasks, other) = (store.task(), table.clone());
        let committed = store.spawn(move || async move {
            for round in 1..100u8 {
                let mut tx = tasks.begin_with(&limited(1000));
                for i in 0..ROWS {
                    if tx.put(&other, &i.to_be_bytes(), &[round; 30]).await.is_err() {
                        return round - 1;
                    }
                }
                if tx.commit().await.is_err() {
                    return round - 1;
                }
            }
            99
        });
        std::thread::sleep(std::time::Duration::from_millis(3 * round));
        drop(table);
        store.close().unwrap();
        let committed = committed.join().ok();
        let store = Store::open(vec![device.clone()], &existing(PAGE, 512)).unwrap();
        let table = store.table("t").unwrap();
        let first = table.get(&0u32.to_be_bytes()).unwrap().unwrap()[0];
        assert!(committed.is_none_or(|last| first == last || first == last + 1));
        for i in 0..ROWS {
            assert_eq!(table.get(&i.to_be_bytes()).unwrap().as_deref(), Some(&[first; 30][..]));
        }
        drop(table);
        store.close().unwrap();
        assert_sound(&[device], PAGE);
    }
}
