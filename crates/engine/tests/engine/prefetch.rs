//! Reads pages before a transaction begins.

use crate::common::{existing, faulty, options};
use qpair_block::{FaultControl, Op};
use qpair_engine::{ErrorKind, Store, Table};

const PAGE: usize = 512;
/// Keys far apart, each in a leaf of its own.
const KEYS: [u32; 20] = {
    let mut keys = [0; 20];
    let mut i = 0;
    while i < keys.len() {
        keys[i] = i as u32 * 97 + 5;
        i += 1;
    }
    keys
};

fn prefetch(store: &Store, table: &Table) -> Result<(), ErrorKind> {
    let (store_of_task, table) = (store.task(), table.clone());
    store
        .spawn(move || async move {
            let keys = KEYS.map(u32::to_be_bytes);
            let keys = keys.iter().map(|key| (&table, key.as_slice()));
            store_of_task.prefetch(keys).await.map_err(|error| error.kind())
        })
        .join()
        .unwrap()
}

fn get_all(table: &Table) -> Result<(), ErrorKind> {
    for key in KEYS {
        let value = table.get(&key.to_be_bytes()).map_err(|error| error.kind())?;
        assert_eq!(value.as_deref(), Some(&[7; 40][..]));
    }
    Ok(())
}

/// Returns a reopened store with none of the table's leaves in memory.
fn just_opened() -> (Store, Table, FaultControl) {
    let (device, _, control) = faulty();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    for key in 0..2000u32 {
        table.put(&key.to_be_bytes(), &[7; 40]).unwrap();
    }
    drop(table);
    store.close().unwrap();

    let store = Store::open(vec![device], &existing(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    (store, table, control)
}

#[test]
fn what_was_prefetched_is_in_memory() {
    let (store, table, control) = just_opened();
    let before = control.seen(Op::Read);
    prefetch(&store, &table).unwrap();
    let after = control.seen(Op::Read);
    assert!(after - before >= KEYS.len() as u64, "each has a leaf of its own");
    prefetch(&store, &table).unwrap();
    get_all(&table).unwrap();
    assert_eq!(control.seen(Op::Read), after);

    let dropped = store.table("dropped").unwrap();
    store.drop_table("dropped").unwrap();
    assert_eq!(prefetch(&store, &dropped), Err(ErrorKind::NotFound));
    let (other, _, _) = faulty();
    let other = Store::open(vec![other], &options(PAGE, 256)).unwrap();
    assert_eq!(prefetch(&store, &other.table("t").unwrap()), Err(ErrorKind::Invalid));
}

#[test]
fn a_transaction_reads_ahead_and_has_no_snapshot_yet() {
    let (store, table, control) = just_opened();
    let (of_task, table_of, reads) = (store.task(), table.clone(), control.clone());
    let counts = store
        .spawn(move || async move {
            let keys = KEYS.map(u32::to_be_bytes);
            let mut transaction = of_task.begin();
            let announced = || keys.iter().map(|key| (&table_of, key.as_slice()));
            let before = reads.seen(Op::Read);
            transaction.prefetch(announced()).await.unwrap();
            let ahead = reads.seen(Op::Read) - before;
            // Another transaction changes the record. The first read comes after that, and the
            // remembered position is out of date.
            let mut other = of_task.begin();
            for key in [KEYS[3] + 1, KEYS[3]] {
                other.put(&table_of, &key.to_be_bytes(), &[8; 40]).await.unwrap();
            }
            other.delete(&table_of, &KEYS[4].to_be_bytes()).await.unwrap();
            other.commit().await.unwrap();
            let mut values = Vec::new();
            for key in &keys {
                values.push(transaction.get(&table_of, key).await.unwrap());
            }
            (ahead, reads.seen(Op::Read) - before, values)
        })
        .join()
        .unwrap();
    let (ahead, all, values) = counts;
    assert!(ahead >= KEYS.len() as u64 && all == ahead, "{ahead} ahead, {all} in all");
    for (number, value) in values.iter().enumerate() {
        let expected = match number {
            3 => Some(&[8; 40][..]),
            4 => None,
            _ => Some(&[7; 40][..]),
        };
        assert_eq!(value.as_deref(), expected, "key {number}");
    }
    drop(table);
    store.close().unwrap();
}

#[test]
fn a_failing_read_is_said_and_nothing_stays_behind() {
    let (store, table, control) = just_opened();
    for _ in 0..20 {
        control.fail_reads(true);
        assert_eq!(prefetch(&store, &table), Err(ErrorKind::Io));
        control.heal();
    }
    prefetch(&store, &table).unwrap();
    get_all(&table).unwrap();
    assert!(!store.is_read_only());
    drop(table);
    store.close().unwrap();
}

#[test]
fn an_error_of_one_prefetch_is_not_told_later() {
    let (store, table, control) = just_opened();
    let of_task = store.task();
    let outcome = store
        .spawn(move || async move {
            let keys = KEYS.map(u32::to_be_bytes);
            // Load the pages above the leaves.
            for key in &keys {
                let near = (u32::from_be_bytes(*key) + 40).to_be_bytes();
                of_task.prefetch([(&table, near.as_slice())]).await.unwrap();
            }
            control.fail_reads(true);
            let keys = || keys.iter().map(|key| (&table, key.as_slice()));
            let first = of_task.prefetch(keys()).await.map_err(|error| error.kind());
            control.heal();
            (first, of_task.prefetch(keys()).await.map_err(|error| error.kind()))
        })
        .join()
        .unwrap();
    assert_eq!(outcome.0, Err(ErrorKind::Io));
    assert_eq!(outcome.1, Ok(()));
}

#[test]
fn prefetch_on_a_worker_of_another_store() {
    let (small, _, _) = faulty();
    let (large, _, _) = faulty();
    let small = Store::open(vec![small], &options(PAGE, 64)).unwrap();
    let large = Store::open(vec![large], &options(PAGE, 2000)).unwrap();
    // The table's root is in a frame number that the other store does not have.
    let tables: Vec<_> = (0..200).map(|i| large.table(&format!("t{i}")).unwrap()).collect();
    let table = tables.last().unwrap().clone();
    let of_task = large.task();
    let outcome = small
        .spawn(move || async move {
            let keys = || [(&table, &b"k"[..])];
            // This fills caches only: it neither waits nor fails.
            of_task.begin().prefetch_cached(keys()).unwrap();
            of_task.prefetch(keys()).await.map_err(|error| error.kind())
        })
        .join();
    assert_eq!(outcome.map_err(|error| error.kind()), Ok(Err(ErrorKind::Invalid)));
}

/// Ranges ask for leaves ahead of themselves, but for none that they do not reach.
#[test]
fn a_range_reads_what_it_needs() {
    const FROM: u32 = 500;
    for len in [3, 30, 60, 200] {
        // Read key after key: this counts the leaves and the pages above them.
        let (_store, table, control) = just_opened();
        let before = control.seen(Op::Read);
        for key in FROM..FROM + len {
            assert!(table.get(&key.to_be_bytes()).unwrap().is_some());
        }
        let needed = control.seen(Op::Read) - before;
        let (low, high) = (FROM.to_be_bytes(), (FROM + len).to_be_bytes());
        for reverse in [false, true] {
            for bounded in [false, true] {
                let (store, table, control) = just_opened();
                let before = control.seen(Op::Read);
                let mut transaction = store.begin();
                let range = match (bounded, reverse) {
                    (true, _) => transaction.range(&table, &low[..]..&high[..]),
                    (false, false) => transaction.range(&table, &low[..]..),
                    (false, true) => transaction.range(&table, ..&high[..]),
                };
                let range = range.unwrap();
                let range = if reverse { range.reverse() } else { range };
                let range = if bounded { range } else { range.limit(len as usize) };
                let found: Vec<_> = range.map(Result::unwrap).collect();
                assert_eq!(found.len(), len as usize);
                let read = control.seen(Op::Read) - before;
                let what = format!("{len} keys, bounded {bounded}, reverse {reverse}");
                assert!(read >= needed && read <= needed + 1, "{what}: {read} instead of {needed}");

                // The same without a transaction, from memory and from the device.
                let (_cold_store, cold, control) = just_opened();
                for (table, there) in [(&table, true), (&cold, false)] {
                    let before = control.seen(Op::Read);
                    let range = match (bounded, reverse) {
                        (true, _) => table.range(&low[..]..&high[..]),
                        (false, false) => table.range(&low[..]..),
                        (false, true) => table.range(..&high[..]),
                    };
                    let range = range.unwrap();
                    let range = if reverse { range.reverse() } else { range };
                    let range = if bounded { range } else { range.limit(len as usize) };
                    assert!(range.map(Result::unwrap).eq(found.iter().cloned()), "{what}");
                    let read = control.seen(Op::Read) - before;
                    assert!(read <= if there { 0 } else { needed + 1 }, "{what}: {read}");
                }
            }
        }
    }
}
