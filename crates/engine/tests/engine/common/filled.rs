//! A store with some small records, most of it not in memory.

use qpair_engine::Store;

use super::{Device, existing, key, options};

pub(crate) const PAGE: usize = 512;
pub(crate) const FRAMES: u64 = 128;

pub(crate) fn value(i: u32) -> Vec<u8> {
    vec![i as u8; 24]
}

/// Fills a table, closes the store, and reopens it, so that only roots are in memory.
pub(crate) fn filled(device: &Device, records: u32) -> Store {
    let store = Store::open(vec![device.clone()], &options(PAGE, FRAMES)).unwrap();
    let table = store.table("t").unwrap();
    for i in 0..records {
        table.put(&key(i), &value(i)).unwrap();
    }
    drop(table);
    store.close().unwrap();
    Store::open(vec![device.clone()], &existing(PAGE, FRAMES)).unwrap()
}
