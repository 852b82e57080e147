//! Compares ranges of snapshots and transactions over records that were deleted since with lookups.
//!
//! A regression: ranges silently left out such records. Keys were deleted and collected, and
//! smaller keys were deleted after that. The list of deleted keys then had the smaller keys in a
//! part that searches skipped. A serializable transaction that had read such a range committed a
//! write skew.

use crate::common::{options, ram};
use qpair_engine::{
    Canary, Durability, ErrorKind, Isolation, Snapshot, Store, Table, Transaction,
    TransactionOptions,
};

fn key(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

fn delete(table: &Table, keys: std::ops::Range<u32>) {
    assert_eq!(
        table.delete_range(key(keys.start)..key(keys.end)).unwrap(),
        u64::from(keys.len() as u32)
    );
}

fn put(table: &Table, keys: std::ops::Range<u32>) {
    for i in keys {
        table.put(&key(i), b"value").unwrap();
    }
}

/// A store in which keys were deleted at the front after keys above them were collected, with a
/// snapshot and a transaction that see them all.
struct Prepared {
    newer: Snapshot,
    beside: Transaction,
    table: Table,
    store: Store,
}

impl Prepared {
    fn new(canary: Option<Canary>) -> Self {
        let mut options = options(4096, 4096);
        (options.workers, options.durability, options.canary) = (1, Durability::Async, canary);
        let store = Store::open(vec![ram()], &options).unwrap();
        let table = store.table("t").unwrap();
        put(&table, 0..200);
        let older = store.snapshot().unwrap();
        delete(&table, 0..100);
        put(&table, 0..100);
        let newer = store.snapshot().unwrap();
        let mut beside = store.begin();
        assert!(beside.get(&table, &key(0)).unwrap().is_some());
        delete(&table, 100..200);
        drop(older);
        // Older values that no snapshot needs are collected when changes are made.
        let other = store.table("other").unwrap();
        for _ in 0..500 {
            other.put(b"one", b"value").unwrap();
        }
        Self { newer, beside, table, store }
    }
}

fn keys_of(
    records: impl Iterator<Item = qpair_engine::Result<(Vec<u8>, Vec<u8>)>>,
) -> Vec<Vec<u8>> {
    records.map(|record| record.unwrap().0).collect()
}

#[test]
fn ranges_of_snapshots_and_transactions_have_what_gets_find() {
    let Prepared { newer, mut beside, table, store: _store } = Prepared::new(None);
    delete(&table, 0..10);
    let found = |get: &mut dyn FnMut(&[u8]) -> bool| -> Vec<Vec<u8>> {
        (0..200).map(|i| key(i).to_vec()).filter(|key| get(key)).collect()
    };
    let all = found(&mut |key| newer.get(&table, key).unwrap().is_some());
    assert_eq!(all.len(), 200);
    assert_eq!(keys_of(newer.range(&table, ..key(200)).unwrap()), all);
    let mut reverse = keys_of(newer.range(&table, ..key(200)).unwrap().reverse());
    reverse.reverse();
    assert_eq!(reverse, all);
    assert_eq!(found(&mut |key| beside.get(&table, key).unwrap().is_some()), all);
    assert_eq!(keys_of(beside.range(&table, ..key(200)).unwrap()), all);
}

/// Checks that the tests above would find the fault.
#[test]
fn the_planted_bug_leaves_out_records() {
    let planted = Prepared::new(Some(Canary::DeletedKeysOutOfOrder));
    delete(&planted.table, 0..10);
    assert_eq!(planted.newer.range(&planted.table, ..key(200)).unwrap().count(), 190);
}

#[test]
fn a_serializable_transaction_notices_deletions_from_the_front_of_its_range() {
    for canary in [None, Some(Canary::DeletedKeysOutOfOrder)] {
        let Prepared { newer: _newer, beside: _beside, table, store } = Prepared::new(canary);
        let count = store.table("count").unwrap();
        let options = TransactionOptions {
            isolation: Isolation::Serializable,
            durability: Durability::Async,
            ..TransactionOptions::default()
        };
        let mut first = store.begin_with(&options);
        assert_eq!(first.range(&table, ..key(50)).unwrap().count(), 50);
        let mut second = store.begin_with(&options);
        assert_eq!(second.get(&count, b"count").unwrap(), None);
        assert_eq!(second.delete_range(&table, key(0)..key(10)).unwrap(), 10);
        second.commit().unwrap();
        // So many keys that those of the commits since are no longer kept, and all that was read is
        // compared.
        let mut third = store.begin_with(&options);
        for i in 0..1200 {
            third.put(&count, &[&key(i)[..], &[0; 900]].concat(), b"").unwrap();
        }
        third.commit().unwrap();
        first.put(&count, b"count", b"50").unwrap();
        let outcome = first.commit().map_err(|error| error.kind());
        // Each transaction changed a row that the other had read: with the bug planted, both
        // commit.
        assert_eq!(outcome.err(), canary.is_none().then_some(ErrorKind::Conflict));
    }
}
