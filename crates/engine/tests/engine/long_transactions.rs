//! Long writing transactions beside short ones: they commit after a number of attempts that is
//! bounded by the number of their rows.
//!
//! A regression: a transaction of 200 rows never committed beside eight threads that changed single
//! rows, because each attempt locked only the row on which the one before had lost.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{options, ram};
use qpair_engine::{Durability, Result, Store, Table, Transaction, TransactionOptions};

const ROWS: u32 = 200;
const THREADS: u64 = 8;

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

/// Runs a transaction several times beside threads that change single rows. Returns how often the
/// closure ran for each commit.
fn attempts_beside_short_changes(run: impl Fn(&mut Transaction, &Table) -> Result<()>) -> Vec<u32> {
    let store = Store::open(vec![ram()], &options(4096, 4096)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..ROWS {
        table.put(&key(i), b"0").unwrap();
    }
    let transaction = TransactionOptions { durability: Durability::Async, ..Default::default() };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let (table, store, stop, transaction) = (&table, &store, &stop, &transaction);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    let row = key(random.u32(0..ROWS));
                    let value = random.u64(..).to_le_bytes();
                    store.transact_with(transaction, |tx| tx.put(table, &row, &value)).unwrap();
                }
            });
        }
        let attempts = (0..5).map(|_| {
            let mut attempts = 0;
            let outcome = store.transact_with(&transaction, |tx| {
                attempts += 1;
                run(tx, &table)
            });
            outcome.map(|()| attempts)
        });
        let attempts: Result<Vec<u32>> = attempts.collect();
        stop.store(true, Ordering::Relaxed);
        attempts.unwrap()
    })
}

#[test]
fn one_that_locks_each_row_before_it_reads_it_never_loses() {
    let attempts = attempts_beside_short_changes(|tx, table| {
        (0..ROWS).try_for_each(|i| {
            let value = tx.get_for_update(table, &key(i))?.unwrap_or_default();
            tx.put(table, &key(i), &value)
        })
    });
    assert!(attempts.iter().all(|attempts| *attempts == 1), "{attempts:?}");
}

#[test]
fn one_that_locks_what_it_has_read_loses_each_row_once_at_most() {
    let attempts = attempts_beside_short_changes(|tx, table| {
        let values: Vec<_> = (0..ROWS).map(|i| tx.get(table, &key(i))).collect::<Result<_>>()?;
        (0..ROWS)
            .zip(values)
            .try_for_each(|(i, value)| tx.put(table, &key(i), &value.unwrap_or_default()))
    });
    assert!(attempts.iter().all(|attempts| *attempts <= ROWS + 1), "{attempts:?}");
}

/// A read without a lock pins the snapshot: a row that was changed afterwards cannot be locked and
/// is a conflict.
#[test]
fn a_read_without_a_lock_keeps_its_snapshot() {
    let store = Store::open(vec![ram()], &options(4096, 4096)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..3 {
        table.put(&key(i), b"old").unwrap();
    }
    for reads_unlocked in [false, true] {
        table.put(&key(1), b"old").unwrap();
        let mut tx = store.begin();
        if reads_unlocked {
            tx.get(&table, &key(2)).unwrap();
        }
        assert_eq!(tx.get_for_update(&table, &key(0)).unwrap().as_deref(), Some(&b"old"[..]));
        table.put(&key(1), b"new").unwrap();
        match tx.get_for_update(&table, &key(1)) {
            Ok(value) => assert!(!reads_unlocked && value.as_deref() == Some(b"new")),
            Err(error) => {
                assert!(reads_unlocked, "{error}");
                assert_eq!(error.kind(), qpair_engine::ErrorKind::Conflict);
            }
        }
    }
}
