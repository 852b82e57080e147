//! Tests the lock time-out of changes that wait for a row.

use std::time::Duration;

use crate::common::{assert_sound, options, ram};
use qpair_block::time::SimClock;
use qpair_engine::{ErrorKind, Runtime, Store, StoreOptions, TransactionOptions};

const TIMEOUT: Duration = Duration::from_millis(1);

fn within(timeout: Duration) -> TransactionOptions {
    TransactionOptions { lock_timeout: Some(timeout), ..TransactionOptions::default() }
}

#[test]
fn a_change_that_timed_out_is_not_made_and_its_transaction_goes_on() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(512, 256)).unwrap();
    let table = store.table("t").unwrap();
    let named = TransactionOptions { name: Some("holder".into()), ..TransactionOptions::default() };
    let mut holder = store.begin_with(&named);
    holder.put(&table, b"x", b"1").unwrap();

    let mut waiting = store.begin_with(&within(TIMEOUT));
    waiting.put(&table, b"y", b"2").unwrap();
    let error = waiting.put(&table, b"x", b"2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    for said in ["holder", "1ms", "table t"] {
        assert!(error.to_string().contains(said), "{error}");
    }
    // The transaction has left the row's queue: the lock goes to the next one that asks, and this
    // one may ask again.
    holder.commit().unwrap();
    table.put(b"x", b"3").unwrap();
    waiting.put(&table, b"x", b"4").unwrap();
    waiting.commit().unwrap();
    assert_eq!(table.get(b"x").unwrap().unwrap(), b"4");
    assert_eq!(table.get(b"y").unwrap().unwrap(), b"2");
    drop(table);
    store.close().unwrap();
    assert_sound(&[device], 512);
}

#[test]
fn a_transaction_that_timed_out_is_not_run_again() {
    let store = Store::open(vec![ram()], &options(512, 256)).unwrap();
    let table = store.table("t").unwrap();
    let mut holder = store.begin();
    holder.put(&table, b"x", b"1").unwrap();
    let mut runs = 0;
    let outcome = store.transact_with(&within(TIMEOUT), |transaction| {
        runs += 1;
        transaction.put(&table, b"x", b"2")
    });
    assert_eq!((outcome.unwrap_err().kind(), runs), (ErrorKind::TimedOut, 1));
    assert_eq!(store.transactions().len(), 1);
    holder.commit().unwrap();
    assert_eq!(table.get(b"x").unwrap().unwrap(), b"1");
}

#[test]
fn the_stores_timeout_holds_for_what_says_none_of_its_own() {
    let options = StoreOptions { lock_timeout: Some(TIMEOUT), ..options(512, 256) };
    let store = Store::open(vec![ram()], &options).unwrap();
    let table = store.table("t").unwrap();
    let mut holder = store.begin();
    holder.put(&table, b"x", b"1").unwrap();
    assert_eq!(table.put(b"x", b"2").unwrap_err().kind(), ErrorKind::TimedOut);
    // A transaction that waits longer gets the lock when it is released.
    let (patient, other) = (store.task(), table.clone());
    let task = store.spawn(move || async move {
        let mut transaction = patient.begin_with(&within(Duration::MAX));
        transaction.put(&other, b"x", b"3").await?;
        transaction.commit().await
    });
    assert_eq!(table.put(b"x", b"2").unwrap_err().kind(), ErrorKind::TimedOut);
    holder.commit().unwrap();
    task.join().unwrap().unwrap();
    assert_eq!(table.get(b"x").unwrap().unwrap(), b"3");
}

#[test]
fn stepped_workers_let_the_clock_pass_to_the_deadline() {
    let clock = SimClock::new();
    let options = StoreOptions {
        workers: 2,
        runtime: Runtime::Stepped { seed: 1, clock: clock.clone() },
        ..options(512, 256)
    };
    let store = Store::open(vec![ram()], &options).unwrap();
    let table = store.table("t").unwrap();
    let mut holder = store.begin();
    holder.put(&table, b"x", b"1").unwrap();
    let before_ns = clock.now_ns();
    let mut waiting = store.begin_with(&within(Duration::from_secs(1)));
    assert_eq!(waiting.put(&table, b"x", b"2").unwrap_err().kind(), ErrorKind::TimedOut);
    let passed_ns = clock.now_ns() - before_ns;
    assert!((1_000_000_000..1_100_000_000).contains(&passed_ns), "{passed_ns}");
    drop((waiting, holder));
    table.put(b"x", b"3").unwrap();
}
