//! Changes that a full device of fixed size has no room for.

#![allow(clippy::unwrap_used, reason = "a test that fails should panic")]

mod common;

use std::sync::Arc;

use common::options;
use qpair_block::{BlockDevice, RamDevice, RamOptions};
use qpair_engine::{ErrorKind, Store, StoreOptions};

const PAGE: usize = 512;

/// Its record is larger than the log can get. Each checkpoint moves some inner pages, which is no reason to make another.
#[test]
fn a_transaction_without_room_for_its_record_is_refused() {
    let fixed = RamOptions { size_bytes: 2 << 20, growable: false, ..RamOptions::default() };
    let device: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(fixed).unwrap());
    let small = StoreOptions { checkpoint_bytes: 100 << 10, ..options(PAGE, 98) };
    let store = Store::open(vec![device], &small).unwrap();
    let table = store.table("t").unwrap();
    let put = |keys: &mut dyn Iterator<Item = u32>, value: u8| {
        let keys: Vec<u32> = keys.collect();
        let put = store.transact(|tx| {
            keys.iter().try_for_each(|key| tx.put(&table, &key.to_be_bytes(), &[value; 40]))
        });
        put.map(drop).map_err(|error| error.kind())
    };
    let mut rows = 0;
    while put(&mut (rows..rows + 100), 7).is_ok() {
        rows += 100;
    }
    assert!(rows > 5000);
    assert_eq!(put(&mut (0..rows).step_by(7), 8), Err(ErrorKind::NoSpace));
    assert!(!store.is_read_only());
    assert_eq!(table.get(&0u32.to_be_bytes()).unwrap().as_deref(), Some(&[7; 40][..]));
    drop(table);
    store.close().unwrap();
}
