//! What a store grows by: it stays in proportion to what is in it.

use crate::common::{assert_sound, options, ram};
use qpair_engine::{Store, StoreOptions, Table};

const PAGE: usize = 4096;
/// A quarter of them may be promised to commits without a look.
const FRAMES: u64 = 256;
const RECORDS: u64 = 60_000;

type Key = [u8; 8];

fn sorted(i: u64) -> Key {
    i.to_be_bytes()
}

fn falling(i: u64) -> Key {
    (u64::MAX - i).to_be_bytes()
}

fn scattered(i: u64) -> Key {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// The size of a store's device once all this was done.
fn size_after(change: impl Fn(&Store, &Table)) -> u64 {
    let device = ram();
    let options = StoreOptions { log_segment_bytes: 1 << 20, ..options(PAGE, FRAMES) };
    let store = Store::open(vec![device.clone()], &options).unwrap();
    let table = store.table("t").unwrap();
    change(&store, &table);
    drop(table);
    store.close().unwrap();
    assert_sound(std::slice::from_ref(&device), PAGE);
    device.size_bytes()
}

fn load(table: &Table) {
    table.bulk_load((0..RECORDS).map(|i| Ok((sorted(i).to_vec(), vec![1; 8])))).unwrap();
}

fn put_in_one(store: &Store, table: &Table, key: impl Fn(u64) -> Key, keys: std::ops::Range<u64>) {
    store.transact(|tx| keys.clone().try_for_each(|i| tx.put(table, &key(i), &[2; 8]))).unwrap();
}

/// Its leaves are counted, and not its records.
#[test]
fn one_transaction_grows_a_store_by_little_more_than_a_load() {
    let loaded = size_after(|_, table| load(table));
    let grown = |name: &str, change: &dyn Fn(&Store, &Table)| {
        let size = size_after(change);
        assert!(size <= 2 * loaded, "{name}: {size} bytes; a load makes {loaded}");
    };
    let orders: [(&str, fn(u64) -> Key); 3] =
        [("sorted", sorted), ("falling", falling), ("scattered", scattered)];
    for (name, key) in orders {
        grown(name, &|store, table| put_in_one(store, table, key, 0..RECORDS));
    }
    grown("half beside half", &|store, table| {
        for first in (0..RECORDS / 2).step_by(1000) {
            put_in_one(store, table, scattered, first..first + 1000);
        }
        put_in_one(store, table, scattered, RECORDS / 2..RECORDS);
    });
    grown("updates", &|store, table| {
        load(table);
        put_in_one(store, table, sorted, 0..RECORDS);
    });
    grown("deletes", &|store, table| {
        load(table);
        store
            .transact(|tx| {
                let gone = (0..RECORDS).filter(|i| i % 10 != 0);
                gone.into_iter().try_for_each(|i| tx.delete(table, &sorted(i)).map(drop))
            })
            .unwrap();
    });
}
