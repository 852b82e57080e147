//! Tables with a time to live: a record that has expired is absent for every caller, is never seen
//! again, and is removed at a cost that follows the number of expired records.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Device, assert_sound, copy_of, existing, key, options, ram, write_bytes};
use qpair_block::time::SimClock;
use qpair_engine::{
    Compression, Error, ErrorKind, Prefix, Runtime, Store, StoreOptions, Table, TableOptions,
    WallClock,
};
use qpair_inspect::repair;

const PAGE: usize = 1024;
const FRAMES: u64 = 128;
const HOUR_MS: u64 = 3_600_000;
/// A time at which a span of entries of an hour begins, so that records of this time expire long
/// before their entries are due.
const BEGAN_MS: u64 = 450_000 * (HOUR_MS / 16) + 1;

/// A clock that the test sets.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(BEGAN_MS)))
    }

    fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::Relaxed);
    }

    /// Returns the options of a store without a task that removes expired records.
    fn stepped(&self, options: StoreOptions) -> StoreOptions {
        StoreOptions {
            runtime: Runtime::Stepped { seed: 1, clock: SimClock::new() },
            wall_clock: WallClock::Simulated(self.0.clone()),
            ..options
        }
    }

    fn make(&self, device: &Device) -> Store {
        Store::open(vec![device.clone()], &self.stepped(options(PAGE, FRAMES))).unwrap()
    }

    fn open(&self, device: &Device) -> Store {
        Store::open(vec![device.clone()], &self.stepped(existing(PAGE, FRAMES))).unwrap()
    }
}

fn an_hour() -> TableOptions {
    TableOptions::default().ttl(Duration::from_millis(HOUR_MS))
}

fn value(i: u32) -> Vec<u8> {
    let len = if i.is_multiple_of(17) { 5 * PAGE } else { i as usize % 90 };
    format!("value {i} ").into_bytes().into_iter().cycle().take(len).collect()
}

fn keys(table: &Table) -> Vec<Vec<u8>> {
    table.iter().map(|record| record.unwrap().0).collect()
}

/// Half of the records expire. No way to read shows them, whether or not they are still there.
#[test]
fn expired_records_are_absent_for_every_caller() {
    for compression in [Compression::None, Compression::Lz4] {
        if cfg!(not(feature = "lz4")) && compression != Compression::None {
            continue;
        }
        let (clock, device) = (Clock::new(), ram());
        let store = clock.make(&device);
        let table = store.table_with("t", &an_hour().compression(compression)).unwrap();
        for i in 0..300 {
            assert!(!table.put(&key(i), &value(i)).unwrap());
        }
        let snapshot = store.snapshot().unwrap();
        clock.set(BEGAN_MS + HOUR_MS / 2);
        for i in (1..300).step_by(2) {
            assert!(table.put(&key(i), &value(i)).unwrap());
        }
        clock.set(BEGAN_MS + HOUR_MS + 1000);
        assert_eq!(keys(&table).len(), 300, "the horizon is not there yet");
        // The records have expired, but their entries are not due.
        assert_eq!(store.remove_expired().unwrap(), 0);
        assert_eq!(keys(&table.stored()).len(), 300);
        let left: Vec<u32> = (1..300).step_by(2).collect();
        let expected: Vec<Vec<u8>> = left.iter().map(|i| key(*i)).collect();
        assert_eq!(keys(&table), expected);
        assert_eq!(table.count().unwrap(), 150);
        let back: Vec<_> = table.iter().reverse().map(|record| record.unwrap().0).collect();
        assert!(back.iter().rev().eq(&expected));
        let few: Vec<_> = table.iter().limit(7).map(|record| record.unwrap().0).collect();
        assert_eq!(few, expected[..7]);
        let (mut both, mut turns) = (table.iter(), 0);
        while let Some(record) = if turns % 3 == 0 { both.next_back() } else { both.next() } {
            assert_eq!(table.get(&record.unwrap().0).unwrap().map(drop), Some(()));
            turns += 1;
        }
        assert_eq!(turns, 150);
        let prefixed = table.range(Prefix("key 00000")).unwrap().map(|record| record.unwrap().0);
        assert_eq!(prefixed.collect::<Vec<_>>(), expected[..5]);
        assert_eq!(table.first().unwrap().unwrap().0, key(1));
        assert_eq!(table.last().unwrap().unwrap().0, key(299));
        let all: Vec<Vec<u8>> = (0..300).map(key).collect();
        let values = table.multi_get(&all).unwrap();
        let mut tx = store.begin();
        for i in 0..300 {
            let expected = (i % 2 == 1).then(|| value(i));
            assert_eq!(table.get(&key(i)).unwrap(), expected);
            assert_eq!(table.contains_key(&key(i)).unwrap(), expected.is_some());
            let mut buffer = b"before".to_vec();
            if let Some(found) = table.try_get_into(&key(i), &mut buffer).unwrap() {
                assert_eq!(found, expected.is_some());
            }
            assert!(buffer.starts_with(b"before"));
            assert_eq!(values[i as usize], expected);
            assert_eq!(tx.get(&table, &key(i)).unwrap(), expected);
            // Older values expire as well.
            assert_eq!(snapshot.get(&table, &key(i)).unwrap(), None);
        }
        let in_tx: Vec<_> = tx.range(&table, ..).unwrap().map(|record| record.unwrap().0).collect();
        assert_eq!(in_tx, expected);
        tx.rollback();
        assert_eq!(snapshot.range(&table, ..).unwrap().count(), 0);
        drop(snapshot);
        // Changes take expired records for absent.
        assert!(!table.delete(&key(0)).unwrap());
        assert!(!table.put(&key(2), b"again").unwrap());
        assert!(table.insert(&key(4), b"again").unwrap());
        assert!(!table.insert(&key(5), b"again").unwrap());
        assert!(!table.compare_and_swap(&key(6), Some(&value(6)), Some(b"again")).unwrap());
        assert!(table.compare_and_swap(&key(6), None, Some(b"again")).unwrap());
        let mut tx = store.begin();
        assert!(!tx.delete(&table, &key(8)).unwrap());
        assert!(tx.insert(&table, &key(8), b"again").unwrap());
        assert!(!tx.insert(&table, &key(8), b"again").unwrap());
        tx.commit().unwrap();
        assert_eq!(table.update(&key(10), |found| found.map(<[u8]>::to_vec)).unwrap(), None);
        assert_eq!(table.delete_range(key(12)..key(20)).unwrap(), 4);
        // What was put again stays; the rest goes.
        clock.set(BEGAN_MS + HOUR_MS + HOUR_MS / 8);
        let removed = store.remove_expired().unwrap();
        assert_eq!(removed, 150 - 4, "all of the first half but those put again");
        assert_eq!(keys(&table), keys(&table.stored()));
        assert_eq!(store.metrics().unwrap().expired_records_removed, removed);
        assert_eq!(store.remove_expired().unwrap(), 0);
        drop(table);
        store.close().unwrap();
        assert_sound(std::slice::from_ref(&device), PAGE);
    }
}

/// A record that was seen as expired stays so after a crash, also if the clock is behind then.
#[test]
fn the_horizon_never_goes_back() {
    let (clock, device) = (Clock::new(), ram());
    let store = clock.make(&device);
    let table = store.table_with("t", &an_hour()).unwrap();
    table.put(b"first", b"1").unwrap();
    clock.set(BEGAN_MS + HOUR_MS + 1000);
    assert_eq!(table.get(b"first").unwrap().as_deref(), Some(&b"1"[..]));
    store.remove_expired().unwrap();
    assert_eq!(table.get(b"first").unwrap(), None);
    let horizon_ms = store.horizon_ms();
    drop(table);
    store.crash();
    clock.set(BEGAN_MS);
    let store = clock.open(&device);
    assert_eq!(store.horizon_ms(), horizon_ms);
    let table = store.table("t").unwrap();
    assert_eq!(table.ttl(), Some(Duration::from_millis(HOUR_MS)));
    assert_eq!(table.get(b"first").unwrap(), None);
    // A new record lives for an hour of the horizon.
    table.put(b"second", b"2").unwrap();
    clock.set(horizon_ms + HOUR_MS - 1);
    store.remove_expired().unwrap();
    assert_eq!(keys(&table), [b"second"]);
    drop(table);
    store.close().unwrap();
    // Before the first read of an opened store, the horizon is the clock's time.
    clock.set(horizon_ms + HOUR_MS);
    let store = clock.open(&device);
    assert_eq!(keys(&store.table("t").unwrap()), [[0u8; 0]; 0]);
    store.crash();
    clock.set(BEGAN_MS);
    let store = clock.open(&device);
    assert_eq!(store.table("t").unwrap().count().unwrap(), 0);
    store.close().unwrap();
    // A store that is only read shows nothing that has expired either, and is not changed.
    clock.set(horizon_ms + 3 * HOUR_MS);
    let reading = StoreOptions { read_only: true, ..clock.stepped(existing(PAGE, FRAMES)) };
    let store = Store::open(vec![device], &reading).unwrap();
    assert_eq!(store.table("t").unwrap().count().unwrap(), 0);
    store.close().unwrap();
}

/// Records of a sorted load expire, and those that recovery puts again.
#[test]
fn loaded_and_recovered_records_expire() {
    let (clock, device) = (Clock::new(), ram());
    let store = clock.make(&device);
    let loaded = store.table_with("loaded", &an_hour()).unwrap();
    let rows = (0..2000).map(|i| Ok::<_, Error>((key(i), value(i))));
    assert_eq!(loaded.bulk_load(rows).unwrap(), 2000);
    let put = store.table_with("put", &an_hour()).unwrap();
    let other = store.table("other").unwrap();
    for i in 0..300 {
        put.put(&key(i), &value(i)).unwrap();
        other.put(&key(i), &value(i)).unwrap();
    }
    drop((loaded, put, other));
    store.crash();
    let store = clock.open(&device);
    let names = ["loaded", "other", "put"];
    assert_eq!(store.table_names().unwrap(), names);
    let counts = |store: &Store| names.map(|name| store.table(name).unwrap().count().unwrap());
    assert_eq!(counts(&store), [2000, 300, 300]);
    store.close().unwrap();
    assert_sound(std::slice::from_ref(&device), PAGE);
    let store = clock.open(&device);
    clock.set(BEGAN_MS + 2 * HOUR_MS);
    assert_eq!(store.remove_expired().unwrap(), 2300);
    assert_eq!(counts(&store), [0, 300, 0]);
    assert_eq!(store.table("loaded").unwrap().stored().count().unwrap(), 0);
    store.close().unwrap();
    assert_sound(std::slice::from_ref(&device), PAGE);
}

/// A removal waits for no transaction: what is locked stays, and no reader sees it.
#[test]
fn locked_records_are_left_to_their_transactions() {
    let (clock, device) = (Clock::new(), ram());
    let store = clock.make(&device);
    let table = store.table_with("t", &an_hour()).unwrap();
    for i in 0..200 {
        table.put(&key(i), &value(i)).unwrap();
    }
    let mut tx = store.begin();
    tx.lock(&table, &key(50)).unwrap();
    tx.put(&table, &key(60), b"new").unwrap();
    clock.set(BEGAN_MS + 2 * HOUR_MS);
    assert_eq!(store.remove_expired().unwrap(), 198);
    assert_eq!(store.metrics().unwrap().expired_records_left, 2);
    assert_eq!(table.count().unwrap(), 0);
    assert_eq!(table.stored().count().unwrap(), 2);
    // The transaction put its record before the horizon came: the record has expired as well.
    tx.commit().unwrap();
    assert_eq!(table.count().unwrap(), 0);
    table.put(&key(70), b"newer").unwrap();
    assert_eq!(store.remove_expired().unwrap(), 2);
    assert_eq!(keys(&table.stored()), [key(70)]);
    assert_eq!(store.metrics().unwrap().expired_records_left, 0);
    store.close().unwrap();
}

#[test]
fn tables_are_renamed_and_dropped_with_their_entries() {
    let (clock, device) = (Clock::new(), ram());
    let store = clock.make(&device);
    let minutes = TableOptions::default().ttl(Duration::from_secs(600));
    for name in ["a", "b"] {
        let table = store.table_with(name, &minutes).unwrap();
        for i in 0..300 {
            table.put(&key(i), &value(i)).unwrap();
        }
    }
    for other in [TableOptions::default(), an_hour(), minutes.compression(Compression::Lz4)] {
        let refused = store.table_with("a", &other).map(drop).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Exists | ErrorKind::Unsupported), "{refused}");
    }
    store.table("plain").unwrap();
    let refused = store.table_with("plain", &minutes).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists);
    for ttl in [Duration::ZERO, Duration::from_millis(999), Duration::MAX] {
        let refused = store.table_with("new", &TableOptions::default().ttl(ttl)).map(drop);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
    // The index is no table.
    assert_eq!(store.table("\0expiry").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.table_names().unwrap(), ["a", "b", "plain"]);
    store.rename_table("a", "renamed").unwrap();
    store.drop_table("b").unwrap();
    while store.tables_being_dropped() > 0 {
        let _ = store.step();
    }
    assert_eq!(store.remove_expired().unwrap(), 0);
    store.close().unwrap();
    assert_sound(std::slice::from_ref(&device), PAGE);
    let store = clock.open(&device);
    // The number of a dropped table's tree is free, and so is its name.
    let table = store.table_with("b", &an_hour()).unwrap();
    table.put(b"k", b"v").unwrap();
    clock.set(BEGAN_MS + HOUR_MS / 2);
    assert_eq!(store.remove_expired().unwrap(), 300);
    assert_eq!(store.table("renamed").unwrap().count().unwrap(), 0);
    assert_eq!(table.count().unwrap(), 1);
    store.close().unwrap();
    assert_sound(std::slice::from_ref(&device), PAGE);
}

/// A key has less room in a table with a time to live: the index has it behind the time.
#[test]
fn limits_are_told() {
    let (clock, device) = (Clock::new(), ram());
    let store = clock.make(&device);
    let table = store.table_with("t", &an_hour()).unwrap();
    let longest = vec![b'k'; store.whole_key_len_max() - 11];
    table.put(&longest, b"v").unwrap();
    let longer = [&longest[..], b"k"].concat();
    assert_eq!(table.put(&longer, b"v").unwrap_err().kind(), ErrorKind::KeyTooLong);
    assert_eq!(table.get(&longer).unwrap(), None);
    assert!(!table.delete(&longer).unwrap());
    clock.set(BEGAN_MS + 2 * HOUR_MS);
    assert_eq!(store.remove_expired().unwrap(), 1);
    store.close().unwrap();
}

/// Backups and repaired stores have the times to live, and the horizon.
#[test]
fn backups_and_repairs_keep_the_times() {
    let (clock, device, backup) = (Clock::new(), ram(), ram());
    let store = clock.make(&device);
    let table = store.table_with("t", &an_hour()).unwrap();
    for i in 0..400 {
        if i == 200 {
            clock.set(BEGAN_MS + HOUR_MS / 2);
        }
        table.put(&key(i), &value(i)).unwrap();
    }
    clock.set(BEGAN_MS + HOUR_MS + 1000);
    store.remove_expired().unwrap();
    assert_eq!(table.count().unwrap(), 200);
    store.backup(vec![backup.clone()], None, &|_, _| ControlFlow::Continue(())).unwrap();
    drop(table);
    store.close().unwrap();
    // The records that expired first have an intact entry in the damaged copy.
    let damaged = copy_of(device.as_ref(), device.size_bytes());
    for page in 0..2 {
        write_bytes(damaged.as_ref(), (64 << 10) + page * PAGE as u64, &[0; PAGE]);
    }
    let repaired = ram();
    let mut make = |page_size| {
        let options = StoreOptions { page_size, ..options(PAGE, FRAMES) };
        Store::open(vec![repaired.clone()], &clock.stepped(options))
    };
    let plain = clock.stepped(existing(PAGE, FRAMES));
    let progress = |_, _, _| ControlFlow::Continue(());
    let report = repair(std::slice::from_ref(&damaged), &plain, &mut make, &progress).unwrap();
    assert!(!report.healthy);
    clock.set(BEGAN_MS);
    for (copy, expected) in [(&backup, 200..=200), (&repaired, 100..=200)] {
        let store = clock.open(copy);
        let name = store.table_names().unwrap().remove(0);
        let table = store.existing_table(&name).unwrap().unwrap();
        assert_eq!(table.ttl(), Some(Duration::from_millis(HOUR_MS)));
        let found = table.count().unwrap();
        assert!(expected.contains(&found), "{found} records");
        store.close().unwrap();
        assert_sound(std::slice::from_ref(copy), PAGE);
    }
    clock.set(BEGAN_MS + 2 * HOUR_MS);
    let store = clock.open(&repaired);
    assert!(store.remove_expired().unwrap() >= 100);
    let name = store.table_names().unwrap().remove(0);
    assert_eq!(store.existing_table(&name).unwrap().unwrap().stored().count().unwrap(), 0);
    store.close().unwrap();
}

/// The cost of a removal follows the number of expired records: a hundredth of the table expires,
/// and far fewer pages are read than the table has.
#[test]
fn a_removal_reads_little() {
    let (clock, device) = (Clock::new(), ram());
    let store = clock.make(&device);
    let table = store.table_with("t", &an_hour()).unwrap();
    for i in 0..100 {
        table.put(&key(i), &[7; 100]).unwrap();
    }
    clock.set(BEGAN_MS + HOUR_MS);
    let rows: Vec<u32> = (100..12_000).collect();
    for part in rows.chunks(500) {
        let (table, part) = (table.clone(), part.to_vec());
        store
            .transact(|tx| part.iter().try_for_each(|i| tx.put(&table, &key(*i), &[7; 100])))
            .unwrap();
    }
    let leaves = table.statistics().unwrap().leaves;
    let before = store.metrics().unwrap().device_reads;
    clock.set(BEGAN_MS + HOUR_MS + HOUR_MS / 8);
    assert_eq!(store.remove_expired().unwrap(), 100);
    let reads = store.metrics().unwrap().device_reads - before;
    assert!(reads * 5 < leaves, "{reads} reads, {leaves} leaves");
    store.close().unwrap();
}

/// On threads a task removes what has expired, and a close ends it at once.
#[test]
fn a_task_removes_expired_records() {
    let (clock, device) = (Clock::new(), ram());
    let wall_clock = WallClock::Simulated(clock.0.clone());
    let on_threads = StoreOptions { wall_clock, ..options(PAGE, FRAMES) };
    let store = Store::open(vec![device.clone()], &on_threads).unwrap();
    let table = store.table_with("t", &an_hour()).unwrap();
    for i in 0..300 {
        table.put(&key(i), &value(i)).unwrap();
    }
    clock.set(BEGAN_MS + 2 * HOUR_MS);
    while store.metrics().unwrap().expired_records_removed < 300 {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(table.stored().count().unwrap(), 0);
    drop(table);
    store.close().unwrap();
    assert_sound(std::slice::from_ref(&device), PAGE);
}
