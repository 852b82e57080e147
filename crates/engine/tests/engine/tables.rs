//! Calls of a table for several records: its first and last records, its prefixes, and futures of
//! any runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{existing, options, ram};
use qpair_engine::{ErrorKind, Prefix, Store, Table, WriteBatch};

const PAGE: usize = 512;
const RECORDS: u32 = 5000;

fn filled() -> (Store, Table) {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 2048)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..RECORDS {
        table.put(name(i).as_bytes(), &i.to_be_bytes()).unwrap();
    }
    drop(table);
    store.close().unwrap();
    let store = Store::open(vec![device], &existing(PAGE, 128)).unwrap();
    let table = store.table("t").unwrap();
    (store, table)
}

fn name(i: u32) -> String {
    format!("{}/{:05}", if i.is_multiple_of(2) { "even" } else { "odd" }, i)
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on a minimal runtime that knows nothing of the store.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn the_ends_of_a_table() {
    let (store, table) = filled();
    let key_of = |record: Option<(Vec<u8>, Vec<u8>)>| String::from_utf8(record.unwrap().0).unwrap();
    assert_eq!(key_of(table.first().unwrap()), "even/00000");
    assert_eq!(key_of(table.last().unwrap()), "odd/04999");
    assert_eq!(table.iter().count(), RECORDS as usize);
    assert!(table.contains_key(b"odd/00001").unwrap());
    assert!(!table.contains_key(b"odd/00002").unwrap());
    let empty = store.table("empty").unwrap();
    assert_eq!(empty.first().unwrap(), None);
    assert_eq!(empty.last().unwrap(), None);
}

#[test]
fn a_prefix_is_a_range_everywhere() {
    let (store, table) = filled();
    let odd = Prefix("odd/");
    let expected = RECORDS as usize / 2;
    assert_eq!(table.range(odd).unwrap().count(), expected);
    assert_eq!(store.snapshot().unwrap().range(&table, odd).unwrap().count(), expected);
    let count = store.transact(|tx| Ok(tx.range(&table, odd)?.count())).unwrap();
    assert_eq!(count, expected);
    assert_eq!(table.range("even/00010"..="even/00020").unwrap().count(), 6);
    assert_eq!(table.delete_range(odd).unwrap(), expected as u64);
    assert_eq!(table.last().unwrap().unwrap().0, name(RECORDS - 2).into_bytes());
    assert_eq!(table.range("b".."a").err().unwrap().kind(), ErrorKind::Invalid);
}

#[test]
fn futures_of_any_runtime() {
    let (store, table) = filled();
    block_on(async {
        for i in (0..RECORDS).step_by(61) {
            let value = table.get_async(name(i).as_bytes()).await.unwrap();
            assert_eq!(value.as_deref(), Some(&i.to_be_bytes()[..]));
        }
        assert!(!table.put_async(b"new", b"value").await.unwrap());
        assert!(table.put_async(b"new", &[7; 3000]).await.unwrap());
        assert_eq!(table.get_async(b"new").await.unwrap(), Some(vec![7; 3000]));
        assert!(table.delete_async(b"new").await.unwrap());
        assert_eq!(table.get_async(b"new").await.unwrap(), None);
        let too_long = table.put_async(&[0; 1 << 16], b"").await.unwrap_err();
        assert_eq!(too_long.kind(), ErrorKind::KeyTooLong);
    });
    // What is in memory needs no wait, and the rest of the table is larger than memory.
    let mut value = b"before".to_vec();
    assert_eq!(table.get(name(8).as_bytes()).unwrap().as_deref(), Some(&8u32.to_be_bytes()[..]));
    assert_eq!(table.try_get_into(name(8).as_bytes(), &mut value).unwrap(), Some(true));
    assert_eq!(value, [&b"before"[..], &8u32.to_be_bytes()].concat());
    assert_eq!(table.try_get_into(b"even/", &mut value).unwrap(), Some(false));
    table.put(b"large", &[7; 3000]).unwrap();
    assert_eq!(table.try_get_into(b"large", &mut value).unwrap(), None);
    assert_eq!(value.len(), b"before".len() + 4);
    // A commit, also one whose future is dropped when a worker has it.
    let mut tx = store.begin();
    tx.put(&table, b"awaited", b"1").unwrap();
    let commit = block_on(tx.commit_async()).unwrap();
    assert!(store.snapshot().unwrap().timestamp() >= commit.timestamp());
    assert_eq!(table.get(b"awaited").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(block_on(store.begin().commit_async()).unwrap().timestamp() >= commit.timestamp());
    let [mut first, mut second] = [store.begin(), store.begin()];
    assert_eq!(first.get(&table, b"awaited").unwrap(), second.get(&table, b"awaited").unwrap());
    first.put(&table, b"awaited", b"2").unwrap();
    block_on(first.commit_async()).unwrap();
    let met = second.put(&table, b"awaited", b"3").and_then(|()| block_on(second.commit_async()));
    assert_eq!(met.unwrap_err().kind(), ErrorKind::Conflict);
    let mut tx = store.begin();
    tx.put(&table, b"dropped", b"value").unwrap();
    {
        let mut future = pin!(tx.commit_async());
        let pending = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(pending, Poll::Pending | Poll::Ready(Ok(_))));
    }
    while table.get(b"dropped").unwrap().is_none() {
        std::thread::yield_now();
    }
    table.delete(b"dropped").unwrap();
    // The record of a dropped future was still put.
    {
        let mut future = pin!(table.put_async(b"dropped", b"value"));
        let pending = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(pending, Poll::Pending | Poll::Ready(Ok(_))));
    }
    while table.get(b"dropped").unwrap().is_none() {
        std::thread::yield_now();
    }
    let other = table.clone();
    drop(table);
    store.close().unwrap();
    assert_eq!(block_on(other.put_async(b"late", b"")).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn changes_that_depend_on_what_is_there() {
    let (store, table) = filled();
    assert!(!table.insert(b"even/00000", b"x").unwrap());
    assert!(table.insert(b"new", b"1").unwrap());
    assert!(!table.compare_and_swap(b"new", Some(b"2"), Some(b"3")).unwrap());
    assert!(table.compare_and_swap(b"new", Some(b"1"), Some(b"2")).unwrap());
    assert!(table.compare_and_swap(b"none", None, Some(b"1")).unwrap());
    assert!(table.compare_and_swap(b"none", Some(b"1"), None).unwrap());
    assert_eq!(table.get(b"none").unwrap(), None);
    let longer = |value: Option<&[u8]>| value.map(|value| [value, b"+"].concat());
    assert_eq!(table.update(b"new", longer).unwrap().as_deref(), Some(&b"2+"[..]));
    assert_eq!(table.update(b"none", longer).unwrap(), None);
    assert_eq!(table.update(b"new", |_| None).unwrap(), None);
    assert!(!table.contains_key(b"new").unwrap() && !table.contains_key(b"none").unwrap());
    // No change is lost when many threads change the same row.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let add = |value: Option<&[u8]>| {
                        let count =
                            value.map_or(0, |value| u32::from_be_bytes(value.try_into().unwrap()));
                        Some((count + 1).to_be_bytes().to_vec())
                    };
                    table.update(b"counter", add).unwrap();
                }
            });
        }
    });
    assert_eq!(table.get(b"counter").unwrap().unwrap(), 200_u32.to_be_bytes());
    assert_eq!(table.count().unwrap(), u64::from(RECORDS) + 1);
    drop(store);
}

#[test]
fn every_record_is_popped_once() {
    let (store, table) = filled();
    let popped = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for last in [false, false, true] {
            let (table, popped) = (&table, &popped);
            scope.spawn(move || {
                for _ in 0..200 {
                    let record = if last { table.pop_last() } else { table.pop_first() };
                    let (key, value) = record.unwrap().unwrap();
                    popped.lock().unwrap().push((key, value));
                }
            });
        }
    });
    let mut popped = popped.into_inner().unwrap();
    popped.sort();
    popped.dedup();
    assert_eq!(popped.len(), 600);
    assert!(
        popped.iter().all(|(key, value)| key
            == name(u32::from_be_bytes(value[..].try_into().unwrap())).as_bytes())
    );
    assert_eq!(table.count().unwrap(), u64::from(RECORDS) - 600);
    let empty = store.table("empty").unwrap();
    assert_eq!(empty.pop_first().unwrap(), None);
}

#[test]
fn many_at_once() {
    let (store, table) = filled();
    let reads = |store: &Store| store.statistics().unwrap().device.reads;
    let before = reads(&store);
    let keys: Vec<String> = (0..RECORDS).step_by(7).map(name).chain(["no".to_owned()]).collect();
    let values = table.multi_get(&keys).unwrap();
    assert_eq!(values.len(), keys.len());
    assert_eq!(values.last().unwrap(), &None);
    for (i, value) in (0..RECORDS).step_by(7).zip(&values) {
        assert_eq!(value.as_deref(), Some(&i.to_be_bytes()[..]));
    }
    assert!(reads(&store) > before, "the store is larger than its memory");
    let other = store.table("other").unwrap();
    let mut batch = WriteBatch::default();
    batch.put(&table, b"a", b"1").put(&other, b"a", b"2").put(&other, b"b", b"3");
    batch.delete(&other, b"a").delete(&table, b"even/00000");
    assert_eq!(batch.len(), 5);
    store.write(&batch).unwrap();
    assert_eq!(table.get(b"a").unwrap().unwrap(), b"1");
    assert_eq!(other.iter().map(|record| record.unwrap().0).collect::<Vec<_>>(), [b"b"]);
    assert!(!table.contains_key(b"even/00000").unwrap());
    // A copy keeps its changes when the batch gets others, also those of many tables by turns.
    let copy = batch.clone();
    batch.clear();
    assert!(batch.is_empty() && copy.len() == 5);
    let many: Vec<Table> = (0..20).map(|n| store.table(&format!("many/{n}")).unwrap()).collect();
    for n in 0..60_u32 {
        batch.put(&many[n as usize % 20], &n.to_be_bytes(), &[]);
    }
    store.write(&batch).unwrap();
    store.write(&copy).unwrap();
    for n in 0..60_u32 {
        let found = many[n as usize % 20].get(&n.to_be_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&[][..]));
    }
    assert!(many.iter().all(|table| table.iter().count() == 3));
    // The last change of the batch is refused, so none is made.
    let mut refused = WriteBatch::default();
    refused.put(&other, b"c", b"4").put(&other, &[0; 66_000], b"");
    assert_eq!(store.write(&refused).unwrap_err().kind(), ErrorKind::KeyTooLong);
    assert!(!other.contains_key(b"c").unwrap());
}

#[test]
fn a_range_is_taken_from_both_ends() {
    let (_store, table) = filled();
    let all: Vec<Vec<u8>> = table.iter().map(|record| record.unwrap().0).collect();
    assert!(table.iter().rev().map(|record| record.unwrap().0).eq(all.iter().rev().cloned()));
    for turn in [2, 3, 7, 4999] {
        let (mut range, mut front, mut back) = (table.iter(), Vec::new(), Vec::new());
        let mut at = 0;
        loop {
            at += 1;
            let (record, side) = match at % turn {
                0 => (range.next_back(), &mut back),
                _ => (range.next(), &mut front),
            };
            let Some(record) = record else { break };
            side.push(record.unwrap().0);
        }
        assert!(range.next().is_none() && range.next_back().is_none(), "every {turn}");
        back.reverse();
        assert_eq!([front, back].concat(), all, "every {turn}");
    }
    let mut few = table.range("even/".."odd/").unwrap().reverse().limit(3);
    let key = |record: Option<qpair_engine::Result<(Vec<u8>, Vec<u8>)>>| {
        String::from_utf8(record.unwrap().unwrap().0).unwrap()
    };
    assert_eq!(key(few.next_back()), "even/00000");
    assert_eq!(key(few.next()), "even/04998");
    assert_eq!(key(few.next_back()), "even/00002");
    assert!(few.next().is_none() && few.next_back().is_none());
}

/// Takes a range from both ends, every `turn`th record from the back, and returns all of its
/// records.
fn from_both_ends(
    mut range: impl DoubleEndedIterator<Item = qpair_engine::Result<(Vec<u8>, Vec<u8>)>>,
    turn: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    for at in 1.. {
        let (record, side) = match at % turn {
            0 => (range.next_back(), &mut back),
            _ => (range.next(), &mut front),
        };
        let Some(record) = record else { break };
        side.push(record.unwrap());
    }
    assert!(range.next().is_none() && range.next_back().is_none(), "every {turn}");
    back.reverse();
    [front, back].concat()
}

#[test]
fn a_transactions_range_is_taken_from_both_ends_with_its_own_changes() {
    let (store, table) = filled();
    let before: Vec<_> = table.iter().map(Result::unwrap).collect();
    let snapshot = store.snapshot().unwrap();
    let mut model: std::collections::BTreeMap<_, _> = before.iter().cloned().collect();
    let isolation = qpair_engine::Isolation::Serializable;
    let options = qpair_engine::TransactionOptions { isolation, ..Default::default() };
    let mut transaction = store.begin_with(&options);
    for i in 0..RECORDS {
        let key = name(i).into_bytes();
        match i % 5 {
            0 | 1 => {
                transaction.delete(&table, &key).unwrap();
                model.remove(&key);
            }
            2 => {
                let key = [&key[..], b"+"].concat();
                transaction.put(&table, &key, b"own").unwrap();
                model.insert(key, b"own".to_vec());
            }
            _ => {}
        }
    }
    // A large value, which is not in its leaf.
    let large = (b"even/99999".to_vec(), vec![7; 8 * PAGE]);
    transaction.put(&table, &large.0, &large.1).unwrap();
    model.extend([large]);
    let model: Vec<_> = model.into_iter().collect();
    for turn in [2, 3, 7, 4999] {
        assert!(from_both_ends(transaction.range(&table, ..).unwrap(), turn) == model);
    }
    let mut few = transaction.range(&table, "even/".."odd/").unwrap().reverse().limit(3);
    let mut key = |back| {
        let record = if back { few.next_back() } else { few.next() };
        record.map(|record| String::from_utf8(record.unwrap().0).unwrap())
    };
    assert_eq!(key(true).as_deref(), Some("even/00002"));
    assert_eq!(key(false).as_deref(), Some("even/99999"));
    assert_eq!(key(true).as_deref(), Some("even/00002+"));
    assert_eq!((key(true), key(false)), (None, None));
    transaction.commit().unwrap();
    for turn in [2, 5, 4999] {
        assert!(from_both_ends(snapshot.range(&table, ..).unwrap(), turn) == before);
        assert!(
            from_both_ends(snapshot.range(&table, ..).unwrap().reverse(), turn)
                .into_iter()
                .rev()
                .eq(before.iter().cloned())
        );
    }
}

/// The keys between the two ends do not count as read; the keys that either end gave out do.
#[test]
fn a_serializable_range_read_from_both_ends_conflicts_at_either() {
    let (store, table) = filled();
    let read = |changed: u32| {
        let isolation = qpair_engine::Isolation::Serializable;
        let options = qpair_engine::TransactionOptions { isolation, ..Default::default() };
        let mut transaction = store.begin_with(&options);
        let mut range = transaction.range(&table, ..).unwrap();
        for _ in 0..300 {
            range.next().unwrap().unwrap();
            range.next_back().unwrap().unwrap();
        }
        drop(range);
        transaction.put(&table, b"x", b"").unwrap();
        table.put(name(changed).as_bytes(), b"new").unwrap();
        transaction.commit().err().map(|error| error.kind())
    };
    assert_eq!(read(2), Some(ErrorKind::Conflict));
    assert_eq!(read(RECORDS - 3), Some(ErrorKind::Conflict));
    assert_eq!(read(RECORDS / 2), None);
}

#[test]
fn what_a_table_has_is_estimated() {
    let (store, table) = filled();
    let within = |estimate: u64, exact: u64, percent: u64| {
        assert!(estimate.abs_diff(exact) * 100 <= exact * percent, "{estimate} for {exact}");
    };
    let bytes_of = |table: &Table| -> usize {
        table.iter().map(Result::unwrap).map(|(key, value)| key.len() + value.len()).sum()
    };
    let compare = |table: &Table, percent: u64| {
        let statistics = table.statistics().unwrap();
        within(statistics.records, table.count().unwrap(), percent);
        within(statistics.value_bytes, bytes_of(table) as u64, percent);
        statistics
    };
    let statistics = compare(&table, 25);
    assert_eq!(table.len_estimate().unwrap(), statistics.records);
    assert!(statistics.depth > 2 && statistics.leaves > 100, "{statistics:?}");
    assert!(!table.is_empty().unwrap());
    // Leaves with records of two sizes, and a part of the range without records.
    let mixed = store.table("mixed").unwrap();
    let mut state = 1u64;
    for _ in 0..RECORDS {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let key = (state >> 32) as u32;
        mixed.put(&key.to_be_bytes(), &vec![1; if key < 1 << 31 { 4 } else { 60 }]).unwrap();
    }
    compare(&mixed, 25);
    mixed.delete_range((1u32 << 30).to_be_bytes()..(3u32 << 30).to_be_bytes()).unwrap();
    compare(&mixed, 25);
    // A table of few leaves is counted exactly, and large values with all their bytes.
    let few = store.table("few").unwrap();
    assert!(few.is_empty().unwrap());
    assert_eq!(few.statistics().unwrap().records, 0);
    for i in 0..100 {
        few.put(name(i).as_bytes(), &vec![2; if i == 50 { 5 * PAGE } else { 8 }]).unwrap();
    }
    let statistics = compare(&few, 0);
    assert!(statistics.depth == 2 && (4..=16).contains(&statistics.leaves), "{statistics:?}");
    few.clear().unwrap();
    assert!(few.is_empty().unwrap());
    assert_eq!(few.len_estimate().unwrap(), 0);
    store.drop_table("few").unwrap();
    assert_eq!(few.statistics().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_table_is_cleared_and_others_are_not() {
    let (store, table) = filled();
    let other = store.table("other").unwrap();
    other.put(b"a", b"1").unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(table.clear().unwrap(), u64::from(RECORDS));
    assert!(table.is_empty().unwrap() && !other.is_empty().unwrap());
    assert_eq!(snapshot.range(&table, ..).unwrap().count(), RECORDS as usize);
    table.put(b"a", b"2").unwrap();
    assert_eq!(table.count().unwrap(), 1);
}

#[test]
fn a_value_is_read_in_place_by_a_closure_that_may_ask_the_store() {
    let (_store, table) = filled();
    table.put(b"large", &[3; 20 * PAGE]).unwrap();
    for i in (0..RECORDS).step_by(17) {
        let value = table.get_with(name(i).as_bytes(), |value| {
            // The inner call has its own buffer, and leaves this value unchanged.
            let inner = table.get_with(b"large", <[u8]>::len).unwrap();
            let other = table.get_with(name(RECORDS - 1).as_bytes(), <[u8]>::to_vec).unwrap();
            assert_eq!(
                (inner, other),
                (Some(20 * PAGE), Some((RECORDS - 1).to_be_bytes().to_vec()))
            );
            value.to_vec()
        });
        assert_eq!(value.unwrap(), Some(i.to_be_bytes().to_vec()));
    }
    assert_eq!(table.get_with(b"nothing", |_| panic!("there is no value")).unwrap(), None);
}

/// The content, the log, the free pages and the reserve together make up the store. A closed store
/// has no log, and a store opened for reading has no reserve.
#[test]
fn a_report_tells_content_log_and_reserve_apart() {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 256)).unwrap();
    let table = store.table("t").unwrap();
    table.put(b"key", b"value").unwrap();
    let open = store.report();
    assert!(open.log_pages > 0 && open.reserve_pages > 0, "{open:?}");
    let used = open.pages - open.free_pages - open.retained_pages;
    assert!(open.log_pages < used && open.reserve_pages <= open.free_pages, "{open:?}");
    drop(table);
    store.close().unwrap();
    let reading = qpair_engine::StoreOptions { read_only: true, ..existing(PAGE, 256) };
    let closed = Store::open(vec![device], &reading).unwrap().report();
    assert_eq!((closed.log_pages, closed.reserve_pages), (0, 0), "{closed:?}");
}
