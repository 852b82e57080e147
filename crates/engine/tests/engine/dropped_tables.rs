//! Creates and drops tables without end, and keeps handles of them.
//!
//! A regression: the root of each table stayed in its frame until the store was closed, so a
//! hundred tables left a small pool without frames. Now another page can use the frame at once,
//! even while handles still lead to it.

use crate::common;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{assert_sound, copy_of, existing, options, ram, reading};
use qpair_block::{RamDevice, RamOptions};
use qpair_engine::{
    Error, ErrorKind, Isolation, Result, Store, StoreOptions, Table, TransactionOptions,
};

const PAGE: usize = 512;
const FRAMES: u64 = 98;
const KEPT: u32 = 400;

fn open() -> (Store, Vec<Arc<dyn qpair_block::BlockDevice>>) {
    let device = ram();
    let small = StoreOptions { checkpoint_bytes: 256 << 10, ..options(PAGE, FRAMES) };
    (Store::open(vec![device.clone()], &small).unwrap(), vec![device])
}

fn key(index: u32) -> [u8; 4] {
    index.to_be_bytes()
}

/// Returns a table's value for a key, which tells the table it belongs to.
fn value(table: u64, index: u32) -> Vec<u8> {
    [&table.to_be_bytes()[..], &[index as u8; 40]].concat()
}

fn wait_until_emptied(store: &Store) {
    while store.tables_being_dropped() > 0 {
        std::thread::yield_now();
    }
}

/// A handle, with the number of its table, the number of its records, and whether it was dropped.
/// Once it was dropped, no call may succeed.
struct Handle {
    table: Table,
    number: u64,
    records: u32,
    dropped: AtomicBool,
}

impl Handle {
    /// Judges the result of a call. `before` says whether the table was dropped when the call
    /// began.
    fn judge<T>(&self, before: bool, outcome: Result<T>) -> Option<T> {
        match outcome {
            Ok(answer) => {
                assert!(!before, "table {} was dropped and answered", self.number);
                Some(answer)
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "table {}: {error}", self.number);
                None
            }
        }
    }

    fn use_it(&self, store: &Store, random: &mut fastrand::Rng) {
        let before = self.dropped.load(Ordering::Acquire);
        let index = random.u32(..self.records);
        let expected = value(self.number, index);
        match random.u8(..8) {
            0 | 1 => {
                if let Some(found) = self.judge(before, self.table.get(&key(index))) {
                    assert!(found == Some(expected));
                }
            }
            2 => {
                // A put and a read find the same value.
                self.judge(before, self.table.put(&key(index), &expected));
            }
            3 => {
                let range = self.table.range(..).unwrap();
                let all = match random.bool() {
                    true => range.collect::<Result<Vec<_>>>(),
                    false => range.reverse().collect(),
                };
                if let Some(all) = self.judge(before, all) {
                    assert_eq!(all.len(), self.records as usize);
                    assert!(all.iter().all(|(_, found)| found[..8] == expected[..8]));
                }
            }
            4 => {
                let snapshot = store.snapshot().unwrap();
                if let Some(found) = self.judge(before, snapshot.get(&self.table, &key(index))) {
                    assert!(found == Some(expected));
                }
            }
            5 => {
                let absent = self.table.delete(&key(index + self.records));
                if let Some(there) = self.judge(before, absent) {
                    assert!(!there);
                }
            }
            6 => {
                let isolation = match random.bool() {
                    true => Isolation::Serializable,
                    false => Isolation::Snapshot,
                };
                let mut tx = store
                    .begin_with(&TransactionOptions { isolation, ..TransactionOptions::default() });
                let outcome = tx.get(&self.table, &key(index)).and_then(|found| {
                    assert!(found.as_ref() == Some(&expected));
                    tx.put(&self.table, &key(index), &expected)?;
                    tx.commit().map(drop)
                });
                // Two threads may want the same row.
                match outcome {
                    Err(error) if error.kind() == ErrorKind::Conflict && !before => {}
                    outcome => drop(self.judge(before, outcome)),
                }
            }
            _ => {
                let (table, number) = (self.table.clone(), self.number);
                let (first, second) = (key(index), key((index + 1) % self.records));
                let tasks = store.task();
                let outcome = store
                    .spawn(move || async move {
                        let mut tx = tasks.begin();
                        tx.prefetch_cached([(&table, &first[..]), (&table, &second[..])])?;
                        let found = [tx.get(&table, &first).await?, tx.get(&table, &second).await?];
                        Ok::<_, Error>(
                            found
                                .iter()
                                .all(|of| of.as_ref().unwrap()[..8] == number.to_be_bytes()),
                        )
                    })
                    .join()
                    .unwrap();
                if let Some(own) = self.judge(before, outcome) {
                    assert!(own);
                }
            }
        }
    }
}

#[test]
fn two_thousand_tables_in_a_hundred_frames() {
    let (store, device) = open();
    let kept = store.table("kept").unwrap();
    for index in 0..KEPT {
        kept.put(&key(index), &value(u64::MAX, index)).unwrap();
    }
    let handles: Arc<Mutex<Vec<Arc<Handle>>>> = Arc::default();
    let (done, used) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let users: Vec<_> = (0..3)
        .map(|seed| {
            let (store, handles) = (store.clone(), handles.clone());
            let (kept, done, used) = (kept.clone(), done.clone(), used.clone());
            std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !done.load(Ordering::Relaxed) {
                    let index = random.u32(..KEPT);
                    assert!(kept.get(&key(index)).unwrap() == Some(value(u64::MAX, index)));
                    let handle = {
                        let handles = handles.lock().unwrap();
                        let count = handles.len();
                        // Half of the time, choose one of the last tables.
                        let from = if random.bool() { count.saturating_sub(4) } else { 0 };
                        (count > 0).then(|| handles[random.usize(from..count)].clone())
                    };
                    if let Some(handle) = handle {
                        handle.use_it(&store, &mut random);
                        used.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(7);
    for number in 0..2000u64 {
        let name = format!("t{}", number % 5);
        let table = store.table(&name).unwrap();
        // The records fill one leaf, several leaves, or two levels above them.
        let records = *random.choice(&[1, 5, 40, 150]).unwrap();
        store
            .transact(|tx| {
                (0..records).try_for_each(|at| tx.put(&table, &key(at), &value(number, at)))
            })
            .unwrap();
        let dropped = AtomicBool::new(false);
        let handle = Arc::new(Handle { table, number, records, dropped });
        handles.lock().unwrap().push(handle.clone());
        if random.u8(..4) == 0 {
            std::thread::yield_now();
        }
        store.drop_table(&name).unwrap();
        handle.dropped.store(true, Ordering::Release);
        if number % 400 == 0 {
            store.checkpoint().unwrap();
        }
    }
    wait_until_emptied(&store);
    done.store(true, Ordering::Relaxed);
    users.into_iter().for_each(|user| user.join().unwrap());
    assert!(used.load(Ordering::Relaxed) > 1000);
    assert_eq!(store.table_names().unwrap(), ["kept"]);
    let records: Vec<_> = kept.range(..).unwrap().collect::<Result<_>>().unwrap();
    assert_eq!(records.len(), KEPT as usize);
    handles.lock().unwrap().clear();
    drop(kept);
    store.close().unwrap();
    let report = assert_sound(&device, PAGE);
    assert_eq!(report.tables.len(), 2, "{report:#?}");
}

/// The writes of a transaction to a dropped table are discarded, even if another table's root is in
/// the frame of the table's root by then.
#[test]
fn transactions_with_writes_for_a_table_that_is_gone() {
    let (store, device) = open();
    let kept = store.table("kept").unwrap();
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let gone = store.table("gone").unwrap();
        gone.put(b"there", b"before").unwrap();
        let options = TransactionOptions { isolation, ..TransactionOptions::default() };
        let begin = || store.begin_with(&options);
        let (mut writer, mut reader, mut late) = (begin(), begin(), begin());
        writer.put(&kept, b"writer", b"lost").unwrap();
        writer.put(&gone, b"new", b"lost").unwrap();
        assert!(writer.delete(&gone, b"there").unwrap());
        assert_eq!(reader.get(&gone, b"absent").unwrap(), None);
        reader.put(&kept, b"reader", &[isolation as u8]).unwrap();
        late.put(&kept, b"late", b"kept").unwrap();
        store.drop_table("gone").unwrap();
        wait_until_emptied(&store);
        // Enough tables that the frame is reused for another root, a leaf, and an inner page.
        let others: Vec<Table> = (0..30).map(|n| store.table(&format!("o{n}")).unwrap()).collect();
        for (number, other) in others.iter().enumerate() {
            for index in 0..60 {
                other.put(&key(index), &value(number as u64, index)).unwrap();
            }
        }
        let kind = |error: Error| error.kind();
        assert_eq!(writer.commit().map_err(kind).err(), Some(ErrorKind::NotFound));
        // A task that only read the table may commit, unless its reads must be validated.
        let outcome = reader.commit().map(drop).map_err(kind);
        match isolation {
            Isolation::Serializable => assert_eq!(outcome, Err(ErrorKind::NotFound)),
            _ => assert_eq!(outcome, Ok(())),
        }
        let refused = [
            late.get(&gone, b"there").map(drop),
            late.put(&gone, b"k", b"v"),
            late.insert(&gone, b"k", b"v").map(drop),
            late.delete(&gone, b"there").map(drop),
            late.lock(&gone, b"there"),
            late.get_for_update(&gone, b"there").map(drop),
            late.delete_range(&gone, ..).map(drop),
            late.range(&gone, ..).and_then(|mut all| all.try_for_each(|of| of.map(drop))),
            gone.put(b"k", &[1; 3000]).map(drop),
            gone.delete(b"there").map(drop),
            gone.delete_range(..).map(drop),
            gone.range(..).and_then(|mut all| all.try_for_each(|of| of.map(drop))),
            gone.bulk_load([Ok((b"a".to_vec(), b"b".to_vec()))]).map(drop),
        ];
        for (at, outcome) in refused.into_iter().enumerate() {
            assert_eq!(outcome.map_err(kind), Err(ErrorKind::NotFound), "call {at}");
        }
        late.commit().unwrap();
        assert_eq!(kept.get(b"writer").unwrap(), None);
        assert_eq!(kept.get(b"late").unwrap().unwrap(), b"kept");
        for (number, other) in others.iter().enumerate() {
            let all: Vec<_> = other.range(..).unwrap().collect::<Result<_>>().unwrap();
            assert_eq!(all.len(), 60);
            assert!(all.iter().all(|(_, found)| found[..8] == (number as u64).to_be_bytes()));
        }
        drop(others);
        (0..30).for_each(|number| store.drop_table(&format!("o{number}")).unwrap());
        wait_until_emptied(&store);
    }
    drop(kept);
    store.close().unwrap();
    assert_sound(&device, PAGE);
}

/// A checkpoint lists the roots that exist at its instant. A root that leaves before the image is
/// described is listed at the place where it was saved.
#[test]
fn roots_that_leave_while_an_image_is_written() {
    for _ in 0..30 {
        let (store, device) = open();
        let table = store.table("t").unwrap();
        let fill = |tx: &mut qpair_engine::Transaction| {
            (0..600).try_for_each(|at| tx.put(&table, &key(at), &value(1, at)))
        };
        store.transact(fill).unwrap();
        let kept = store.table("kept").unwrap();
        kept.put(b"k", b"v").unwrap();
        store.drop_table("t").unwrap();
        while store.tables_being_dropped() > 0 {
            // Make pages that the checkpoint must save.
            for at in 0..20 {
                kept.put(&key(at), b"v").unwrap();
            }
            store.checkpoint().unwrap();
        }
        let copy = common::copy_of(device[0].as_ref(), device[0].size_bytes());
        let at_checkpoint = StoreOptions { at_checkpoint: true, ..common::existing(PAGE, FRAMES) };
        let store_then = Store::open(vec![copy], &at_checkpoint).unwrap();
        let report = store_then.check(&|_, _| ()).unwrap();
        assert!(report.is_sound() && report.leaked_pages == 0, "{report:#?}");
        drop((table, kept, store_then));
        store.close().unwrap();
        assert_sound(&device, PAGE);
    }
}

/// A regression: a range that had reached its last leaf when its table was dropped looked its large
/// values up in the remaining pages, and skipped those that were gone.
#[test]
fn a_range_over_large_values_of_a_table_that_goes() {
    let (mut refused, to) = (0, common::key(8));
    for round in [0, 3, 6, 11u32] {
        let fixed = RamOptions { size_bytes: 16 << 20, growable: false, ..RamOptions::default() };
        let device = Arc::new(RamDevice::new(fixed).unwrap());
        let with_or_without = StoreOptions { log: round % 2 == 0, ..options(PAGE, 600) };
        let store = Store::open(vec![device], &with_or_without).unwrap();
        let (table, other) = (store.table("t").unwrap(), store.table("o").unwrap());
        for part in 0..150 {
            let put = |tx: &mut qpair_engine::Transaction, n: u32| {
                let len = if n < 8 { 400 } else { 30 };
                tx.put(&table, &common::key(n), &vec![n as u8; len])
            };
            let all = part * 500..part * 500 + 500;
            store.transact(|tx| all.clone().try_for_each(|n| put(tx, n))).unwrap();
        }
        store.checkpoint().unwrap();
        let below = (Bound::Unbounded, Bound::Excluded(&to[..]));
        let mut range = table.range(below).unwrap();
        range.next().unwrap().unwrap();
        let put_others = |from: u32, count: u32| {
            let mut keys = (from..from + count).map(common::key);
            store.transact(|tx| keys.try_for_each(|key| tx.put(&other, &key, &[9; 400])))
        };
        // Leave few pages free, so that pages are reused soon.
        let mut from = 100_000;
        while store.report().free_pages >= 1800 && put_others(from, 100).is_ok() {
            from += 100;
        }
        store.checkpoint().unwrap();
        store.drop_table("t").unwrap();
        store.checkpoint().unwrap();
        store.checkpoint().unwrap();
        for number in 0..20 + round * 20 {
            if store.tables_being_dropped() == 0 {
                break;
            }
            if put_others(number * 20, 20).is_err() {
                store.checkpoint().unwrap();
            }
        }
        match range.collect::<Result<Vec<_>>>() {
            Ok(rest) => assert_eq!(rest.len(), 7),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn values_of_a_table_being_dropped_may_be_overwritten() {
    let usual = StoreOptions::default().run_pages_max;
    values_may_be_overwritten(usual);
    // Each value has several runs: the pages of its list may be overwritten, too.
    values_may_be_overwritten(2);
}

fn values_may_be_overwritten(run_pages_max: u64) {
    const VALUE_BYTES: usize = 20_000;
    let small =
        StoreOptions { checkpoint_bytes: 256 << 10, run_pages_max, ..options(PAGE, FRAMES) };
    let devices: Vec<Arc<dyn qpair_block::BlockDevice>> = vec![ram()];
    let store = Store::open(devices.clone(), &small).unwrap();
    let stays = store.table("stays").unwrap();
    stays.put(b"k", &[1; VALUE_BYTES]).unwrap();
    // From here on, changes are in the log only.
    store.checkpoint().unwrap();
    let table = store.table("goes").unwrap();
    (0..8).for_each(|index| _ = table.put(&key(index), &[2; VALUE_BYTES]).unwrap());
    store.drop_table("goes").unwrap();
    wait_until_emptied(&store);
    // The transaction writes to the pages that the value had, and nothing into the log.
    let mut open = store.begin();
    (0..8).for_each(|index| open.put(&stays, &key(index), &[3; VALUE_BYTES]).unwrap());
    let crashed = copy_of(devices[0].as_ref(), devices[0].size_bytes());
    drop(open);
    store.close().unwrap();
    // Recover and close the store before the pages are freed again. Workers begin with that at
    // once, so it takes several tries.
    let recovered_and_closed = || {
        let crashed = vec![copy_of(crashed.as_ref(), crashed.size_bytes())];
        Store::open(crashed.clone(), &existing(PAGE, FRAMES)).unwrap().close().unwrap();
        let store = Store::open(crashed.clone(), &reading(PAGE, FRAMES)).unwrap();
        let report = store.check(&|_, _| ()).unwrap();
        assert!(report.is_sound(), "{:?}", report.faults);
        store.close().unwrap();
        let table = report.tables.iter().find(|table| table.name == "(being dropped)")?;
        Some((crashed, table.overflow_pages))
    };
    let (crashed, overflow_pages) = (0..100).find_map(|_| recovered_and_closed()).unwrap();
    // If a value's list is gone, the store does not know the value's pages.
    let in_one_run = 8 * (VALUE_BYTES / PAGE) as u64;
    assert!(run_pages_max == 2 || overflow_pages >= in_one_run);
    // The first change frees the pages.
    let store = Store::open(crashed.clone(), &existing(PAGE, FRAMES)).unwrap();
    store.table("new").unwrap();
    wait_until_emptied(&store);
    assert_eq!(
        store.table("stays").unwrap().get(b"k").unwrap().as_deref(),
        Some(&[1; VALUE_BYTES][..])
    );
    store.close().unwrap();
    assert_sound(&crashed, PAGE);
}
