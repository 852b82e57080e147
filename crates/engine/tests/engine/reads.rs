//! Tests the number of page reads that a worker has in flight.

use crate::common::noting::noting;
use crate::common::{existing, options, ram};
use qpair_engine::{Store, StoreOptions};

const PAGE: usize = 512;
const RECORDS: u32 = 6000;

/// Looks up 200 records, most of which are not in memory, with as many tasks. Returns the maximum
/// number of requests in flight with one of those reads, and the limit that the metrics report.
fn look_up(reads: u32) -> (u32, u64) {
    let device = ram();
    let store = Store::open(vec![device.clone()], &options(PAGE, 4096)).unwrap();
    let table = store.table("t").unwrap();
    for key in 0..RECORDS {
        table.put(&key.to_be_bytes(), &[7; 40]).unwrap();
    }
    drop(table);
    store.close().unwrap();

    let (device, noted) = noting(device);
    let options = StoreOptions { workers: 1, reads, ..existing(PAGE, 4096) };
    let store = Store::open(vec![device], &options).unwrap();
    let table = store.table("t").unwrap();
    // Load the root and the pages below it.
    drop(table.get(&0u32.to_be_bytes()).unwrap());
    noted.lock().unwrap().clear();
    let tasks: Vec<_> = (0..RECORDS)
        .step_by(30)
        .map(|key| {
            let table = table.task();
            store.spawn(move || async move { table.get(&key.to_be_bytes()).await })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.join().unwrap().unwrap().as_deref(), Some(&[7; 40][..]));
    }
    let noted = noted.lock().unwrap();
    assert!(noted.len() >= 100, "{}", noted.len());
    let most = noted.iter().map(|read| read.in_flight).max().unwrap();
    (most, store.metrics().unwrap().reads_in_flight_max)
}

#[test]
fn are_limited_where_the_options_say_so() {
    assert_eq!(look_up(3), (3, 3));
    assert_eq!(look_up(1), (1, 1));
}

#[test]
fn are_as_many_as_there_are_without_a_reason_to_limit_them() {
    let (most, limit) = look_up(0);
    assert!(most > 3, "{most}");
    assert_eq!(limit, 512);
}
