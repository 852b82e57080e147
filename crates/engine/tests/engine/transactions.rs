//! Transactions, one after the other and against a model.

use crate::common::{assert_sound, options, ram};
use qpair_engine::{ErrorKind, Isolation, Store, TransactionOptions};

const PAGE: usize = 512;

#[test]
fn what_a_transaction_writes_is_seen_at_its_commit() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let (a, b) = (store.table("a").unwrap(), store.table("b").unwrap());
    a.put(b"x", b"0").unwrap();
    let before = store.snapshot().unwrap();
    let mut tx = store.begin();
    assert_eq!(tx.get(&a, b"x").unwrap().as_deref(), Some(&b"0"[..]));
    tx.put(&a, b"x", b"1").unwrap();
    tx.put(&b, b"y", &[7; 2000]).unwrap();
    assert!(tx.insert(&b, b"z", b"2").unwrap());
    assert!(!tx.insert(&b, b"z", b"3").unwrap());
    assert_eq!(tx.get(&a, b"x").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(tx.get(&b, b"y").unwrap(), Some(vec![7; 2000]));
    assert_eq!(a.get(b"x").unwrap().as_deref(), Some(&b"0"[..]));
    assert_eq!(b.get(b"y").unwrap(), None);
    assert_eq!(store.transactions().len(), 1);
    let commit = tx.commit().unwrap();
    assert!(commit.timestamp() > before.timestamp());
    commit.wait_durable().unwrap();
    assert!(store.transactions().is_empty());
    assert_eq!(a.get(b"x").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(b.get(b"y").unwrap(), Some(vec![7; 2000]));
    assert_eq!(before.get(&a, b"x").unwrap().as_deref(), Some(&b"0"[..]));
    assert_eq!(before.get(&b, b"y").unwrap(), None);
    assert_eq!(before.range(&b, ..).unwrap().count(), 0);
    let mut tx = store.begin();
    assert!(tx.delete(&b, b"y").unwrap());
    assert!(!tx.delete(&b, b"q").unwrap());
    tx.rollback();
    assert_eq!(b.get(b"y").unwrap(), Some(vec![7; 2000]));
    drop((before, a, b));
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

/// A regression: large values written after a savepoint kept their pages until the transaction
/// ended.
#[test]
fn large_values_behind_a_savepoint() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    let used_pages = || {
        let report = store.report();
        report.pages - report.free_pages
    };
    let before = used_pages();
    let mut tx = store.begin();
    tx.put(&table, b"kept", &[1; 20_000]).unwrap();
    let point = tx.savepoint().unwrap();
    for n in 0..100 {
        tx.put(&table, b"undone", &[n; 20_000]).unwrap();
        tx.put(&table, b"kept", &[n; 20_000]).unwrap();
        tx.rollback_to(&point).unwrap();
    }
    let used = used_pages() - before;
    assert!(used < 4 * 20_000 / PAGE as u64, "{used} pages more");
    tx.put(&table, b"last", &[9; 20_000]).unwrap();
    tx.commit().unwrap();
    assert_eq!(table.get(b"undone").unwrap(), None);
    assert_eq!(table.get(b"kept").unwrap().unwrap(), [1; 20_000]);
    assert_eq!(table.get(b"last").unwrap().unwrap(), [9; 20_000]);
    drop(table);
    store.close().unwrap();
    assert_eq!(assert_sound(&[device], PAGE).leaked_pages, 0);
}

#[test]
fn a_range_is_deleted_in_parts() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    for index in 0..3500u32 {
        table.put(&index.to_be_bytes(), &[1; 20]).unwrap();
    }
    let before = store.snapshot().unwrap();
    let (from, to) = (100u32.to_be_bytes(), 3400u32.to_be_bytes());
    assert_eq!(table.delete_range(&from[..]..&to[..]).unwrap(), 3300);
    assert_eq!(table.delete_range(&from[..]..&to[..]).unwrap(), 0);
    let left: Vec<_> = table.range(..).unwrap().map(|record| record.unwrap().0).collect();
    let expected = (0..100).chain(3400..3500u32).map(|index| index.to_be_bytes().to_vec());
    assert!(left.into_iter().eq(expected));
    assert_eq!(before.range(&table, ..).unwrap().count(), 3500);
    drop((before, table));
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}

#[test]
fn the_first_updater_wins() {
    let store = Store::open(vec![ram()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"x", b"0").unwrap();
    let (mut first, mut second) = (store.begin(), store.begin());
    first.get(&table, b"x").unwrap();
    second.get(&table, b"x").unwrap();
    first.put(&table, b"x", b"1").unwrap();
    first.commit().unwrap();
    let error = second.put(&table, b"x", b"2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(second.get(&table, b"x").unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(second.commit().unwrap_err().kind(), ErrorKind::Conflict);
    // A transaction that locks before its first read only waits.
    let mut third = store.begin();
    assert_eq!(third.get_for_update(&table, b"x").unwrap().as_deref(), Some(&b"1"[..]));
    third.put(&table, b"x", b"3").unwrap();
    third.commit().unwrap();
}

#[test]
fn write_skew_is_for_snapshots_only() {
    for (isolation, both) in [(Isolation::Snapshot, true), (Isolation::Serializable, false)] {
        let store = Store::open(vec![ram()], &options(PAGE, 256)).unwrap();
        let table = store.table("t").unwrap();
        let options = TransactionOptions { isolation, ..TransactionOptions::default() };
        let (mut first, mut second) = (store.begin_with(&options), store.begin_with(&options));
        for tx in [&mut first, &mut second] {
            assert_eq!(tx.range(&table, ..).unwrap().count(), 0);
        }
        first.put(&table, b"x", b"1").unwrap();
        second.put(&table, b"y", b"1").unwrap();
        first.commit().unwrap();
        assert_eq!(second.commit().is_ok(), both);
    }
}

/// Conflicts name the table, because people know tables by their names.
#[test]
fn conflicts_name_the_key_and_its_table() {
    let device = ram();
    let store = Store::open(vec![device], &options(PAGE, 256)).unwrap();
    let table = store.table("orders").unwrap();
    table.put(b"ada", b"0").unwrap();
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let of = TransactionOptions { isolation, ..TransactionOptions::default() };
        let mut tx = store.begin_with(&of);
        tx.get(&table, b"ada").unwrap();
        table.put(b"ada", b"1").unwrap();
        let outcome = match isolation {
            Isolation::Serializable => {
                tx.put(&table, b"alan", b"2").unwrap();
                tx.commit().map(drop)
            }
            _ => tx.put(&table, b"ada", b"2"),
        };
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("key \"ada\" of table orders"), "{error}");
    }
}

#[test]
fn a_table_dropped_under_a_transaction() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let (gone, other) = (store.table("gone").unwrap(), store.table("other").unwrap());
    for index in 0..200u8 {
        gone.put(&[index], &[index; 900]).unwrap();
    }
    let snapshot = store.snapshot().unwrap();
    let (mut writer, mut reader) = (
        store.begin(),
        store.begin_with(&TransactionOptions {
            isolation: Isolation::Serializable,
            ..TransactionOptions::default()
        }),
    );
    writer.put(&gone, &[1], b"new").unwrap();
    writer.put(&other, b"x", b"new").unwrap();
    assert!(reader.get(&gone, &[2]).unwrap().is_some());
    reader.put(&other, b"y", b"new").unwrap();
    let mut range = gone.range(..).unwrap();
    assert!(range.next().unwrap().is_ok());
    store.drop_table("gone").unwrap();
    // No read finds the half-empty table, and no write is lost in it.
    let kind = |outcome: qpair_engine::Result<Option<Vec<u8>>>| outcome.unwrap_err().kind();
    assert_eq!(kind(gone.get(&[3])), ErrorKind::NotFound);
    assert_eq!(kind(snapshot.get(&gone, &[3])), ErrorKind::NotFound);
    assert_eq!(kind(writer.get(&gone, &[1])), ErrorKind::NotFound);
    let end = range.find_map(Result::err).map(|error| error.kind());
    assert_eq!(end, Some(ErrorKind::NotFound));
    let refused = snapshot.range(&gone, ..).err().map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::NotFound));
    assert_eq!(writer.commit().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(reader.commit().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(other.range(..).unwrap().count(), 0);
    drop((snapshot, gone, other));
    store.close().unwrap();
    assert_sound(&[device], PAGE);
}
